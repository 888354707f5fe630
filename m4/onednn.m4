# AMPTRAIN_ONEDNN: oneDNN, 2.x or 3.x, from the system or from --with-onednn=DIR.
AC_DEFUN([AMPTRAIN_ONEDNN], [
    AC_ARG_WITH([onednn],
        [AS_HELP_STRING([--with-onednn=DIR], [oneDNN (2.x or 3.x) installed under DIR])],
        [], [with_onednn=yes])
    AS_CASE([$with_onednn],
        [no], [AC_MSG_ERROR([convolutions on the CPU are oneDNN's: it cannot be left out])],
        [yes], [],
        [test -f "$with_onednn/include/oneapi/dnnl/dnnl.h" ||
             AC_MSG_ERROR([--with-onednn was given, but oneDNN is not in $with_onednn])
         CPPFLAGS="$CPPFLAGS -I$with_onednn/include"
         AMPTRAIN_LIBRARY_FOLDER([LDFLAGS], [$with_onednn/lib64 $with_onednn/lib], [dnnl])])
    AMPTRAIN_NEED([onednn], [oneapi/dnnl/dnnl.h], [dnnl_engine_create], [dnnl], [libdnnl-dev], [])
    AS_IF([test $found_onednn = yes], [
        onednn_major= onednn_minor= onednn_patch=
        AMPTRAIN_EXPAND([onednn_major], [oneapi/dnnl/dnnl_version.h], [DNNL_VERSION_MAJOR])
        AMPTRAIN_EXPAND([onednn_minor], [oneapi/dnnl/dnnl_version.h], [DNNL_VERSION_MINOR])
        AMPTRAIN_EXPAND([onednn_patch], [oneapi/dnnl/dnnl_version.h], [DNNL_VERSION_PATCH])
        found_onednn=$onednn_major.$onednn_minor.$onednn_patch
        AS_CASE([$onednn_major],
            [2|3], [],
            [AC_MSG_ERROR([oneDNN is $found_onednn: amptrain knows 2.x and 3.x (--with-onednn=DIR names another)])])
    ])
])

# AMPTRAIN_LIBRARY_FOLDER(VARIABLE, FOLDERS, LIBRARY): adds -L and a run path to VARIABLE for the
# first of FOLDERS that has LIBRARY.
AC_DEFUN([AMPTRAIN_LIBRARY_FOLDER], [
    for folder in $2; do
        AS_IF([test -f "$folder/lib$3.so" || test -f "$folder/lib$3.a"],
            [$1="$$1 -L$folder -Wl,-rpath,$folder"; break])
    done
])
