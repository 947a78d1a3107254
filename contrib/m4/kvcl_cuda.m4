# KVCL_WITH_CUDA: device memory. The driver is opened when first needed (dlopen), so only the types are wanted here:
# those of the toolkit's cuda.h where it is found, else our own declarations (src/device/cuda_stub.h), which "own" takes
# in any case. Gives KVCL_HAVE_CUDA (0 with --without-cuda alone), KVCL_HAVE_CUDA_H and CUDA_CFLAGS.
AC_DEFUN([KVCL_WITH_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=yes|no|auto|own|PATH], [auto; device memory, compiled against cuda.h where it is found.
      "yes": stop if cuda.h is missing; PATH: a tree with include/cuda.h; "own": against own declarations even where
      there is a cuda.h; "no": without device memory])],
    [], [with_cuda=auto])
  AS_CASE([$with_cuda], [/*|yes|no|auto|own], [],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: say yes, no, auto, own or an absolute path])])
  CUDA_CFLAGS=
  kvcl_cuda_h=0
  kvcl_from_cuda='own declarations'
  AS_CASE([$with_cuda],
    [no], [kvcl_from_cuda=no],
    [own], [],
    [/*], [KVCL_CUDA_TRY([-isystem $with_cuda/include], [in $with_cuda])],
    [
      KVCL_CUDA_TRY([], [on the compiler's paths])
      AS_IF([test $kvcl_cuda_h = 0 && test -d /usr/local/cuda/include],
        [KVCL_CUDA_TRY([-isystem /usr/local/cuda/include], [in /usr/local/cuda])])
    ])
  AS_CASE([$kvcl_cuda_h/$with_cuda], [0/yes|0//*],
    [AC_MSG_ERROR([cuda was asked for (--with-cuda=$with_cuda) and a program with cuda.h does not compile])])
  AS_IF([test "$with_cuda" = no], [kvcl_cuda=0], [kvcl_cuda=1])
  AC_SUBST([CUDA_CFLAGS])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_CUDA], [$kvcl_cuda], [1: built with device memory])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_CUDA_H], [$kvcl_cuda_h], [1: device memory is compiled against the toolkit's cuda.h])
  AM_CONDITIONAL([KVCL_HAVE_CUDA], [test $kvcl_cuda = 1])
])

# KVCL_CUDA_TRY(CFLAGS, WHERE)
AC_DEFUN([KVCL_CUDA_TRY], [
  AC_MSG_CHECKING([for cuda.h $2])
  kvcl_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$1 $CPPFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cuda.h>]], [[CUstream s = 0; return (s != 0) || (CUDA_VERSION < 11000);]])],
    [kvcl_cuda_h=1; kvcl_from_cuda="cuda.h $2"; CUDA_CFLAGS="$1"; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
  CPPFLAGS=$kvcl_save_CPPFLAGS
])
