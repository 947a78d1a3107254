#!/bin/sh
# Circles of object files: a file is above those that define its undefined symbols, and no file should be above itself.
# core/rooms.c, the registry of all rooms, is left out. A circle of up to `goal` files may be one idea. Larger ones are
# listed in `today`, largest first, and may only shrink.
set -eu
: "${top_srcdir:?}" "${top_builddir:?}"
NM=${NM:-nm}
goal=4
today=''

said=$(mktemp)
trap 'rm -f "$said"' EXIT

bad=0
$NM -A -P -g "$top_builddir/.libs/libkvcl_core.a" | awk -v goal="$goal" -v today="$today" '
  # The strongly connected components, by Tarjan.
  function visit(v,    w, i, n, next_of) {
    index_of[v] = low[v] = ++clock
    stack[++depth] = v
    on_stack[v] = 1
    n = split(uses[v], next_of, " ")
    for (i = 1; i <= n; ++i) {
      w = next_of[i]
      if (!(w in index_of)) { visit(w); if (low[w] < low[v]) low[v] = low[w] }
      else if (on_stack[w] && index_of[w] < low[v]) low[v] = index_of[w]
    }
    if (low[v] == index_of[v]) component(v)
  }
  function component(v,    w, n, names) {
    do { w = stack[depth--]; on_stack[w] = 0; names[++n] = w } while (w != v)
    if (n < 2) return
    circle[++circles] = n
    sort(names, n)
    for (i = 1; i <= n; ++i) members[circles] = members[circles] " " names[i] ".c"
  }
  function sort(a, n,    i, j, x) {
    for (i = 2; i <= n; ++i) {
      x = a[i]
      for (j = i - 1; j > 0 && a[j] > x; --j) a[j + 1] = a[j]
      a[j + 1] = x
    }
  }
  {
    object = $1
    sub(/^.*\[/, "", object); sub(/\]:$/, "", object); sub(/\.l?o$/, "", object); sub(/^.*_la-/, "", object)
    if (object == "rooms") next
    objects[object] = seen = 1
    if ($3 == "U" || $3 == "w") wants[object] = wants[object] " " $2
    else owner[$2] = object
  }
  END {
    for (o in objects) {
      n = split(wants[o], names, " ")
      for (i = 1; i <= n; ++i)
        if ((names[i] in owner) && owner[names[i]] != o && !((o, owner[names[i]]) in edge)) {
          edge[o, owner[names[i]]] = 1
          uses[o] = uses[o] " " owner[names[i]]
        }
    }
    for (o in objects) if (!(o in index_of)) visit(o)
    for (i = 2; i <= circles; ++i) { # largest first
      x = circle[i]; m = members[i]
      for (j = i - 1; j > 0 && circle[j] < x; --j) { circle[j + 1] = circle[j]; members[j + 1] = members[j] }
      circle[j + 1] = x; members[j + 1] = m
    }
    n = split(today, limit, " ")
    for (i = 1; i <= circles; ++i) {
      most = (i <= n && limit[i] > goal) ? limit[i] : goal
      if (circle[i] > most) { printf "TOO LARGE, at most %d: ", most; bad = 1 }
      else if (i <= n && circle[i] < limit[i]) shrunk = 1
      printf "a circle of %d files:%s\n", circle[i], members[i]
    }
    for (; i <= n; ++i) shrunk = 1
    if (shrunk) {
      printf "smaller than test/check_circles.sh knows; now write there: today=\047"
      for (i = 1; i <= circles && circle[i] > goal; ++i) printf "%s%d", (i > 1) ? " " : "", circle[i]
      print "\047"
    }
    if (!seen) { print "no objects"; bad = 1 }
    exit bad
  }' > "$said" || bad=1
fold -s -w 120 "$said"
[ "$bad" = 0 ] || {
  echo "A file that calls upwards takes a function it is given, or its caller does the call."
  exit 1
}
echo "no circle is larger than it was"
