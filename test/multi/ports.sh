# Sourced by tests. next_port is for those whose ranks meet at a port of this host: it sets $port, below the ephemeral
# ports, at which no process listens. While this shell or a child of it lives, descriptor 9 locks a range of 64 ports
# against other tests. new_user FOLDER is for those that depend on settings: HOME is FOLDER/home, new and empty, and no
# setting of KVCL's or of a launcher's is left.

ports=
next_port() {
  if [ -z "$ports" ]; then
    ports=$(($$ % 300))
    until exec 9>"${TMPDIR:-/tmp}/kvcl-test-ports.$(id -u).$ports" && flock -n 9; do
      ports=$(((ports + 1) % 300))
    done
    port=$((9999 + ports * 64))
  fi
  port=$((port + 1))
  while grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
    port=$((port + 1))
  done
}

new_user() {
  HOME=$1/home
  mkdir -m 700 "$HOME"
  export HOME
  for name in $(env | sed -n 's/^\(KVCL_[A-Z_]*\)=.*/\1/p') PMIX_NAMESPACE PMIX_RANK; do
    unset "$name"
  done
}
