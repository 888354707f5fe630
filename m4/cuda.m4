# AMPTRAIN_CUDA: nvcc, the CUDA runtime, cuBLAS and cuDNN, used whenever all of them are found.
# --with-cuda makes their absence an error; --without-cuda builds for the CPU alone.
# Sets NVCC, NVCCFLAGS, CUDA_GENCODE, CUDA_CPPFLAGS, CUDA_LDFLAGS, CUDA_LIBS and the conditional
# HAVE_CUDA. No driver library is linked, so that the program starts on machines without a GPU.
AC_DEFUN([AMPTRAIN_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit under DIR (default: where nvcc is, if it is)])],
        [], [with_cuda=auto])
    AC_ARG_WITH([cudnn],
        [AS_HELP_STRING([--with-cudnn=DIR], [cuDNN installed under DIR (default: as CUDA, or the system's)])],
        [], [with_cudnn=yes])
    AC_ARG_WITH([nvjpeg],
        [AS_HELP_STRING([--with-nvjpeg=DIR], [nvJPEG installed under DIR (default: as CUDA, or the system's)])],
        [], [with_nvjpeg=yes])
    AC_ARG_WITH([cuda-arch],
        [AS_HELP_STRING([--with-cuda-arch=LIST],
            [compute capabilities to compile for, as 80,90 (default: 75,80,86,89,90 as far as nvcc
             knows them); GPUs newer than the last one compile its PTX when the program starts])],
        [], [with_cuda_arch=default])
    AC_ARG_VAR([NVCC], [CUDA compiler])
    AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])

    found_cuda=no found_cudnn=no cuda_arch=none cuda_trouble=
    AS_CASE([$with_cuda],
        [no], [cuda_trouble="not wanted"],
        [auto|yes], [AMPTRAIN_CUDA_FIND([$PATH:$CUDA_HOME/bin:/usr/local/cuda/bin])],
        [AMPTRAIN_CUDA_FIND([$with_cuda/bin])])
    AS_IF([test -n "$cuda_trouble"], [
        AS_CASE([$with_cuda],
            [no|auto], [],
            [AC_MSG_ERROR([--with-cuda was given, but $cuda_trouble])])
        CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_LIBS= CUDA_GENCODE=
        found_cuda="no ($cuda_trouble)"
    ], [
        AC_DEFINE([HAVE_CUDA], [1], [Whether the CUDA engine is built.])
        test -n "$NVCCFLAGS" || NVCCFLAGS="-O3 -std=c++17 --extended-lambda -Xfatbin -compress-all"
    ])
    AC_SUBST([CUDA_CPPFLAGS])
    AC_SUBST([CUDA_LDFLAGS])
    AC_SUBST([CUDA_LIBS])
    AC_SUBST([CUDA_GENCODE])
    AM_CONDITIONAL([HAVE_CUDA], [test -z "$cuda_trouble"])
    found_nvjpeg=no have_nvjpeg=no
    found_nccl=no
    AS_IF([test -z "$cuda_trouble"], [AMPTRAIN_CUPTI
        AMPTRAIN_NVJPEG
        AMPTRAIN_NCCL])
    AM_CONDITIONAL([HAVE_NVJPEG], [test $have_nvjpeg = yes])
    AM_CONDITIONAL([HAVE_CUPTI], [test "$found_cupti" = yes])
])

# AMPTRAIN_CUDA_FIND(PATH): looks for nvcc in PATH and for the rest beside it; `cuda_trouble` says
# what is wrong, and stays empty when all is there and works.
AC_DEFUN([AMPTRAIN_CUDA_FIND], [
    AC_PATH_PROG([NVCC], [nvcc], [], [$1])
    AS_IF([test -z "$NVCC"], [cuda_trouble="nvcc was not found"], [
        cuda_dir=$(dirname "$(dirname "$NVCC")")
        AS_IF([test "$cuda_dir" != /usr],
            [CUDA_CPPFLAGS=-I$cuda_dir/include
             AMPTRAIN_LIBRARY_FOLDER([CUDA_LDFLAGS], [$cuda_dir/lib64 $cuda_dir/lib], [cudart])])
        AS_IF([test "$with_cudnn" != yes],
            [ls "$with_cudnn"/include/cudnn.h "$with_cudnn"/include/*/cudnn.h 2>/dev/null | grep -q . ||
                 AC_MSG_ERROR([--with-cudnn was given, but cuDNN is not in $with_cudnn])
             CUDA_CPPFLAGS="-I$with_cudnn/include $CUDA_CPPFLAGS"
             AMPTRAIN_LIBRARY_FOLDER([CUDA_LDFLAGS], [$with_cudnn/lib64 $with_cudnn/lib], [cudnn])])
        # The static runtime, where it is installed, spares users one library to have.
        AS_IF([test -f "$cuda_dir/lib64/libcudart_static.a" || test -f "$cuda_dir/lib/libcudart_static.a"],
            [cuda_runtime="-lcudart_static -lrt -ldl"], [cuda_runtime=-lcudart])
        CUDA_LIBS="$cuda_runtime -lstdc++"
        AMPTRAIN_CUDA_ARCH
        AMPTRAIN_CUDA_TRY
    ])
])

# AMPTRAIN_CUDA_ARCH: CUDA_GENCODE: code for every capability asked for, and PTX of the newest.
AC_DEFUN([AMPTRAIN_CUDA_ARCH], [
    cuda_known=$($NVCC --list-gpu-code 2>/dev/null | sed -n 's/^sm_//p' | tr '\n' ' ')
    AS_IF([test "$with_cuda_arch" = default], [
        cuda_arch=
        for number in 75 80 86 89 90; do
            AS_CASE([" $cuda_known "], [*" $number "*], [cuda_arch="$cuda_arch $number"])
        done
        AS_IF([test -z "$cuda_arch"], [cuda_arch=$cuda_known])
    ], [cuda_arch=$(echo "$with_cuda_arch" | sed 's/sm_//g; s/\.//g; s/@<:@,;@:>@/ /g')])
    cuda_arch=$(echo $(printf "%s\n" $cuda_arch | sort -n))
    AC_DEFINE_UNQUOTED([CUDA_BUILT_FOR], ["$cuda_arch"], [Compute capabilities with code for them.])
    CUDA_GENCODE= cuda_last=
    for number in $cuda_arch; do
        AS_CASE([" $cuda_known "], [*" $number "*], [],
            [AC_MSG_ERROR([--with-cuda-arch: $NVCC does not know '$number'; it knows: $cuda_known])])
        CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$number,code=sm_$number"
        cuda_last=$number
    done
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cuda_last,code=compute_$cuda_last"
])

# AMPTRAIN_CUDA_TRY: compiles a kernel with nvcc, and links a host program with all the libraries. amptrain
# opens cuDNN and cuBLASLt at run time (src/device/cuda_libraries.h).
AC_DEFUN([AMPTRAIN_CUDA_TRY], [
    AC_MSG_CHECKING([whether $NVCC works])
    echo '__global__ void kernel(float *x) { x@<:@threadIdx.x@:>@ *= 2; }' >conftest.cu
    echo "$NVCC $CUDA_GENCODE -c conftest.cu" >&AS_MESSAGE_LOG_FD
    AS_IF([$NVCC $CUDA_GENCODE -c conftest.cu -o conftest_cuda.o >&AS_MESSAGE_LOG_FD 2>&1],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         cuda_trouble="$NVCC cannot compile a kernel (it needs g++; config.log has its words)"])
    rm -f conftest.cu conftest_cuda.o

    AS_IF([test -z "$cuda_trouble"], [
        amptrain_save="$CPPFLAGS|$LDFLAGS|$LIBS"
        CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
        LIBS="-lcudnn -lcublasLt $CUDA_LIBS $LIBS"
        AC_MSG_CHECKING([for cuDNN and cuBLAS])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <cuda_runtime.h>
#include <cublasLt.h>
#include <cudnn.h>
]], [[
cudnnHandle_t cudnn;
cublasLtHandle_t blas;
return cudaFree(0) || cudnnCreate(&cudnn) || cublasLtCreate(&blas);
]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             cuda_trouble="cuDNN or cuBLAS was not found beside $NVCC (--with-cudnn=DIR names its place)"])
        AS_IF([test -z "$cuda_trouble"], [
            AMPTRAIN_EXPAND([cuda_number], [cuda_runtime.h], [CUDART_VERSION])
            found_cuda="$((cuda_number / 1000)).$((cuda_number % 1000 / 10)) ($NVCC)"
            AMPTRAIN_EXPAND([cudnn_major], [cudnn.h], [CUDNN_MAJOR])
            AMPTRAIN_EXPAND([cudnn_minor], [cudnn.h], [CUDNN_MINOR])
            AMPTRAIN_EXPAND([cudnn_patch], [cudnn.h], [CUDNN_PATCHLEVEL])
            found_cudnn=$cudnn_major.$cudnn_minor.$cudnn_patch
        ])
        CPPFLAGS=${amptrain_save%%|*} LIBS=${amptrain_save##*|}
        LDFLAGS=${amptrain_save#*|} LDFLAGS=${LDFLAGS%%|*}
    ])
])

# AMPTRAIN_NVJPEG: whether images can be decoded on the GPU, by a library that is opened at run time. Adds
# to CUDA_CPPFLAGS and CUDA_LDFLAGS.
AC_DEFUN([AMPTRAIN_NVJPEG], [
    amptrain_cuda="$CUDA_CPPFLAGS|$CUDA_LDFLAGS"
    AS_CASE([$with_nvjpeg], [yes|no], [],
        [CUDA_CPPFLAGS="-I$with_nvjpeg/include $CUDA_CPPFLAGS"
         AMPTRAIN_LIBRARY_FOLDER([CUDA_LDFLAGS], [$with_nvjpeg/lib64 $with_nvjpeg/lib], [nvjpeg])])
    amptrain_save="$CPPFLAGS|$LDFLAGS|$LIBS"
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LDFLAGS="$LDFLAGS $CUDA_LDFLAGS" LIBS="-lnvjpeg $CUDA_LIBS $LIBS"
    AC_MSG_CHECKING([for nvJPEG])
    AS_IF([test "$with_nvjpeg" != no],
        [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nvjpeg.h>]], [[
nvjpegHandle_t handle;
unsigned engines, cores;
return nvjpegCreateExV2(NVJPEG_BACKEND_HARDWARE, 0, 0, 0, &handle) ||
       nvjpegGetHardwareDecoderInfo(handle, &engines, &cores);]])],
            [have_nvjpeg=yes])])
    AC_MSG_RESULT([$have_nvjpeg])
    AS_IF([test $have_nvjpeg = yes], [
        AMPTRAIN_EXPAND([nvjpeg_major], [nvjpeg.h], [NVJPEG_VER_MAJOR])
        AMPTRAIN_EXPAND([nvjpeg_minor], [nvjpeg.h], [NVJPEG_VER_MINOR])
        AMPTRAIN_EXPAND([nvjpeg_patch], [nvjpeg.h], [NVJPEG_VER_PATCH])
        found_nvjpeg=$nvjpeg_major.$nvjpeg_minor.$nvjpeg_patch
        AC_DEFINE([HAVE_NVJPEG], [1], [Whether JPEG images can be decoded on the GPU.])
    ], [
        AS_CASE([$with_nvjpeg], [yes|no], [],
            [AC_MSG_ERROR([--with-nvjpeg was given, but nvJPEG of CUDA 11.8 or later is not in $with_nvjpeg])])
        AS_IF([test "$with_nvjpeg" != no],
            [found_nvjpeg="no (NVIDIA's package is libnvjpeg-dev, with CUDA's version behind)"])
        CUDA_CPPFLAGS=${amptrain_cuda%%|*} CUDA_LDFLAGS=${amptrain_cuda#*|}
    ])
    CPPFLAGS=${amptrain_save%%|*} LIBS=${amptrain_save##*|}
    LDFLAGS=${amptrain_save#*|} LDFLAGS=${LDFLAGS%%|*}
])

# AMPTRAIN_NCCL: whether ranks can exchange gradients by NCCL, whose library is loaded when it is needed.
AC_DEFUN([AMPTRAIN_NCCL], [
    amptrain_save=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    AC_MSG_CHECKING([for NCCL])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]], [[
ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
config.maxCTAs = 8;
return (int)sizeof &ncclCommInitRankConfig;]])],
        [AMPTRAIN_EXPAND([nccl_major], [nccl.h], [NCCL_MAJOR])
         AMPTRAIN_EXPAND([nccl_minor], [nccl.h], [NCCL_MINOR])
         AMPTRAIN_EXPAND([nccl_patch], [nccl.h], [NCCL_PATCH])
         found_nccl=$nccl_major.$nccl_minor.$nccl_patch
         AC_DEFINE([HAVE_NCCL], [1], [Whether several GPUs can exchange gradients.])
         AC_MSG_RESULT([yes])],
        [found_nccl="no (Debian's package is libnccl-dev)"
         AC_MSG_RESULT([no])])
    CPPFLAGS=$amptrain_save
])

# AMPTRAIN_CUPTI: whether bench/cuda_trace.so can be built.
AC_DEFUN([AMPTRAIN_CUPTI], [
    amptrain_save="$CPPFLAGS|$LDFLAGS|$LIBS"
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LDFLAGS="$LDFLAGS $CUDA_LDFLAGS" LIBS=-lcupti
    AC_MSG_CHECKING([for CUPTI])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cupti.h>]], [[
CUpti_ActivityGraphTrace2 trace;
return (int)sizeof trace + (int)cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);]])],
        [found_cupti=yes], [found_cupti=no])
    AC_MSG_RESULT([$found_cupti])
    CPPFLAGS=${amptrain_save%%|*} LIBS=${amptrain_save##*|}
    LDFLAGS=${amptrain_save#*|} LDFLAGS=${LDFLAGS%%|*}
])
