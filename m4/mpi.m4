# AMPTRAIN_MPI: whether ranks can be processes that mpirun or srun starts. Only where it is asked for: MPI's
# library is linked, and takes its time whenever the program starts.
AC_DEFUN([AMPTRAIN_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi], [let mpirun and srun start the ranks (Open MPI, MPICH)])],
        [], [with_mpi=no])
    found_mpi="no (--with-mpi)"
    AS_IF([test "$with_mpi" != no], [
        AC_PATH_PROG([MPICC], [mpicc])
        AS_IF([test -z "$MPICC"], [AC_MSG_ERROR([there is no mpicc (Debian: libopenmpi-dev)])])
        mpi_flags=`$MPICC -show | sed 's/^[[^ ]]* //'`
        mpi_libs=
        for flag in $mpi_flags; do
            AS_CASE([$flag], [-I*], [CPPFLAGS="$CPPFLAGS $flag"],
                [-L* | -l* | -Wl*], [mpi_libs="$mpi_libs $flag"])
        done
        LIBS="$mpi_libs $LIBS"
        AC_MSG_CHECKING([for MPI])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
            [[MPI_Request request; return MPI_Ibarrier(MPI_COMM_WORLD, &request);]])],
            [found_mpi=yes], [AC_MSG_ERROR([mpi.h and libmpi do not work (Debian: libopenmpi-dev)])])
        AC_MSG_RESULT([$found_mpi])
        AC_DEFINE([HAVE_MPI], [1], [Whether mpirun and srun can start ranks.])])
])
