#!/bin/sh
# kvcl_info --json: every section is present and agrees with the text form, alone and in a job of three that meet at an
# address, whose end logs no failure. It is valid JSON also with bad settings and with strange bytes in them.
set -eu
: "${top_builddir:?}" "${top_srcdir:?}"
info=$top_builddir/src/tools/kvcl_info
python=${PYTHON:-python3}
if ! "$python" -c 'import json' 2>/dev/null; then
  echo "SKIP: no python3 (Debian: python3), which judges the JSON"
  exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# holds NAME EXPRESSION: of the object j in out; t is the text form.
holds() {
  if "$python" - "$tmp/out" "$tmp/text" "$2" <<'END'
import json, sys
with open(sys.argv[1], encoding="utf-8", errors="strict") as f:
    lines = f.read().splitlines()
with open(sys.argv[2], encoding="utf-8", errors="replace") as f:
    t = f.read()
assert len(lines) == 1, lines
j = json.loads(lines[0], parse_constant=lambda c: sys.exit("no JSON: " + c))

def texts(nodes):
    for node in nodes:
        assert set(node) == {"text", "parts"}, node
        yield node["text"]
        yield from texts(node["parts"])

sys.exit(0 if eval("(" + sys.argv[3] + ")") else 1)
END
  then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf "FAIL: %s: not so: %s\n" "$1" "$2"
    cat "$tmp/out"
  fi
}
# exits STATUS COMMAND...
exits() {
  want=$1 rc=0
  shift
  "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
  if [ $rc = "$want" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL: status $rc in place of $want: $*"
    cat "$tmp/out" "$tmp/err"
  fi
}

HOME=$tmp/home
mkdir -m 700 "$HOME"
export HOME
unset KVCL_RANK KVCL_SIZE KVCL_BOOT KVCL_RENDEZVOUS KVCL_SECRET_FILE
KVCL_BOOT=self
export KVCL_BOOT
: >"$tmp/text"
exits 0 env KVCL_WINDOW=7 "$info"
cp "$tmp/out" "$tmp/text"
exits 0 env KVCL_WINDOW=7 "$info" --json
holds "all sections" 'list(j) == ["build", "settings", "collectives", "nccl", "topology", "copy", "elastic",
  "security", "ranks", "gpudirect", "paths"]'
holds "NCCL, or why not" '("\nNCCL: %s\n" % j["nccl"]) in t and (j["nccl"][0].isdigit() or
  j["nccl"].startswith("no: "))'
holds "the build" 't.startswith("KVCL %s\n  %s\n" % (j["build"]["version"], j["build"]["text"]))'
holds "the build's parts" '("; ucx %s;" % j["build"]["ucx"]) in t and j["build"]["ucx"][0].isdigit() and
  "tcp" in j["build"]["boot"] and j["build"]["wire_version"] >= 1 and type(j["build"]["debug"]) is bool and
  j["build"]["hardening"]'
holds "the settings" 'len(j["settings"]) == t.split("\nelastic: ")[0].count("  KVCL_") and all(set(s) == {"name", "value", "default", "source",
  "help"} and ("  " + s["name"] + " ") in t and s["help"] in t for s in j["settings"])'
holds "a setting" '[s for s in j["settings"] if s["name"] == "KVCL_WINDOW"] == [{"name": "KVCL_WINDOW", "value": "7",
  "default": "16", "source": "environment", "help": "served data messages in flight per transfer"}]'
holds "a default and its value in one form" 'all(s["value"] == s["default"] for s in j["settings"]
  if s["source"] == "default")'
holds "the algorithms" '{"bcast", "barrier"} <= {a["collective"] for a in j["collectives"]["algorithms"]} and
  all(a["description"] in t and a["name"] in t for a in j["collectives"]["algorithms"])'
holds "the table" 'len(j["collectives"]["table"]) >= 3 and
  all(("  " + row + "\n") in t for row in j["collectives"]["table"])'
holds "the topology" '[x.strip() for x in t.split("\ntopology\n")[1].split("\ncopy\n")[0].split("\n")] ==
  list(texts(j["topology"]))'
holds "what this host can prove" 'j["elastic"]["proofs"][0]["what"] == "unix socket" and
  j["elastic"]["proofs"][0]["works"] and "KVCL_FENCE" in [s["name"] for s in j["elastic"]["settings"]]'
holds "what others can reach" 'j["security"] and all(set(d) == {"kind", "where", "protection"} and
  d["kind"] in ("unix", "memory") and d["protection"] in t for d in j["security"])'
holds "the path to itself" 'j["ranks"] == 1 and j["paths"] == [{"from": 0, "to": 0, "path": "loop",
  "allocated": "loop", "registered": "loop"}] and "memory that KVCL allocated: loop\n" in t'

exits 0 env KVCL_PATH=loop "$info" --security
if [ "$(tail -n 1 "$tmp/out")" = '  nothing' ]; then
  passed=$((passed + 1))
else
  failed=$((failed + 1))
  cat "$tmp/out"
fi

exits 0 env KVCL_PATH=tcp KVCL_NET=lo KVCL_WIRE=ucx "$info" --paths --json
holds "the path over the wire of UCX" '[(p["path"], p["allocated"], p["registered"]) for p in j["paths"]] ==
  [("served (tcp/lo ucx)",) + 2 * ("served: TCP carries messages only",)]'

exits 0 "$info" --build --json
holds "one section alone" 'list(j) == ["build"]'

exits 0 env KVCL_NET=lo "$info" --security --json
holds "a listener" 'list(j) == ["security"] and [d["where"].split(":")[0] for d in j["security"]
  if d["kind"] == "tcp"] == ["127.0.0.1"]'
exits 0 env KVCL_NET=lo KVCL_PATH=shm "$info" --security --json
holds "no listener over shared memory alone" '[d for d in j["security"] if d["kind"] == "tcp"] == []'

# Large copies: measured by the first process and kept, read by the next one, measured again over hostile bytes; a
# folder that cannot be written.
copy() { exits 0 env "$@" "$info" --copy; }
said() {
  if grep -q "$1" "$tmp/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "no: $1"
    cat "$tmp/out"
  fi
}
unset XDG_CACHE_HOME
rm -rf "$HOME/.cache"
copy KVCL_COPY=auto
if ! grep -q 'not measured' "$tmp/out"; then
  said "by this process, kept in $HOME/.cache/kvcl/copy-"
  said '^  4096 .* times memcpy$'
  said '^  large transfers: [0-9]* bytes and more'
  copy KVCL_COPY=auto
  said "read from $HOME/.cache/kvcl/copy-"
  exits 0 "$info" --copy --json
  holds "the copy" 'list(j) == ["copy"] and j["copy"][0].startswith("setting auto, instructions ")'
  for file in "$HOME"/.cache/kvcl/copy-*; do echo 'kvcl copy 2' >"$file"; done
  copy KVCL_COPY=auto
  said "by this process, kept in "
  copy KVCL_COPY=auto
  said "read from "
  copy XDG_CACHE_HOME="$tmp/err"
  said "by this process, not kept, for no file can be written: $tmp/err/kvcl/copy-"
  copy XDG_CACHE_HOME="$tmp/x"
  said "kept in $tmp/x/kvcl/copy-"
fi
copy KVCL_COPY=memcpy KVCL_COPY_LARGE=3M
said '^  large transfers: 3145728 bytes and more, from KVCL_COPY_LARGE$'
copy KVCL_COPY=memcpy
said '^  used: memcpy$'
said '^  from KVCL_COPY; not measured$'
exits 1 env KVCL_COPY=fast "$info" --copy

# A bad value is null; the other members are present.
exits 1 env KVCL_SPIN=soon "$info" --json
holds "a bad setting" 'j["settings"] is None and j["paths"] is None and j["topology"] and j["build"]'
if grep -q 'KVCL_SPIN' "$tmp/err"; then passed=$((passed + 1)); else failed=$((failed + 1)); cat "$tmp/err"; fi
strange=$(printf 'a"b\\c\001\377\303\274')
exits 0 env KVCL_RENDEZVOUS="$strange" "$info" --settings --json
holds "strange bytes" '[s["value"] for s in j["settings"] if s["name"] == "KVCL_RENDEZVOUS"] ==
  ["a\"b\\c\x01\ufffd\u00fc"]'

# Three ranks: rank 0 prints.
unset KVCL_BOOT
. "$top_srcdir/test/multi/ports.sh"
next_port
KVCL_LOG=info
export KVCL_LOG
KVCL_RENDEZVOUS=tcp://127.0.0.1:$port KVCL_SIZE=3 KVCL_BOOT_TIMEOUT=60s
export KVCL_RENDEZVOUS KVCL_SIZE KVCL_BOOT_TIMEOUT
KVCL_RANK=1 "$info" --paths --json >"$tmp/out1" 2>"$tmp/err1" & one=$!
KVCL_RANK=2 "$info" --paths --json >"$tmp/out2" 2>"$tmp/err2" & two=$!
exits 0 env KVCL_RANK=0 "$info" --paths --json
for pid in $one $two; do
  if wait "$pid"; then passed=$((passed + 1)); else failed=$((failed + 1)); cat "$tmp/err1" "$tmp/err2"; fi
done
holds "three ranks" 'j["ranks"] == 3 and len(j["paths"]) == 9 and
  {(p["from"], p["to"]) for p in j["paths"]} == {(a, b) for a in range(3) for b in range(3)} and
  all(p["path"] == "loop" if p["from"] == p["to"] else p["path"] not in ("", "loop") for p in j["paths"])'
holds "and their memory" 'all(p["allocated"] == "loop" == p["registered"] if p["from"] == p["to"] else
  p["allocated"] == "mapped" and p["registered"].startswith(("native (cma), puts served", "served: "))
  for p in j["paths"])'
if grep -E 'failed|canceled' "$tmp/err" "$tmp/err1" "$tmp/err2"; then
  echo "FAIL: the log of a normal end"
  failed=$((failed + 1))
else
  passed=$((passed + 1))
fi
if [ -s "$tmp/out1" ] || [ -s "$tmp/out2" ]; then
  echo "FAIL: rank 0 is not the only one that prints"
  sed 's/^/   /' "$tmp/out1" "$tmp/out2"
  failed=$((failed + 1))
else
  passed=$((passed + 1))
fi

# A rank that fails: the others end, and name it.
exits 0 env -u KVCL_BOOT -u KVCL_RENDEZVOUS -u KVCL_RANK -u KVCL_SIZE "$top_builddir/test/multi/info_fails"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
