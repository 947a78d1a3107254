# KVCL_PYTHON: --with-python=yes|no|auto|PROGRAM. PYTHON (settable) is the interpreter of the bindings
# and their tests. Without a word of the user's, the system's python3 is taken when it has its headers
# and pytest, else the first python3 on PATH.
AC_DEFUN([KVCL_PYTHON], [
  AC_ARG_VAR([PYTHON], [the Python interpreter the bindings are built for])
  AC_ARG_WITH([python],
    [AS_HELP_STRING([--with-python=yes|no|auto|PROGRAM],
                    [build the Python bindings; "yes": stop if headers or pytest are missing; default: auto])],
    [], [with_python=auto])
  AS_CASE([$with_python], [/*], [PYTHON=$with_python; with_python=yes],
    [yes|no|auto], [],
    [AC_MSG_ERROR([--with-python=$with_python: say yes, no, auto or an absolute path])])

  kvcl_have=0
  AS_VAR_IF([with_python], [no], [], [
    AS_IF([test -z "$PYTHON"], [
      AS_IF([KVCL_PYTHON_HAS([/usr/bin/python3])], [PYTHON=/usr/bin/python3],
            [AC_PATH_PROG([PYTHON], [python3])])
    ])
    AC_MSG_CHECKING([for headers and pytest of ${PYTHON:-python3}])
    AS_IF([test -n "$PYTHON" && KVCL_PYTHON_HAS(["$PYTHON"])], [kvcl_have=1])
    AS_IF([test $kvcl_have = 1], [
      PYTHON_CFLAGS=`"$PYTHON" -c 'import sysconfig; print("-I" + sysconfig.get_path("include"))'`
      PYTHON_EXT_SUFFIX=`"$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'`
      PYTHON_DIR=`"$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info@<:@:2@:>@)'`
      AC_MSG_RESULT([yes])
    ], [
      AC_MSG_RESULT([no])
      AS_VAR_IF([with_python], [yes],
        [AC_MSG_ERROR([no Python.h or no pytest for ${PYTHON:-python3}; Debian has them in python3-dev and python3-pytest. Say --with-python=no to build without])])
    ])
  ])
  AC_SUBST([PYTHON_CFLAGS])
  AC_SUBST([PYTHON_EXT_SUFFIX])
  AC_SUBST([pythondir], ['${libdir}/'"${PYTHON_DIR:-python3}/site-packages"])
  AC_DEFINE_UNQUOTED([KVCL_HAVE_PYTHON], [$kvcl_have], [1: built with the Python bindings])
  AM_CONDITIONAL([KVCL_HAVE_PYTHON], [test $kvcl_have = 1])
  AS_IF([test $kvcl_have = 1], [kvcl_from_python="$PYTHON"], [kvcl_from_python=no])
])

# KVCL_PYTHON_HAS(PROGRAM): shell condition, true when PROGRAM runs and has Python.h and pytest.
m4_define([KVCL_PYTHON_HAS],
  [$1 -c 'import os, sysconfig, pytest; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' >/dev/null 2>&1])
