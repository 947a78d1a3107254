# Sourced by contrib/quickstart and contrib/check: building in a folder of its own, and phases.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=${CI_JOBS:-$(nproc 2>/dev/null || echo 2)}

say() {
  printf '%s\n' "== $*"
}

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

configure_script() {
  if [ ! -e "$top/configure" ] || [ ! -e "$top/Makefile.in" ]; then
    (cd "$top" && autoreconf -fi) >&2
  fi
}

# build DIR CONFIGURE-ARGUMENT...: configure and make in DIR. Completed steps are not repeated. One process at a time
# builds a folder.
build() {
  mkdir -p "$1" || return
  (flock 9 && build_alone "$@" 9>&-) 9>"$1/.lock"
}

# ("|| return" at each step: bash ignores "set -e" in a function whose status is tested.)
build_alone() {
  local dir=$1 arguments
  shift
  arguments="$* CC=${CC-} CFLAGS=${CFLAGS-} CPPFLAGS=${CPPFLAGS-} LDFLAGS=${LDFLAGS-} PYTHON=${PYTHON-}"
  if [ -e "$top/config.status" ]; then
    echo "$top is configured in place, which shuts out other folders: run 'make distclean' there first" >&2
    return 1
  fi
  configure_script || return
  if [ ! -e "$dir/config.status" ] || [ "$(cat "$dir/.arguments" 2>/dev/null)" != "$arguments" ]; then
    rm -f "$dir/.arguments"
    (cd "$dir" && "$top/configure" "$@" && make -s clean) || return
    printf '%s' "$arguments" >"$dir/.arguments"
  fi
  make -C "$dir" --no-print-directory -j"$jobs"
}
