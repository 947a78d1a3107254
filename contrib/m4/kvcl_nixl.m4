# KVCL_NIXL: --with-nixl=no|DIR, DIR a checkout of NIXL or a folder that it was installed to. Its headers are for the
# plugin of bindings/nixl, which is C++20; nothing else of KVCL needs them, or a C++ compiler (CXX, CXXFLAGS).
AC_DEFUN([KVCL_NIXL], [
  AC_ARG_WITH([nixl],
    [AS_HELP_STRING([--with-nixl=no|DIR],
                    [build the NIXL plugin with the headers of NIXL's backend interface in DIR, a checkout (tag 1.4.0) or an installation; default: no])],
    [], [with_nixl=no])
  AC_ARG_VAR([CXX], [the C++ compiler of the NIXL plugin])
  AC_ARG_VAR([CXXFLAGS], [its flags])
  AS_CASE([$with_nixl], [no|/*], [],
    [AC_MSG_ERROR([--with-nixl=$with_nixl: say no, or the absolute path of a checkout or an installation of NIXL])])

  kvcl_have=0
  NIXL_CXXFLAGS=
  AS_VAR_IF([with_nixl], [no], [], [
    AC_CHECK_PROGS([CXX], [g++ clang++ c++])
    AS_IF([test -z "$CXX"], [AC_MSG_ERROR([--with-nixl=$with_nixl needs a C++ compiler (Debian: g++)])])
    : ${CXXFLAGS=-g -O2}
    AS_IF([test -d "$with_nixl/src/api/cpp"],
      [kvcl_nixl_dirs="$with_nixl/src/api/cpp $with_nixl/src/utils $with_nixl/src/core/telemetry"],
      [kvcl_nixl_dirs="$with_nixl/include $with_nixl/include/utils"])
    kvcl_nixl_system=
    for kvcl_dir in $kvcl_nixl_dirs; do
      kvcl_nixl_system="$kvcl_nixl_system -isystem $kvcl_dir"
    done
    AC_MSG_CHECKING([for version 1 of NIXL's plugin interface in $with_nixl])
    cat >conftest.cc <<'_KVCL'
#include "backend/backend_plugin.h"
static_assert(NIXL_PLUGIN_API_VERSION == 1, "another version");
_KVCL
    AS_IF([$CXX -std=c++20 -fsyntax-only -I$srcdir/bindings/nixl/shim $kvcl_nixl_system conftest.cc >&AS_MESSAGE_LOG_FD 2>&1],
      [kvcl_have=1; AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([--with-nixl=$with_nixl: backend/backend_plugin.h does not compile, or is of another version; config.log has the compiler's words])])
    rm -f conftest.cc
    NIXL_CXXFLAGS="-std=c++20 -fPIC -fvisibility=hidden -pthread -Wall -Wextra $kvcl_nixl_system"
    AS_VAR_IF([enable_werror], [yes], [NIXL_CXXFLAGS="$NIXL_CXXFLAGS -Werror"])
    AS_VAR_IF([enable_sanitize], [no], [], [NIXL_CXXFLAGS="$NIXL_CXXFLAGS $kvcl_san"])
  ])
  AC_SUBST([NIXL_CXXFLAGS])
  AM_CONDITIONAL([KVCL_HAVE_NIXL], [test $kvcl_have = 1])
  AS_IF([test $kvcl_have = 1], [kvcl_from_nixl="in $with_nixl"], [kvcl_from_nixl=no])
])
