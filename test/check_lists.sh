#!/bin/sh
# Each .c, .h, .cc and .hh of the tree is in its room's list: a file that no local.am names is neither built nor packed.
# A test named in the gate's list must exist, or it would be left out silently.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
bad=0
for f in $(find src include ucx_glue collectives bindings test contrib \
  \( -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' \) | LC_ALL=C sort); do
  dir=${f%/*}
  while [ ! -f "$dir/local.am" ]; do
    dir=${dir%/*}
  done
  rest=${f#"$dir"/}
  # A test program's only source may be implied by its name.
  if ! grep -qE "(%reldir%|%D%|$dir)/(${rest%.*}(\.([ch]|cc|hh))?)([[:space:]]|\\\\|\$)" "$dir/local.am"; then
    echo "$f is not in $dir/local.am"
    bad=1
  fi
done
for t in $(sed 's/#.*//' contrib/ci/gate); do
  if [ ! -e "$t" ] && [ ! -e "$t.c" ]; then
    echo "contrib/ci/gate names $t, which is not there"
    bad=1
  fi
done
# These rooms are read where Check is (test/local.am): only there would EXTRA_DIST pack a file.
if grep -n EXTRA_DIST test/conform/local.am test/sim/local.am test/unit/local.am; then
  echo "dist_check_SCRIPTS, which is packed by any build, must list these"
  bad=1
fi
[ "$bad" = 0 ] || exit 1
echo "every file is listed"
