#!/bin/sh
# The counting of contrib/check, over a made-up build: a test that fails counts as failed though it passes the second
# time; the second run has the same seed; tests that contrib/ci/gate does not name run only at night.
set -eu
: "${top_srcdir:?}"
command -v bash >/dev/null || { echo "SKIP: no bash"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

is() {
  what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: $what"
    sed 's/^/   /' "$tmp/out"
  fi
}
says() { grep -qE -- "$1" "$tmp/out"; }
ends_with() { [ "$(tail -n 1 "$tmp/out")" = "$1" ]; }
same() { [ "$(sort -u "$1" | wc -l)" = 1 ]; }

# Automake's harness in a few lines: a .log, a .trs and a line for each test, then the counts.
mkdir -p "$tmp/build/test/unit"
cat >"$tmp/build/Makefile" <<MAKE
TESTS = test/unit/good.sh test/unit/once.sh test/unit/never.sh test/unit/unsteady.sh
check-programs:
check:
	@for t in \$(TESTS); do \\
	  b=\$\${t%.sh} r=PASS; sh \$\$t >\$\$b.log 2>&1 || r=FAIL; \\
	  echo ":test-result: \$\$r" >\$\$b.trs; echo "\$\$r: \$\$t"; \\
	done
	@'$top_srcdir/contrib/ci/count-tests' --trs \$(TESTS:.sh=.trs)
MAKE
echo 'exit 0' >"$tmp/build/test/unit/good.sh"
echo 'echo "$TEST_SEED" >>once.seeds; [ -e once ] || { : >once; exit 1; }' >"$tmp/build/test/unit/once.sh"
echo 'echo "$TEST_SEED" >>never.seeds; exit 1' >"$tmp/build/test/unit/never.sh"
echo 'exit 1' >"$tmp/build/test/unit/unsteady.sh"
printf '%s # comment\n' test/unit/good.sh test/unit/once.sh test/unit/never.sh >"$tmp/gate"

cat >"$tmp/check" <<SH
set -eu
. '$top_srcdir/contrib/ci/lib.sh'
. '$top_srcdir/contrib/ci/tests.sh'
ci=$tmp self=$tmp/phase gate_list=$tmp/gate jobs=1
about() { echo "a phase"; }
case \$1 in
  --run-phase)
    [ \$2 != long ] || { echo \$\$ >'$tmp/long'; exec sleep 600; }
    [ \$2 != fails ] || { echo '1 passed, 4 failed, 0 skipped'; exit 1; }
    TESTS_NOW=\$(tests '$tmp/build' \${ROOMS-})
    night_only '$tmp/build'
    make_check '$tmp/build' \${NAMED-\$TESTS_NOW}
    ;;
  *)
    choose_seed
    run_phases "\$@"
    ;;
esac
SH
printf '#!/bin/sh\nexec bash "%s" "$@"\n' "$tmp/check" >"$tmp/phase"
chmod +x "$tmp/phase"

# run STATUS VARIABLE=VALUE...
run() {
  want=$1 rc=0
  shift
  rm -f "$tmp"/build/once "$tmp"/build/*.seeds
  # shellcheck disable=SC2086
  env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TEST_SEED TEST_RING=gate "$@" bash "$tmp/check" ${fakes-fake} \
    >"$tmp/out" 2>&1 || rc=$?
  [ $rc = "$want" ]
}

is "a run with failures fails" run 1
is "what failed counts though it passed then" ends_with '1 passed, 2 failed, 0 skipped'
is "how the second run of one ended is said" says '^ *again, same seed: passed: test/unit/once.sh '
is "and of the other" says '^ *again, same seed: failed: test/unit/never.sh '
is "what passed does not run again" eval '! says "again.*good"'
is "both runs have one seed" same "$tmp/build/once.seeds"
is "two runs took place" [ "$(wc -l <"$tmp/build/once.seeds")" = 2 ]
is "the first log is kept" [ -e "$tmp/build/failed/test/unit/once.log" ]
is "the seed is a number" grep -qE '^[0-9]+$' "$tmp/build/once.seeds"
is "what is in no list is said to run at night only" says '^ *in the night only: test/unit/unsteady.sh *$'
is "a given seed is kept" run 1 TEST_SEED=7
is "a given seed reaches the tests" [ "$(sort -u "$tmp/build/never.seeds")" = 7 ]
is "all tests run at night" run 1 TEST_RING=night
is "all tests count at night" ends_with '1 passed, 3 failed, 0 skipped'
is "nothing but good tests passes" run 0 NAMED=test/unit/good.sh
is "nothing but good tests counts so" ends_with '1 passed, 0 failed, 0 skipped'
bash -c ". '$top_srcdir/contrib/ci/lib.sh'; . '$top_srcdir/contrib/ci/tests.sh'
  programs test/unit/run_policies.sh test/unit/test_topo" >"$tmp/out"
is "what is built for some tests is what their scripts start, too" \
  [ "$(cat "$tmp/out")" = 'contrib/bench/policies/policies test/unit/test_topo ' ]
bash -c ". '$top_srcdir/contrib/ci/lib.sh'; . '$top_srcdir/contrib/ci/tests.sh'
  programs test/guest/run_one.sh" >"$tmp/out"
is "what a file names that a script sources is built, too" \
  eval 'says " test/conform/conform_rma " && says " test/multi/values "'
bash -c ". '$top_srcdir/contrib/ci/lib.sh'; . '$top_srcdir/contrib/ci/tests.sh'
  programs test/multi/run_nemesis_joins.sh" >"$tmp/out"
is "what a file beside the script names that it sources is built, too" \
  [ "$(cat "$tmp/out")" = 'contrib/nemesis/nemesis_rank ' ]
bash -c ". '$top_srcdir/contrib/ci/lib.sh'; . '$top_srcdir/contrib/ci/tests.sh'
  programs test/multi/run_views.sh test/multi/run_coll.sh" >"$tmp/out"
is "what a script names by a folder that a variable has is built, too" \
  eval 'says "^test/multi/coll test/multi/coll_data .* test/multi/slots test/multi/views $"'
mkdir "$tmp/top"
: >"$tmp/top/Makefile.in"
cat >"$tmp/top/configure" <<SH
#!/bin/sh
# While it runs no other process may build the folder; it ends once both want to.
mkdir '$tmp/running' || exit 1
! flock -n -s .lock true || exit 1
echo configured >>'$tmp/configured'
until [ "\$(wc -l <'$tmp/wanted')" = 2 ]; do sleep 0.1; done
printf 'all clean:\n' >Makefile
: >config.status
rmdir '$tmp/running'
SH
chmod +x "$tmp/top/configure"
twice() {
  bash -c ". '$top_srcdir/contrib/ci/lib.sh'; top=$tmp/top jobs=1
    flock() { echo >>'$tmp/wanted'; command flock \"\$@\"; }
    build '$tmp/twice' & build '$tmp/twice' && wait \$!" >"$tmp/out" 2>&1
}
is "two phases that build one folder at once wait for each other" twice
is "it is configured once" [ "$(cat "$tmp/configured")" = configured ]
fakes='fails fake'
is "a phase beside the others counts" run 1 beside=fails NAMED=test/unit/good.sh
is "with their counts" ends_with '2 passed, 4 failed, 0 skipped'
is "it is reported after them" [ "$(sed -n 's/^== \(fails\|fake\): \([0-9]\).*/\1 \2/p' "$tmp/out" | paste -sd' ')" = \
  'fake 1 fails 1' ]
beside=long bash -c ". '$top_srcdir/contrib/ci/lib.sh'; . '$top_srcdir/contrib/ci/tests.sh'
  ci=$tmp self=$tmp/phase; about() { :; }; side=
  start_beside long; until [ -s '$tmp/long' ]; do sleep 0.1; done; exit 1" >"$tmp/out" 2>&1 || :
ended() { until ! kill -0 "$(cat "$tmp/long")" 2>/dev/null; do sleep 0.1; done; } # the test's own deadline ends this
is "it ends when the script does" ended
fakes=fake
is "no test at all is a failure" run 1 ROOMS=none
is "the counts of no test" ends_with '0 passed, 1 failed, 0 skipped'

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
