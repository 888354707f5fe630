# AMPTRAIN_LIBTIFF: libtiff 4.5 or later where it is found, for TIFF images: since then messages go to the
# caller, not to the process. --with-libtiff makes its absence an error.
AC_DEFUN([AMPTRAIN_LIBTIFF], [
    AC_ARG_WITH([libtiff],
        [AS_HELP_STRING([--without-libtiff], [do not read TIFF images])],
        [], [with_libtiff=auto])
    found_libtiff=no
    AS_IF([test "$with_libtiff" != no],
        [AC_CHECK_HEADER([tiffio.h],
            [AC_SEARCH_LIBS([TIFFClientOpenExt], [tiff], [found_libtiff=yes])])])
    AS_IF([test "$with_libtiff$found_libtiff" = yesno],
        [AC_MSG_ERROR([--with-libtiff was given, but 4.5 or later was not found (Debian's package is libtiff-dev)])])
    AM_CONDITIONAL([HAVE_LIBTIFF], [test "$found_libtiff" != no])
])
