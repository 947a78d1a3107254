# KVCL_SUMMARY: what was chosen, at the end of configure.
AC_DEFUN([KVCL_SUMMARY], [
AC_MSG_NOTICE([
  KVCL $PACKAGE_VERSION
    ucx        $kvcl_from_ucx
    hwloc      $kvcl_from_hwloc
    pmix       $kvcl_from_pmix
    cuda       $kvcl_from_cuda
    nccl       $kvcl_from_nccl
    uring      $kvcl_from_uring
    microhttpd $kvcl_from_microhttpd
    check      $kvcl_from_check
    python     $kvcl_from_python
    nixl       $kvcl_from_nixl
    sanitize   $enable_sanitize
    hardening  ${KVCL_HARDENED:-none}
    debug      $enable_debug, werror $enable_werror
    CC         $CC
    CFLAGS     $CFLAGS
])])
