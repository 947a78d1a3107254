# KVCL_SANITIZERS: --enable-sanitize=LIST, LIST as the compiler's -fsanitize= takes it.
# "fuzzer" in LIST (clang) builds the fuzz targets with libFuzzer's main in place of ours.
AC_DEFUN([KVCL_SANITIZERS], [
  AC_ARG_ENABLE([sanitize],
    [AS_HELP_STRING([--enable-sanitize=LIST],
                    [build with sanitizers: "address,undefined", "thread"; with clang also "fuzzer"])],
    [], [enable_sanitize=no])
  AS_CASE([$enable_sanitize],
    [yes], [enable_sanitize=address,undefined],
    [''], [enable_sanitize=no])

  kvcl_libfuzzer=no
  kvcl_sanitize_link=$enable_sanitize
  AS_CASE([,$enable_sanitize,],
    [*,fuzzer,*], [
      kvcl_libfuzzer=yes
      kvcl_sanitize_link=`AS_ECHO(["$enable_sanitize"]) | $SED 's/fuzzer/fuzzer-no-link/'`
    ])

  AS_VAR_IF([enable_sanitize], [no], [], [
    kvcl_san="-fsanitize=$kvcl_sanitize_link -fno-omit-frame-pointer"
    AS_CASE([,$enable_sanitize,], [*,undefined,*], [kvcl_san="$kvcl_san -fno-sanitize-recover=undefined"])
    AC_MSG_CHECKING([whether $CC links with $kvcl_san])
    kvcl_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $kvcl_san"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[]], [[]])], [AC_MSG_RESULT([yes])], [
      AC_MSG_RESULT([no])
      AC_MSG_ERROR([--enable-sanitize=$enable_sanitize: $CC cannot link with it])
    ])
    CFLAGS=$kvcl_save_CFLAGS
    KVCL_CFLAGS="$KVCL_CFLAGS $kvcl_san"
    KVCL_LDFLAGS="$KVCL_LDFLAGS $kvcl_san"
  ])

  # A sanitized shared object has undefined references to the run-time library (with clang): no -z defs then.
  AS_VAR_IF([enable_sanitize], [no], [KVCL_SOFLAGS="-Wl,-z,defs"], [KVCL_SOFLAGS=])
  AC_SUBST([KVCL_SOFLAGS])
  AC_SUBST([KVCL_SANITIZE], [$enable_sanitize])
  AC_DEFINE_UNQUOTED([KVCL_SANITIZE], ["$enable_sanitize"], [The sanitizers built in, or "no"])
  AM_CONDITIONAL([KVCL_LIBFUZZER], [test "$kvcl_libfuzzer" = yes])
])
