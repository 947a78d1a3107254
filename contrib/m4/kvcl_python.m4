# KVCL_PYTHON: --with-python=yes|no|auto|PROGRAM. PYTHON (settable) is the interpreter that the bindings are tested with.
# Without a word of the user's, the system's python3 is taken when it has its headers and pytest, else the first python3
# on PATH. The extension module keeps to Python's limited API, so one file serves CPython 3.9 and all later versions; a
# Python without the GIL has no limited API.
AC_DEFUN([KVCL_PYTHON], [
  AC_ARG_VAR([PYTHON], [the Python interpreter the bindings are built for])
  AC_ARG_WITH([python],
    [AS_HELP_STRING([--with-python=yes|no|auto|PROGRAM],
                    [build the Python bindings; "yes": stop if headers are missing; default: auto])],
    [], [with_python=auto])
  AS_CASE([$with_python], [/*], [PYTHON=$with_python; with_python=yes],
    [yes|no|auto], [],
    [AC_MSG_ERROR([--with-python=$with_python: say yes, no, auto or an absolute path])])

  kvcl_have=0
  AS_VAR_IF([with_python], [no], [], [
    AS_IF([test -z "$PYTHON"], [
      AS_IF([KVCL_PYTHON_HAS([/usr/bin/python3], [, pytest])], [PYTHON=/usr/bin/python3],
            [AC_PATH_PROG([PYTHON], [python3])])
    ])
    AC_MSG_CHECKING([for headers of ${PYTHON:-python3}, 3.9 or newer])
    AS_IF([test -n "$PYTHON" && KVCL_PYTHON_HAS(["$PYTHON"])], [kvcl_have=1])
    AS_IF([test $kvcl_have = 1], [
      PYTHON_CFLAGS=`"$PYTHON" -c 'import sysconfig; print("-I" + sysconfig.get_path("include"))'`
      PYTHON_EXT_SUFFIX=`"$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'`
      PYTHON_DIR=`"$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info@<:@:2@:>@)'`
      AS_IF(["$PYTHON" -c 'import sys, sysconfig
sys.exit(sys.implementation.name != "cpython" or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))'], [
        PYTHON_CFLAGS="$PYTHON_CFLAGS -DPy_LIMITED_API=0x03090000"
        PYTHON_EXT_SUFFIX=.abi3.so
      ])
      AC_MSG_RESULT([yes])
    ], [
      AC_MSG_RESULT([no])
      AS_VAR_IF([with_python], [yes],
        [AC_MSG_ERROR([no Python.h for ${PYTHON:-python3}, or it is older than 3.9; Debian has the headers in python3-dev. Say --with-python=no to build without])])
    ])
  ])
  AC_SUBST([PYTHON_CFLAGS])
  AC_SUBST([PYTHON_EXT_SUFFIX])
  AC_SUBST([pythondir], ['${libdir}/'"${PYTHON_DIR:-python3}/site-packages"])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_PYTHON], [$kvcl_have], [1: built with the Python bindings])
  AM_CONDITIONAL([KVCL_HAVE_PYTHON], [test $kvcl_have = 1])
  AS_IF([test $kvcl_have = 1], [kvcl_from_python="$PYTHON"], [kvcl_from_python=no])
])

# KVCL_PYTHON_HAS(PROGRAM, [, MODULE]): shell condition, true when PROGRAM is 3.9 or newer and has Python.h and MODULE.
m4_define([KVCL_PYTHON_HAS],
  [$1 -c 'import os, sys, sysconfig$2; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h")); sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1])
