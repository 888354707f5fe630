# AMPTRAIN_NEED(NAME, HEADER, FUNCTION, LIBRARIES, DEBIAN-PACKAGE, VERSION-MACRO)
# A library that the program cannot do without. What is missing is collected in `missing`, so that
# AMPTRAIN_NEED_ALL can name everything at once; found_NAME is what the summary shows.
AC_DEFUN([AMPTRAIN_NEED], [
    AC_CHECK_HEADER([$2],
        [AC_SEARCH_LIBS([$3], [$4], [found_$1=yes], [found_$1=no])],
        [found_$1=no],
        [#include <stdio.h>])
    AS_IF([test $found_$1 = no],
        [missing="$missing $5"],
        [AMPTRAIN_EXPAND([found_$1], [$2], [$6])])
])

# AMPTRAIN_NEED_ALL: stops with the names of the Debian packages that are missing, if any are.
AC_DEFUN([AMPTRAIN_NEED_ALL], [
    AS_IF([test -n "$missing"],
        [AC_MSG_ERROR([these packages (by their Debian names) are missing:$missing
        as root: apt-get install$missing
config.log has the details.])])
])

# AMPTRAIN_EXPAND(VARIABLE, HEADER, MACRO): what the preprocessor makes of MACRO, without quotes;
# leaves VARIABLE alone if the header does not define it.
AC_DEFUN([AMPTRAIN_EXPAND], [
    AC_REQUIRE([AC_PROG_CPP])
    m4_ifnblank([$3], [
        AC_LANG_CONFTEST([AC_LANG_SOURCE([[
#include <stdio.h>
#include <$2>
#ifdef $3
amptrain_expands_to $3
#endif
]])])
        amptrain_text=$(eval "$ac_cpp -P conftest.$ac_ext" 2>/dev/null |
            sed -n 's/^amptrain_expands_to *//p' | tr -d '" ' | sed 's/-0-g.*//')
        rm -f conftest.$ac_ext
        test -z "$amptrain_text" || $1=$amptrain_text
    ])
])
