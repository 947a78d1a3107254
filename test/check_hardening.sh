#!/bin/sh
# The library and the tools have the hardening that configure chose (TEST_HARDENED, contrib/m4/kvcl_hardening.m4): stack
# protector, full RELRO, position-independent tools, checked C library calls, and marks for shadow stacks (CET).
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
hardened=${TEST_HARDENED-}
[ -n "$hardened" ] || { echo "SKIP: this build has no hardening: a sanitizer, or --disable-hardening"; exit 77; }
command -v readelf >/dev/null 2>&1 || { echo "SKIP: no readelf (Debian: binutils)"; exit 77; }
bad=0
# must FILE READELF-OPTION PATTERN WHAT
must() {
  readelf -W "$2" "$1" | grep -q -- "$3" || { echo "$(basename "$1"): no $4"; bad=$((bad + 1)); }
}
library=$top_builddir/.libs/libkvcl.so
tools=
for tool in info perf replay serve top; do
  file=$top_builddir/src/tools/.libs/kvcl_$tool
  [ -e "$file" ] || file=$top_builddir/src/tools/kvcl_$tool
  [ ! -e "$file" ] || tools="$tools $file"
done
for word in $hardened; do
  for file in $library $tools; do
    case $word in
      stack) must "$file" --dyn-syms '__stack_chk_fail' 'stack protector' ;;
      now)
        must "$file" -d '(FLAGS).*BIND_NOW\|(BIND_NOW)\|(FLAGS_1).*NOW' 'BIND_NOW'
        must "$file" -l 'GNU_RELRO' 'RELRO'
        ;;
      pie) [ "$file" = "$library" ] || must "$file" -h 'Type: *DYN' 'position-independent code' ;;
      fortify?) must "$file" --dyn-syms '__[a-z]*_chk@' 'checked calls of the C library' ;;
      cet) # in the objects: a linked file keeps the mark only where the C library has it
        [ "$file" = "$library" ] || continue
        for object in "$top_builddir"/src/xfer/.libs/libkvcl_core_la-*.o; do
          must "$object" -n 'x86 feature: .*SHSTK' 'mark of shadow stacks'
        done
        ;;
      *) echo "no test of \"$word\""; bad=$((bad + 1)) ;;
    esac
  done
done
[ "$bad" = 0 ] || exit 1
echo "$hardened: the library and$(for t in $tools; do printf ' %s' "$(basename "$t")"; done)"
