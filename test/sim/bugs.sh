# Sourced by sim_view_breaks.sh and sim_job_breaks.sh: copies of the library's machines, each with one deliberate bug,
# which a simulator must detect; and the seed that detects it must replay to the same sentence.
# shellcheck shell=sh
: "${top_srcdir:?}" "${top_builddir:?}" "${CC:=cc}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
cd "$top_srcdir" || exit 1

# object SOURCE OBJECT
object() {
  # shellcheck disable=SC2086
  $CC -std=gnu11 -O1 -w -I"$top_builddir" -I"$top_srcdir/src" -I"$top_srcdir/include" -I"$top_srcdir/test/sim" \
    -I"$top_srcdir" -I"$(dirname "$1")" -c -o "$2" "$1"
}

fail() {
  echo "$1"
  failed=$((failed + 1))
}

# good FILE: the object of a file without a bug.
good() {
  echo "$tmp/$(echo "$1" | tr / _).o"
}

# bugs FOLDER WORD: makes each bug of the list on stdin whose name contains the word, after the script has made the
# objects of all files. A line of the list: a name, a file in the folder, a sed command that makes the bug. The script's
# function run_sim runs $tmp/sim until it fails, with its output in $tmp/out.
bugs() {
  while IFS='|' read -r name file edit; do
    case $name in *$2*) ;; *) continue ;; esac
    sed "$edit" "$1$file" >"$tmp/bug.c"
    if cmp -s "$tmp/bug.c" "$1$file"; then
      fail "NOT MADE: $name: $file has changed: mend this list"
      continue
    fi
    object "$tmp/bug.c" "$tmp/bug"
    mv "$(good "$1$file")" "$tmp/kept"
    # shellcheck disable=SC2086
    $CC -o "$tmp/sim" "$tmp"/*.o -x none "$tmp/bug"
    mv "$tmp/kept" "$(good "$1$file")"
    status=0
    run_sim || status=$?
    line=$(sed -n 1p "$tmp/out")
    seed=$(printf '%s\n' "$line" | sed -n 's/^seed \([0-9]*\) step [0-9]*: [A-Z][A-Za-z]*: .*/\1/p')
    if [ "$status" -ne 1 ] || [ -z "$seed" ]; then
      fail "NOT CAUGHT: $name (exit status $status)"
    elif [ "$("$tmp/sim" --seeds 1 --seed "$seed" | sed -n 1p)" != "$line" ]; then
      fail "NOT REPLAYED: $name: '$line'"
    else
      echo "caught $name: $line"
      passed=$((passed + 1))
    fi
  done
  echo "$passed passed, $failed failed, 0 skipped"
  [ "$failed" -eq 0 ]
}
