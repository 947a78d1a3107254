# KVCL_HARDENING: flags that turn a memory error into an ended process or make it harder to use, where compiler and
# linker have them; --disable-hardening leaves all out. KVCL_HARDENED lists what was taken: test/check_hardening.sh
# compares it with the files that were built.
#
# They go to KVCL_CFLAGS and KVCL_LDFLAGS, so that the user's CFLAGS and LDFLAGS win. A build with sanitizers has none:
# they see more. _FORTIFY_SOURCE needs an optimizing CFLAGS, and a debug build has none either.

# KVCL_HARDEN(WORD, CFLAG, LDFLAG): take the flags if a program links with them without a word.
AC_DEFUN([KVCL_HARDEN], [
  AC_MSG_CHECKING([whether $CC links with m4_normalize([$2 $3])])
  kvcl_save_CFLAGS=$CFLAGS
  kvcl_save_LDFLAGS=$LDFLAGS
  CFLAGS="$CFLAGS -Werror $2"
  LDFLAGS="$LDFLAGS $3"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <string.h>
]], [[char text[8]; memset(text, 0, sizeof(text)); return text[1];]])], [kvcl_hard=yes], [kvcl_hard=no])
  CFLAGS=$kvcl_save_CFLAGS
  LDFLAGS=$kvcl_save_LDFLAGS
  AC_MSG_RESULT([$kvcl_hard])
  AS_VAR_IF([kvcl_hard], [yes], [KVCL_HARDENED="$KVCL_HARDENED $1"])
])

AC_DEFUN([KVCL_HARDENING], [
  AC_ARG_ENABLE([hardening],
    [AS_HELP_STRING([--disable-hardening], [no stack protector, _FORTIFY_SOURCE, PIE, full RELRO and CET])],
    [], [enable_hardening=yes])
  KVCL_HARDENED=
  KVCL_PIE_LDFLAGS=
  AS_IF([test "$enable_hardening" != no && test "$enable_sanitize" = no], [
    KVCL_HARDEN([stack], [-fstack-protector-strong], [])
    AS_VAR_IF([kvcl_hard], [yes], [KVCL_CFLAGS="$KVCL_CFLAGS -fstack-protector-strong"])
    # Shadow stacks alone: Linux tracks no indirect branches of programs, and their marks take time (base/hardening.h).
    KVCL_HARDEN([cet], [-fcf-protection=return], [])
    AS_VAR_IF([kvcl_hard], [yes], [KVCL_CFLAGS="$KVCL_CFLAGS -fcf-protection=return"])
    KVCL_HARDEN([now], [], [-Wl,-z,relro -Wl,-z,now])
    AS_VAR_IF([kvcl_hard], [yes], [KVCL_LDFLAGS="$KVCL_LDFLAGS -Wl,-z,relro -Wl,-z,now"])
    KVCL_HARDEN([pie], [-fPIE], [-pie])
    AS_VAR_IF([kvcl_hard], [yes], [
      KVCL_CFLAGS="$KVCL_CFLAGS -fPIE"
      KVCL_PIE_LDFLAGS=-pie
    ])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#ifndef __OPTIMIZE__
#error "CFLAGS do not optimize"
#endif]], [[]])], [kvcl_optimizes=yes], [kvcl_optimizes=no])
    AS_IF([test "$enable_debug" = no && test "$kvcl_optimizes" = yes], [
      KVCL_HARDEN([fortify3], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3], [])
      kvcl_fortify=3
      AS_VAR_IF([kvcl_hard], [no], [
        KVCL_HARDEN([fortify2], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2], [])
        kvcl_fortify=2
      ])
      AS_VAR_IF([kvcl_hard], [yes], [
        KVCL_CFLAGS="$KVCL_CFLAGS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$kvcl_fortify"
      ])
    ])
  ])
  KVCL_HARDENED=`AS_ECHO(["$KVCL_HARDENED"]) | $SED 's/^ //'`
  AC_SUBST([KVCL_HARDENED])
  AC_DEFINE_UNQUOTED([KVCL_HARDENED], ["$KVCL_HARDENED"], [The hardening built in, as words])
  AC_SUBST([KVCL_PIE_LDFLAGS])
])
