# Sourced by tests whose ranks meet at a port of this host. next_port sets $port, below the ephemeral ports, at which no
# process listens. While this shell or a child of it lives, descriptor 9 locks a range of 64 ports against other tests.

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
