# AMPTRAIN_JEMALLOC: jemalloc in place of the C library's malloc; not under sanitizers, which
# bring a malloc of their own. Called after the other libraries: each library found is put before the
# earlier ones, and this one has to be the linker's first.
AC_DEFUN([AMPTRAIN_JEMALLOC], [
    AC_ARG_WITH([jemalloc],
        [AS_HELP_STRING([--without-jemalloc], [keep the system's malloc (the default with sanitizers)])],
        [], [AS_IF([test "$enable_sanitizers" = no], [with_jemalloc=yes], [with_jemalloc=no])])
    AS_IF([test "$with_jemalloc" = no], [found_jemalloc=no], [
        AS_IF([test "$enable_sanitizers" != no],
            [AC_MSG_ERROR([--with-jemalloc and --enable-sanitizers exclude each other])])
        AMPTRAIN_NEED([jemalloc], [jemalloc/jemalloc.h], [malloc_stats_print], [jemalloc],
            [libjemalloc-dev], [JEMALLOC_VERSION])
        AS_IF([test "$found_jemalloc" != no],
            [AC_DEFINE([HAVE_JEMALLOC], [1], [Whether malloc is jemalloc's.])])
    ])
])
