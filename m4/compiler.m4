# AMPTRAIN_COMPILER_DEFAULTS: before AC_PROG_CC: what CFLAGS are if the user has not set any.
AC_DEFUN([AMPTRAIN_COMPILER_DEFAULTS], [
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
            [build with the compiler's sanitizers: address,undefined (the default list) or thread;
             keeps the system's malloc, and the tests run OpenMP with one thread])],
        [], [enable_sanitizers=no])
    AC_ARG_ENABLE([fuzzing],
        [AS_HELP_STRING([--enable-fuzzing],
            [build tests/fuzz/ with clang's libFuzzer and sanitizers, for `make fuzz'; not a build to use])],
        [], [enable_fuzzing=no])
    AC_ARG_ENABLE([coverage],
        [AS_HELP_STRING([--enable-coverage],
            [count which lines run, with gcc, for `make coverage'; not a build to use])],
        [], [enable_coverage=no])
    AS_IF([test "$enable_fuzzing" != no],
        [AS_IF([test -z "${CC+set}"], [CC=clang])
         AS_IF([test "$enable_sanitizers" = no], [enable_sanitizers=yes])])
    AS_CASE([$enable_sanitizers],
        [yes], [enable_sanitizers=address,undefined])
    AS_IF([test -z "${CFLAGS+set}"],
        [AS_IF([test "$enable_sanitizers$enable_coverage" = nono], [CFLAGS="-O3 -g"], [CFLAGS="-O1 -g"])])
])

# AMPTRAIN_COMPILER_FLAGS: after AC_PROG_CC: BUILD_CFLAGS and BUILD_LDFLAGS, which belong to the
# project and stay whatever the user's CFLAGS are.
# None of them lets the compiler change a result: fused multiply-adds are off, so that code
# gives the same bits whether or not the target has them, and errno and traps are what nobody reads.
AC_DEFUN([AMPTRAIN_COMPILER_FLAGS], [
    # Everything may become a part of the shared library, which exports what amptrain.h marks.
    BUILD_CFLAGS="-fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-trapping-math"
    BUILD_LDFLAGS=-Wl,--as-needed

    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [treat warnings as errors (default: in git checkouts)])],
        [], [AS_IF([test -e "$srcdir/.git"], [enable_werror=yes], [enable_werror=no])])
    AS_IF([test "$enable_werror" = yes], [BUILD_CFLAGS="$BUILD_CFLAGS -Werror"])
    # clang warns where it did not vectorise a loop that asks for it: at -O1 that is every one.
    AS_IF([$CC --version 2>/dev/null | grep clang >/dev/null],
        [BUILD_CFLAGS="$BUILD_CFLAGS -Wno-pass-failed"])

    AC_ARG_ENABLE([native],
        [AS_HELP_STRING([--enable-native],
            [compile for this machine's CPU alone (the program may not start on others)])],
        [], [enable_native=no])
    AS_IF([test "$enable_native" = yes], [BUILD_CFLAGS="$BUILD_CFLAGS -march=native"])

    # Threads count together: what has run once has run.
    AS_IF([test "$enable_coverage" != no], [
        BUILD_CFLAGS="$BUILD_CFLAGS --coverage -fprofile-update=atomic"
        BUILD_LDFLAGS="$BUILD_LDFLAGS --coverage"
    ])

    # Everything counts where it goes, for libFuzzer to see; its main function comes with the targets alone.
    FUZZ_LDFLAGS=
    AS_IF([test "$enable_fuzzing" != no],
        [enable_sanitizers=$enable_sanitizers,fuzzer-no-link
         FUZZ_LDFLAGS=-fsanitize=fuzzer])
    AC_SUBST([FUZZ_LDFLAGS])
    AM_CONDITIONAL([FUZZING], [test "$enable_fuzzing" != no])

    AS_IF([test "$enable_sanitizers" != no], [
        sanitize="-fsanitize=$enable_sanitizers -fno-omit-frame-pointer -fno-sanitize-recover=all"
        AC_MSG_CHECKING([whether $CC takes -fsanitize=$enable_sanitizers])
        amptrain_save=$CFLAGS
        CFLAGS="$CFLAGS $sanitize"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers: $CC cannot build such programs])])
        CFLAGS=$amptrain_save
        BUILD_CFLAGS="$BUILD_CFLAGS $sanitize"
        BUILD_LDFLAGS="$BUILD_LDFLAGS $sanitize"
    ])
    AC_SUBST([BUILD_CFLAGS])
    AC_SUBST([BUILD_LDFLAGS])
    AM_CONDITIONAL([SANITIZERS], [test "$enable_sanitizers" != no])
])
