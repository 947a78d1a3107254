# Our compiler flags. They go to KVCL_CFLAGS and KVCL_LDFLAGS (used through AM_CFLAGS, AM_LDFLAGS);
# CFLAGS and LDFLAGS stay the user's.

# KVCL_TRY_CFLAG(FLAG): append FLAG to KVCL_CFLAGS if the compiler takes it without a word.
AC_DEFUN([KVCL_TRY_CFLAG], [
  AS_VAR_PUSHDEF([cache], [kvcl_cv_cflag_$1])
  AC_CACHE_CHECK([whether $CC takes $1], [cache], [
    kvcl_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[]], [[]])],
                      [AS_VAR_SET([cache], [yes])], [AS_VAR_SET([cache], [no])])
    CFLAGS=$kvcl_save_CFLAGS
  ])
  AS_VAR_IF([cache], [yes], [KVCL_CFLAGS="$KVCL_CFLAGS $1"])
  AS_VAR_POPDEF([cache])
])

# KVCL_COMPILER: language, visibility, warnings, --enable-werror, --enable-debug.
AC_DEFUN([KVCL_COMPILER], [
  KVCL_CFLAGS="-std=gnu11 -fvisibility=hidden -pthread"
  KVCL_LDFLAGS="-pthread"
  m4_foreach_w([flag], [-Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wundef
                        -Wvla -Wpointer-arith -Wwrite-strings -fno-common],
               [KVCL_TRY_CFLAG(flag)])

  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [a warning stops the build (for those who work on KVCL)])],
    [], [enable_werror=no])
  AS_VAR_IF([enable_werror], [yes], [KVCL_CFLAGS="$KVCL_CFLAGS -Werror"])

  AC_ARG_ENABLE([debug],
    [AS_HELP_STRING([--enable-debug], [object checks, lock assertions and the debug log levels])],
    [], [enable_debug=no])
  AS_VAR_IF([enable_debug], [yes], [kvcl_debug=1], [kvcl_debug=0])
  AC_DEFINE_UNQUOTED([KVCL_ENABLE_DEBUG], [$kvcl_debug], [1: object checks and lock assertions])

  AC_SUBST([KVCL_CFLAGS])
  AC_SUBST([KVCL_LDFLAGS])
])
