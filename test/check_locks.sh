#!/bin/sh
# Lock rules are checked: a function whose comment begins with "Lock held" or "Engine lock held" calls
# kvcl_assert_locked() on its first lines, and only the engine touches the engine's mutex itself. Rooms below the
# engine, and rooms that have only locks of their own, are left out.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
# Their arguments do not lead to the context.
exempt='kvcl_rpcs_stop kvcl_copy_stop kvcl_describe_transfer kvcl_explain_access kvcl_explain_transfer kvcl_peer_unwait'
bad=0

files=$(find src collectives -name '*.[ch]' |
  grep -vE '^src/(base|boot|topo|tier|tools|dir|policy|device|loop|weave)/' | LC_ALL=C sort)
# shellcheck disable=SC2086 # words are meant
awk -v exempt="$exempt" '
  function name_of(sig,    name) { # name of the function declared or defined; "" if none
    if (sig ~ /^[ \t]*typedef/ || !match(sig, /[A-Za-z_0-9]+\(/)) return ""
    name = substr(sig, RSTART, RLENGTH - 1)
    if (index(substr(sig, 1, RSTART), "(*")) return ""
    return name
  }
  function want(name) {
    if (name == "" || (name in exempted)) return
    if (FILENAME ~ /\.h$/) everywhere[name] = FILENAME
    else here[FILENAME, name] = 1
  }
  function comment_ends(text) {
    sub(/^[ \t*]+/, "", text)
    if (before !~ /^[ \t]*$/) { # after a declaration
      if (FILENAME ~ /\.h$/ && text ~ /^([Ll]|Engine l)ock held/) want(name_of(before))
    } else if (text ~ /^(L|Engine l)ock held/) {
      pending = 1; sig = ""
    }
  }
  BEGIN { n = split(exempt, words, " "); for (i = 1; i <= n; ++i) exempted[words[i]] = 1 }
  FNR == 1 { inside = pending = open = 0; current = "" }

  # First pass: functions with such a comment.
  pass == 1 {
    line = $0
    if (inside) {
      said = said " " line
      if (line ~ /\*\//) { inside = 0; comment_ends(said) }
      next
    }
    if (match(line, /\/\*/)) {
      before = substr(line, 1, RSTART - 1)
      said = substr(line, RSTART + 2)
      if (said ~ /\*\//) comment_ends(said)
      else inside = 1
      next
    }
    if (pending) {
      sig = sig " " line
      if (line ~ /^[ \t]*$/) pending = 0
      else if (sig ~ /[;{]/) { want(name_of(sig)); pending = 0 }
    }
    next
  }

  # Second pass: functions with the assertion.
  /^[a-z]/ && !/;$/ { name = name_of($0); if (name != "") current = name }
  /^\{/ { open = FNR; asserts = 0 }
  open && FNR - open <= 30 && /kvcl_assert_locked\(/ { asserts = 1 }
  /^\}/ && open {
    if ((FILENAME, current) in here || current in everywhere) {
      ++n_found
      if (!asserts) {
        printf "%s:%d: %s says that the lock is held, and does not assert it\n", FILENAME, open, current
        ++n_bad
      }
    }
    open = 0
  }
  END {
    if (n_found < 100) {
      printf "%d functions say that the lock is held: this rule has not found them\n", n_found
      ++n_bad
    } else if (!n_bad) printf "%d functions assert that the lock is held\n", n_found
    exit n_bad > 0
  }
' pass=1 $files pass=2 $files || bad=1

found=$(grep -nE 'pthread_(mutex|cond)_[a-z]+\([^;]*engine(\.|->)(lock|cond)' $files |
  grep -vE '^src/core/engine(_lock|_start)?\.c:' || :)
[ -z "$found" ] || { echo "the engine's mutex is the engine's:
$found"; bad=1; }
[ "$bad" = 0 ]
