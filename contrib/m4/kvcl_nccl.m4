# KVCL_WITH_NCCL: collectives on device memory by NCCL. The library is opened when first needed (dlopen), so only the
# types are wanted here: those of nccl.h where it is found beside cuda.h, else our own declarations
# (src/nccl/nccl_stub.h), which "own" takes in any case. After KVCL_WITH_CUDA. Gives KVCL_HAVE_NCCL (0 with
# --without-nccl or --without-cuda), KVCL_HAVE_NCCL_H and NCCL_CFLAGS.
AC_DEFUN([KVCL_WITH_NCCL], [
  AC_ARG_WITH([nccl],
    [AS_HELP_STRING([--with-nccl=yes|no|auto|own|PATH], [auto; collectives by NCCL, compiled against nccl.h where it and
      cuda.h are found. "yes": stop if nccl.h is missing; PATH: a tree with include/nccl.h; "own": against own
      declarations even where there is an nccl.h; "no": without NCCL])],
    [], [with_nccl=auto])
  AS_CASE([$with_nccl], [/*|yes|no|auto|own], [],
    [AC_MSG_ERROR([--with-nccl=$with_nccl: say yes, no, auto, own or an absolute path])])
  NCCL_CFLAGS=
  kvcl_nccl_h=0
  kvcl_from_nccl='own declarations'
  AS_CASE([$with_nccl/$kvcl_cuda_h],
    [no/*], [kvcl_from_nccl=no],
    [own/*|auto/0], [],
    [/*], [KVCL_NCCL_TRY([-isystem $with_nccl/include], [in $with_nccl])],
    [
      KVCL_NCCL_TRY([], [where cuda.h is])
      AS_IF([test $kvcl_nccl_h = 0 && test -d /usr/local/cuda/include],
        [KVCL_NCCL_TRY([-isystem /usr/local/cuda/include], [in /usr/local/cuda])])
    ])
  AS_CASE([$kvcl_nccl_h/$with_nccl], [0/yes|0//*],
    [AC_MSG_ERROR([--with-nccl=$with_nccl: a program with nccl.h (it includes cuda_runtime.h) does not compile])])
  kvcl_nccl=$kvcl_cuda
  AS_IF([test "$with_nccl" = no || test $kvcl_cuda = 0], [kvcl_nccl=0; kvcl_from_nccl=no])
  AC_SUBST([NCCL_CFLAGS])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_NCCL], [$kvcl_nccl], [1: built with collectives by NCCL])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_NCCL_H], [$kvcl_nccl_h], [1: collectives by NCCL are compiled against nccl.h])
  AM_CONDITIONAL([KVCL_HAVE_NCCL], [test $kvcl_nccl = 1])
])

# KVCL_NCCL_TRY(CFLAGS, WHERE)
AC_DEFUN([KVCL_NCCL_TRY], [
  AC_MSG_CHECKING([for nccl.h $2])
  kvcl_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$1 $CUDA_CFLAGS $CPPFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]],
      [[ncclComm_t c = 0; return (c != 0) || (NCCL_VERSION_CODE < 21400);]])],
    [kvcl_nccl_h=1; kvcl_from_nccl="nccl.h $2"; NCCL_CFLAGS="$1"; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
  CPPFLAGS=$kvcl_save_CPPFLAGS
])
