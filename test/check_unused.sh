#!/bin/sh
# Every hidden function and variable has a user. A name that the library's objects define and the map hides is used by
# another source file, or by its own file and a test. Names in `looks` are only for tests: checkers of invariants,
# faults, false devices, state that a test reads. Names in `planned` wait for their users: rails, and the views of
# members.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
NM=${NM:-nm}
looks='kvcl_boot_server_stats kvcl_cuda_set_driver kvcl_dir_table_check kvcl_evict_check kvcl_log_set_handler
       kvcl_loop_breaks kvcl_loop_set_faults kvcl_mempolicy_at kvcl_seglog_check kvcl_slabs_check kvcl_slots_check_all
       kvcl_tenants_used kvcl_topo_open_synthetic kvcl_topo_open_text'
planned='kvcl_topo_address_numa kvcl_topo_device_place kvcl_topo_distance
         kvcl_topo_distance_name kvcl_topo_nearest kvcl_topo_node_place kvcl_views_leave'
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

$NM -P --defined-only "$top_builddir/.libs/libkvcl_core.a" |
  awk '($2 ~ /^[TDBR]$/) && ($1 ~ /^kvcl_/) { print $1 }' | LC_ALL=C sort -u > "$tmp/defined"
sed -n 's/^[[:space:]]*\(kvcl_[A-Za-z0-9_]*\);$/\1/p' "$top_srcdir/src/kvcl.map" | LC_ALL=C sort -u > "$tmp/public"
$NM -P -u "$top_builddir/.libs/libkvcl_core.a" | awk 'NF > 1 { print $1 }' | LC_ALL=C sort -u > "$tmp/wanted"
LC_ALL=C comm -23 "$tmp/defined" "$tmp/public" > "$tmp/hidden"
LC_ALL=C comm -23 "$tmp/hidden" "$tmp/wanted" > "$tmp/suspects"
cd "$top_srcdir"

# For names that no other object uses: the number of source files that contain them, tests aside (a tool, a benchmark or
# a part that is not built here may use them), the number of uses, and the number of tests. Comments and declarations do
# not count.
find src ucx_glue collectives bindings contrib test \( -name '*.c' -o -name '*.h' -o -name '*.cu' \) -print |
  LC_ALL=C sort > "$tmp/files"
awk -v looks="$looks $planned" '
  function note(name) {
    if (is_test) { tests[name] = 1; return }
    if (FILENAME ~ /\.h$/ && !inline && !macro) return # a declaration
    ++uses[name]
    if (last[name] != FILENAME) { ++files[name]; last[name] = FILENAME }
  }
  BEGIN { n = split(looks, l); for (i = 1; i <= n; ++i) allowed[l[i]] = 1 }
  FILENAME ~ /\/suspects$/ { suspect[$1] = 1; next }
  FNR == 1 { is_test = (FILENAME ~ /^test\//); comment = 0; inline = 0; macro = 0; goes_on = 0 }
  {
    line = $0
    if (comment) { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", line)
    if (sub(/\/\*.*$/, "", line)) comment = 1
    if (line ~ /^static inline/) inline = 1
    macro = (line ~ /^[ \t]*#[ \t]*define/) || goes_on
    goes_on = macro && (line ~ /\\$/)
    while (match(line, /kvcl_[A-Za-z0-9_]+/)) {
      name = substr(line, RSTART, RLENGTH)
      line = substr(line, RSTART + RLENGTH)
      if (name in suspect) note(name)
    }
    if (line ~ /^}/) inline = 0
  }
  END {
    for (name in suspect) {
      if (name in allowed || files[name] > 1) continue
      if (uses[name] < 2) { print name ": nobody uses it" (name in tests ? " but tests" : ""); ++bad }
      else if (!(name in tests)) { print name ": used in its own file only, and not static"; ++bad }
    }
    exit bad > 0
  }' "$tmp/suspects" $(cat "$tmp/files") | LC_ALL=C sort > "$tmp/said" || :
if [ -s "$tmp/said" ]; then
  cat "$tmp/said"
  echo "Delete it, make it static, or, if a test has to look, name it in test/check_unused.sh."
  exit 1
fi
echo "$(wc -l < "$tmp/hidden") hidden names are used"
