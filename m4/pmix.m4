# AMPTRAIN_PMIX: whether mpirun or srun can start the ranks of one host in a build without MPI. The library is
# loaded when it is needed.
AC_DEFUN([AMPTRAIN_PMIX], [
    found_pmix=no
    pmix_flags=`pkg-config --cflags pmix 2>/dev/null`
    old_cppflags=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $pmix_flags"
    AC_CHECK_HEADER([pmix.h], [
        found_pmix=yes
        AC_DEFINE([HAVE_PMIX], [1], [Whether there is pmix.h.])],
        [CPPFLAGS=$old_cppflags])
])
