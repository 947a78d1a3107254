# Dependencies. Each gives NAME_CFLAGS, NAME_LIBS, KVCL_HAVE_NAME as 0 or 1 in config.h and as an
# Automake conditional. A dependency asked for and not found is an error, never a silent "no".

# KVCL_WITH(NAME, required|auto, PKG-SPEC, HEADER, LIBS, FUNCTION, [PLACE])
# --with-NAME=yes|no|auto|PATH. PATH holds include/ and lib/ (an unpacked tarball or wheel will do:
# its .pc files are not read). Without PATH: pkg-config's PKG-SPEC, else the compiler's own paths,
# else PLACE.
AC_DEFUN([KVCL_WITH], [
  m4_pushdef([NAME], m4_toupper([$1]))
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=yes|no|auto|PATH], [$2; "yes": stop if $1 is missing; PATH: a tree with include and lib])],
    [], [AS_CASE([$2], [required], [with_$1=yes], [with_$1=auto])])
  AS_CASE([$2/$with_$1],
    [required/no], [AC_MSG_ERROR([--with-$1=no: KVCL cannot be built without $1])],
    [*//*|*/yes|*/no|*/auto], [],
    [AC_MSG_ERROR([--with-$1=$with_$1: say yes, no, auto or an absolute path])])

  kvcl_have=0
  kvcl_from=no
  AS_CASE([$with_$1],
    [no], [],
    [/*], [
      KVCL_WITH_TREE([$1], NAME, [$with_$1], [$4], [$5])
      KVCL_WITH_TRY([$1], NAME, [$4], [$6], [in $with_$1])
    ],
    [
      m4_ifval([$3], [PKG_CHECK_EXISTS([$3], [
        NAME[]_CFLAGS=`$PKG_CONFIG --cflags "$3"`
        NAME[]_LIBS=`$PKG_CONFIG --libs "$3"`
        KVCL_WITH_TRY([$1], NAME, [$4], [$6], [by pkg-config])
      ])])
      AS_VAR_IF([kvcl_have], [0], [
        NAME[]_CFLAGS=
        NAME[]_LIBS="$5"
        KVCL_WITH_TRY([$1], NAME, [$4], [$6], [on the compiler's paths])
      ])
      m4_ifval([$7], [AS_VAR_IF([kvcl_have], [0], [AS_IF([test -d "$7"], [
        KVCL_WITH_TREE([$1], NAME, [$7], [$4], [$5])
        KVCL_WITH_TRY([$1], NAME, [$4], [$6], [in $7])
      ])])])
    ])
  AS_VAR_IF([kvcl_have], [0], [
    NAME[]_CFLAGS=
    NAME[]_LIBS=
    AS_CASE([$2/$with_$1], [auto/no|auto/auto], [],
      [AC_MSG_ERROR([$1 was asked for (--with-$1=$with_$1, $2) and not found: a program with $4 and $5 does not link. Its place can be given as --with-$1=PATH])])
  ])
  kvcl_from_$1=$kvcl_from
  AC_SUBST(NAME[]_CFLAGS)
  AC_SUBST(NAME[]_LIBS)
  AC_DEFINE_UNQUOTED([KVCL_HAVE_]NAME, [$kvcl_have], [1: built with $1])
  AC_SUBST([KVCL_]NAME, [$kvcl_have])
  AM_CONDITIONAL([KVCL_HAVE_]NAME, [test $kvcl_have = 1])
  m4_popdef([NAME])
])

# KVCL_WITH_TREE(NAME, UPPER, DIR, HEADER, LIBS): flags for a tree with include/ and lib/. The libraries go to the
# linker past libtool, which would read the .la files of a tree that was moved and look where it was built; and as
# files, because a -L would come after the compiler's own and find the system's library of that name first. libtool
# puts such flags before its libraries: --no-as-needed, or the linker drops what nothing has asked for yet.
AC_DEFUN([KVCL_WITH_TREE], [
  kvcl_libdir=
  for kvcl_dir in "$3/lib" "$3/lib64" "$3"/lib/*-linux-gnu; do
    for kvcl_lib in $5; do
      kvcl_base=`AS_ECHO(["$kvcl_lib"]) | $SED 's/^-l//'`
      AS_IF([test -z "$kvcl_libdir" && test -e "$kvcl_dir/lib$kvcl_base.so"], [kvcl_libdir=$kvcl_dir])
    done
  done
  AS_IF([test -n "$kvcl_libdir"], [
    $2_CFLAGS="-I$3/include"
    $2_LIBS="-Wl,--push-state,--no-as-needed"
    for kvcl_lib in $5; do
      kvcl_base=`AS_ECHO(["$kvcl_lib"]) | $SED 's/^-l//'`
      $2_LIBS="$$2_LIBS,$kvcl_libdir/lib$kvcl_base.so"
    done
    $2_LIBS="$$2_LIBS,--pop-state"
    KVCL_LDFLAGS="$KVCL_LDFLAGS -Wl,-rpath,$kvcl_libdir"
  ], [
    $2_CFLAGS=
    $2_LIBS=-lkvcl_found_no_$1
  ])
])

# KVCL_WITH_TRY(NAME, UPPER, HEADER, FUNCTION, WHERE): does it compile and link?
AC_DEFUN([KVCL_WITH_TRY], [
  AC_MSG_CHECKING([for $1 $5])
  kvcl_save_CFLAGS=$CFLAGS
  kvcl_save_LIBS=$LIBS
  CFLAGS="$$2_CFLAGS $CFLAGS"
  LIBS="$$2_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stddef.h>
#include <$3>]], [[void *volatile p = (void *)(size_t)&$4; return p == NULL;]])],
    [kvcl_have=1; kvcl_from="$5"; AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])])
  CFLAGS=$kvcl_save_CFLAGS
  LIBS=$kvcl_save_LIBS
])

# KVCL_PMIX_PLACE: where a rank that meets others by PMIx looks for libpmix besides the loader's own paths
# (src/pmix/pmix_api.c): nothing links it.
AC_DEFUN([KVCL_PMIX_PLACE], [
  kvcl_pmix_libdir=
  AS_CASE([$kvcl_from_pmix],
    ["by pkg-config"], [kvcl_pmix_libdir=`$PKG_CONFIG --variable=libdir pmix`],
    ["in "*], [kvcl_pmix_libdir=`AS_ECHO(["$PMIX_LIBS"]) | $SED 's|.*,\(/.*\)/libpmix\.so.*|\1|'`])
  AC_DEFINE_UNQUOTED([KVCL_PMIX_LIBDIR], ["$kvcl_pmix_libdir"], [where configure found libpmix; empty: nowhere])
])

# KVCL_NEED(NAME, PKG-SPEC, HEADER, PACKAGE): required, found by pkg-config, no switch.
AC_DEFUN([KVCL_NEED], [
  PKG_CHECK_MODULES(m4_toupper([$1]), [$2], [],
    [AC_MSG_ERROR([$2 ($3) was not found; Debian has it in $4])])
])

# KVCL_NEED_HEADER(HEADER, PACKAGE): required, used as a header only.
AC_DEFUN([KVCL_NEED_HEADER], [
  AC_CHECK_HEADER([$1], [], [AC_MSG_ERROR([$1 was not found; Debian has it in $2])])
])
