# Sourced by contrib/check and by its own test: running a build's tests, counting them, running phases.
# shellcheck shell=bash
#
# A failed test is a failure. It runs once more with the same seed, alone, only to show the reader whether it always
# fails; it still counts as failed. A test is in the gate when contrib/ci/gate names it; the night runs all.

# choose_seed: one seed for all random tests of this run, so that a second run is the same test.
choose_seed() {
  : "${TEST_SEED:=$(date +%s)}"
  export TEST_SEED
}

# all_tests DIR: the build's tests.
all_tests() {
  printf 'include Makefile\nprint-tests:\n\t@echo $(TESTS)\n' |
    make -C "$1" -s --no-print-directory -f - print-tests | tr -s ' ' '\n'
}

# in_ring: of the tests on stdin, one per line, those of the ring $TEST_RING.
in_ring() {
  if [ "$TEST_RING" = night ]; then
    cat
  else
    grep -Fxf <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "${gate_list:-$top/contrib/ci/gate}") || :
  fi
}

# tests DIR ROOM...: the build's tests of this ring whose names begin with test/ROOM, or (../NAME) with NAME; without
# ROOM, all of the ring.
tests() {
  local dir=$1 all room
  shift
  all=$(all_tests "$dir") || return
  all=$(in_ring <<<"$all")
  if [ $# = 0 ]; then
    tr '\n' ' ' <<<"$all"
    return
  fi
  for room in "$@"; do
    case $room in
      ../*) grep "^${room#../}" <<<"$all" || : ;;
      *) grep "^test/$room" <<<"$all" || : ;;
    esac
  done | tr '\n' ' '
}

# programs TEST...: the test programs that these need: the tests that are no scripts, and the programs that scripts
# and what they source from this tree name. A script names one where its path stands whole, after $top_builddir/ or after
# a variable that is set to a folder there; where it makes the name at run time, a line that begins with ":" does.
programs() {
  local t p
  for t in "$@"; do
    case $t in
      *.sh)
        for p in $(script_text "$t" | grep -oE '\$top_builddir/(test|contrib)/[A-Za-z0-9_/]+'); do
          p=${p#*/}
          [ ! -e "$top/$p.c" ] || echo "$p"
        done
        ;;
      *) echo "$t" ;;
    esac
  done | sort -u | tr '\n' ' '
}

# script_text SCRIPT: its lines, and those of what it sources from this tree, with variables of folders of the build
# resolved.
script_text() {
  local text folders
  text=$(cd "$top" && sed -nE -e 's,^\. "\$(top_srcdir|\{top_srcdir:\?\})/([^"]*)"$,\2,p' \
    -e 's,^\. "\$\(dirname "\$0"\)/([^"]*)"$,'"${1%/*}"'/\1,p' "$1" | xargs cat "$1")
  folders=$(sed -nE 's,^([a-z_]+)=(\$top_builddir/(test|contrib)/[A-Za-z0-9_/]+).*,s|\\$\1/|\2/|g,p' <<<"$text")
  sed "$folders" <<<"$text"
}

# night_only DIR: names the build's tests that the gate leaves out.
night_only() {
  local left
  [ "$TEST_RING" = gate ] || return 0
  left=$(all_tests "$1" | grep -vFxf <(all_tests "$1" | in_ring) | tr '\n' ' ') || return 0
  echo "in the night only: $left"
}

# lanes: how many tests run at a time, CI_LANES if set. Tests of deaths and deadlines mostly wait, so the night runs two
# per core.
lanes() {
  case $TEST_RING in
    night) echo "${CI_LANES:-$((2 * jobs))}" ;;
    *) echo "${CI_LANES:-$jobs}" ;;
  esac
}

# make_check DIR TEST...: build the test programs, then run the tests, as many at a time as lanes() says. With
# $only_needed set only the test programs that TEST... need are built. With form=gate the tests run in their short form.
make_check() {
  local dir=$1 log=$1/make-check.out status=0 failed only=()
  shift
  [ -z "${only_needed-}" ] || only=(check_PROGRAMS="$(programs "$@")")
  make -C "$dir" --no-print-directory -j"$jobs" "${only[@]}" check-programs || return
  find "$dir" -name '*.trs' -delete # of an earlier run
  TEST_RING=${form:-$TEST_RING} make -C "$dir" --no-print-directory -j"$(lanes)" "${only[@]}" check \
    TESTS="$*" >"$log" 2>&1 || status=$?
  cat "$log"
  slowest "$dir"
  [ "$status" != 0 ] || return 0
  failed=$(sed -n 's/^\(FAIL\|ERROR\|XPASS\): \([^ ]*\)$/\2/p' "$log" | grep / | sort -u | tr '\n' ' ')
  [ -z "$failed" ] || again "$dir" "$failed" "${only[@]}"
  grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 # the last such line counts
  return 1
}

# again DIR "TEST..." MAKE-ARGUMENT...: run the failed tests once more, with the same seed, and report how each ended.
# The logs of the first run are kept in DIR/failed.
again() {
  local dir=$1 failed=$2 t log verdict
  shift 2
  rm -rf "$dir/failed"
  for t in $failed; do
    log=${t%.sh}.log
    mkdir -p "$dir/failed/${t%/*}"
    cp "$dir/$log" "$dir/failed/$log" || :
    verdict=passed
    TEST_RING=${form:-$TEST_RING} make -C "$dir" --no-print-directory "$@" check TESTS="$t" >"$dir/again.out" 2>&1 ||
      verdict=failed
    echo "again, same seed: $verdict: $t (TEST_SEED=$TEST_SEED; its first log: $dir/failed/$log)"
  done
}

# slowest DIR: the tests that took longest (each log ends with its times).
slowest() {
  echo "slowest: $(cd "$1" && find . -name '*.trs' | sed 's/trs$/log/' | xargs grep -H '^took ' |
    sed -n 's|^\./\(.*\)\.log:took \([0-9.]*\) s.*|\2 \1|p' | sort -rn | head -n 8 |
    awk '{ printf "%s%s %d s", sep, $2, $1; sep = ", " }')"
}

# counts LOG STATUS: the counts at the end of a phase's log; a phase without counts is one test.
counts() {
  local line
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$1" | tail -n 1)
  case $2 in
    77) echo 0 0 1 ;;
    0) [ -n "$line" ] && echo "$line" | awk '{ print $1, $3, $5 }' || echo 1 0 0 ;;
    *) [ -n "$line" ] && echo "$line" | awk '{ print $1, ($3 > 0 ? $3 : 1), $5 }' || echo 0 1 0 ;;
  esac
}

# The part of a phase's log for a reader of CI's output: skips always, the end of the log after a failure.
report() {
  local log=$1 rc=$2
  grep -E '^(SKIP|again, same seed|slowest|in the night only): ' "$log" | sed 's/^/   /' || :
  if [ "$rc" != 0 ] && [ "$rc" != 77 ]; then
    echo "-- from $log"
    if grep -q '^---- the end of ' "$log"; then
      sed -n '/^---- the end of /,$p' "$log" | head -n 400
    else
      tail -n 80 "$log"
    fi
    echo "--"
  fi
}

# run_phases PHASE...: each by "$self --run-phase PHASE"; $ci holds the logs. Those that $beside names run beside the
# others, one after another, and are reported at the end.
run_phases() {
  local phase rc start passed=0 failed=0 skipped=0 side=''
  start_beside "$@"
  for phase in "$@"; do
    case " ${beside-} " in *" $phase "*) continue ;; esac
    start=$SECONDS
    rc=0
    say "$phase: $(about "$phase")"
    "$self" --run-phase "$phase" >"$ci/$phase.log" 2>&1 </dev/null || rc=$?
    phase_ended "$phase" "$rc" $((SECONDS - start))
  done
  [ -z "$side" ] || wait "$side" || :
  for phase in "$@"; do
    case " ${beside-} " in
      *" $phase "*)
        read -r rc start <<<"$(cat "$ci/$phase.ended" || echo 1 0)"
        phase_ended "$phase" "$rc" "$start"
        ;;
    esac
  done
  trap - EXIT
  say "all: $SECONDS s"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# start_beside PHASE...: starts those of $beside in a process group of their own, which ends with this script; $side is
# its id. Each writes its status and its seconds to $ci/PHASE.ended.
start_beside() {
  local phase list=''
  for phase in "$@"; do
    case " ${beside-} " in
      *" $phase "*)
        say "$phase, beside the others: $(about "$phase")"
        rm -f "$ci/$phase.ended"
        list="$list $phase"
        ;;
    esac
  done
  [ -n "$list" ] || return 0
  # shellcheck disable=SC2016
  setsid bash -c 'ci=$1 self=$2
    shift 2
    for phase; do
      rc=0 SECONDS=0
      "$self" --run-phase "$phase" >"$ci/$phase.log" 2>&1 </dev/null || rc=$?
      echo $rc $SECONDS >"$ci/$phase.ended"
    done' beside "$ci" "$self" $list &
  side=$!
  trap 'kill -- -"$side" 2>/dev/null || :' EXIT
  trap 'exit 1' HUP INT TERM
}

# phase_ended PHASE STATUS SECONDS: reports it, and adds to the counts
phase_ended() {
  local p f s
  read -r p f s <<<"$(counts "$ci/$1.log" "$2")"
  report "$ci/$1.log" "$2"
  say "$1: $p passed, $f failed, $s skipped; $3 s"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
