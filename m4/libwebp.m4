# AMPTRAIN_LIBWEBP: libwebp where it is found, for WebP images. --with-libwebp makes its absence an error.
AC_DEFUN([AMPTRAIN_LIBWEBP], [
    AC_ARG_WITH([libwebp],
        [AS_HELP_STRING([--without-libwebp], [do not read WebP images])],
        [], [with_libwebp=auto])
    found_libwebp=no
    AS_IF([test "$with_libwebp" != no],
        [AC_CHECK_HEADER([webp/decode.h],
            [AC_SEARCH_LIBS([WebPDecodeRGBInto], [webp], [found_libwebp=yes])])])
    AS_IF([test "$with_libwebp$found_libwebp" = yesno],
        [AC_MSG_ERROR([--with-libwebp was given, but it was not found (Debian's package is libwebp-dev)])])
    AM_CONDITIONAL([HAVE_LIBWEBP], [test "$found_libwebp" != no])
])
