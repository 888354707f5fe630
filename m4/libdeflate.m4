# AMPTRAIN_LIBDEFLATE: libdeflate where it is found, which reads PNG files faster than zlib does.
# --with-libdeflate makes its absence an error.
AC_DEFUN([AMPTRAIN_LIBDEFLATE], [
    AC_ARG_WITH([libdeflate],
        [AS_HELP_STRING([--without-libdeflate], [read PNG files with zlib alone])],
        [], [with_libdeflate=auto])
    found_libdeflate=no
    AS_IF([test "$with_libdeflate" != no],
        [AC_CHECK_HEADER([libdeflate.h],
            [AC_SEARCH_LIBS([libdeflate_zlib_decompress_ex], [deflate],
                [found_libdeflate=yes
                 AMPTRAIN_EXPAND([found_libdeflate], [libdeflate.h], [LIBDEFLATE_VERSION_STRING])])],
            [],
            [#include <stdio.h>])])
    AS_IF([test "$with_libdeflate$found_libdeflate" = yesno],
        [AC_MSG_ERROR([--with-libdeflate was given, but it was not found (Debian's package is libdeflate-dev)])])
    AM_CONDITIONAL([HAVE_LIBDEFLATE], [test "$found_libdeflate" != no])
])
