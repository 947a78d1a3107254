# Sourced by the examples with serving engines, with the modules that Python must find in $needs and the example's
# folder in $here. Sets python, tmp (removed at the end) and model; $started: processes that end with the script.
# shellcheck shell=sh disable=SC2034,SC2154
python=${PYTHON:-python3} tests=$(cd "$here/../../../bindings/python/tests/engines" && pwd)
for module in $needs; do
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" || {
    echo "run: $python finds no module $module: set PYTHON, PYTHONPATH and LD_LIBRARY_PATH (README, Engines)" >&2
    exit 1
  }
done
command -v kvcl_serve >/dev/null || { echo "run: kvcl_serve is not in PATH" >&2; exit 1; }
tmp=$(mktemp -d)
started=
# stop PID...: and wait until they have ended.
stop() {
  kill "$@" 2>/dev/null || :
  for pid; do
    wait "$pid" 2>/dev/null || :
  done
}
# shellcheck disable=SC2086
trap 'stop $started; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
model=${1-}
if [ -z "$model" ]; then
  model=$tmp/model
  HF_HUB_OFFLINE=1 "$python" "$tests/model.py" "$model" >"$tmp/model.log" 2>&1 || { cat "$tmp/model.log" >&2; exit 1; }
fi
export DO_NOT_TRACK=1
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$tmp/secret")
export KVCL_SECRET_FILE="$tmp/secret"
