# Sourced by the scripts beside it: guests of QEMU without KVM, each with this machine's files as its
# root (read only), so that a build lies at the same path there and nothing is copied.
#
# A guest runs in/STAGES.sh and writes to a folder of this machine: lines "PASS name", "FAIL name" and
# "SKIP: name: why" in a file, and "DONE" at its end. The kernel comes from Debian's package, which is unpacked and not
# installed, and is kept between runs, as the consoles and the programs' logs are until the next run.
#
# CI_GUEST_DIR: where all that is kept (default: build/ci/guest of the source tree).
# GUEST_LIMIT: seconds for a guest (default 3000); GUEST_UP: until it is up (60). One set of guests runs at a time, so a
# script's TEST_TIMEOUT is the time of all scripts.
# GUEST_DEVICES: how many devices one guest has in most stages (1).
# GUEST_ENV: "NAME=VALUE ..." that the guests' programs get. GUEST_COMMAND: what stage "command" runs, for trials.
# shellcheck shell=bash disable=SC2154 # top_srcdir and top_builddir are set by the makefile

: "${top_srcdir:?}" "${top_builddir:?}"
dir=${CI_GUEST_DIR:-$top_srcdir/build/ci/guest}
here=$top_srcdir/test/guest
limit=${GUEST_LIMIT:-3000}
PATH=$PATH:/usr/sbin:/sbin
modules='virtio_pci virtio_net 9p 9pnet_virtio dummy sch_netem crc32_generic ib_uverbs rdma_rxe'
guests= # process ids

skip() {
  echo "SKIP: no guest with RDMA: $*"
  exit 77
}

no_guest() {
  echo "FAIL: a guest does not come up (its console: $out)"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

cleanup() {
  local pid
  for pid in $guests; do
    kill -9 "$pid" 2>/dev/null || :
  done
  rm -rf "$tmp"
}

need() {
  local tool
  for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod flock:util-linux \
    ip:iproute2 rdma:iproute2 unshare:util-linux; do
    command -v "${tool%:*}" >/dev/null || skip "no ${tool%:*} (Debian: ${tool#*:})"
  done
  busybox_file=$(command -v busybox)
  if ldd "$busybox_file" >/dev/null 2>&1; then
    skip "$busybox_file is not linked statically (Debian: busybox-static)"
  fi
  [ -e /etc/libibverbs.d/rxe.driver ] || skip 'no driver of software RDMA for libibverbs (Debian: ibverbs-providers)'
  qemu-system-x86_64 -netdev help 2>/dev/null | grep -qx stream || skip 'QEMU is older than 7.2'
  [ "$(awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo)" -ge 4 ] ||
    skip 'less than 4 GiB of memory are available'
}

# Set $kernel: a folder with vmlinuz, and modules/ in order/. Only a kernel that is not here yet is downloaded.
kernel() {
  local name version
  kernel=$(find "$dir" -maxdepth 2 -name vmlinuz -printf '%T@ %h\n' 2>/dev/null | sort -rn | sed -n '1s/[^ ]* //p')
  [ -z "$kernel" ] || return 0
  command -v apt-get >/dev/null || skip 'no apt-get, and no kernel from an earlier run'
  name=$(kernel_package)
  if [ -z "$name" ] && [ "$(id -u)" = 0 ] && [ -z "${CI_NO_INSTALL:-}" ]; then
    timeout 300 apt-get -q update >&2 || :
    name=$(kernel_package)
  fi
  [ -n "$name" ] || skip 'the package linux-image-amd64 is not known here (apt-get update)'
  version=${name#linux-image-}
  rm -rf "$dir/part"
  mkdir -p "$dir/part/modules"
  (cd "$dir/part" && timeout 600 apt-get -q download "$name" >&2) || skip "$name cannot be downloaded"
  dpkg -x "$dir"/part/*.deb "$dir/part/root"
  depmod -b "$dir/part/root" "$version"
  mv "$dir/part/root/boot/vmlinuz-$version" "$dir/part/vmlinuz"
  pick_modules "$version"
  rm -rf "$dir/part/root" "$dir/part/files" "$dir"/part/*.deb "${dir:?}/$version"
  mv "$dir/part" "$dir/$version"
  kernel=$dir/$version
}

kernel_package() {
  apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# Copy the modules that $modules need, and write their order.
pick_modules() {
  local file
  # shellcheck disable=SC2086
  modprobe -d "$dir/part/root" -S "$1" -a --show-depends $modules | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' \
    >"$dir/part/files" || skip "kernel $1 lacks a module of: $modules"
  while read -r file; do
    cp "$file" "$dir/part/modules/"
    echo "${file##*/}"
  done <"$dir/part/files" >"$dir/part/modules/order"
}

initramfs() {
  mkdir -p "$tmp/root/bin"
  cp "$busybox_file" "$tmp/root/bin/busybox"
  cp "$here/init" "$tmp/root/init"
  chmod +x "$tmp/root/init"
  cp -r "$kernel/modules" "$tmp/root/mod"
  (cd "$tmp/root" && find . | cpio -o -H newc --quiet) >"$tmp/initrd"
}

# open_guests NAME: takes the lock (one set of guests at a time) and prepares everything but the guests.
open_guests() {
  need
  mkdir -p "$dir" 2>/dev/null || skip "$dir cannot be written"
  exec 8>"$dir/lock"
  flock 8
  clock=$(clock)
  tmp=$(mktemp -d)
  trap cleanup EXIT
  trap 'exit 1' HUP INT TERM
  kernel
  initramfs
  keep=$(printf '%s\n' "$top_srcdir" "$top_builddir" | grep -E '^/(tmp|run|var/tmp)/' | sort -u | paste -sd,) || :
  out=$dir/$1
  rm -rf "$out"
  mkdir -p "$out/logs" "$out/sync"
}

# write_start ROLE SCRIPT STAGE...: what a guest runs, with the environment that it needs.
write_start() {
  local role=$1 script=$2 name
  shift 2
  {
    for name in top_srcdir top_builddir TEST_SEED TEST_RING GUEST_ROUNDS GUEST_DEVICES GUEST_COMMAND; do
      [ -z "${!name-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    [ -z "${GUEST_ENV-}" ] || echo "export $GUEST_ENV"
    printf 'exec bash %q %q %s\n' "$here/in/$script" "$role" "$*"
  } >"$out/start.$role"
}

# The kernel's options about time. Guests read the processor's clock directly. A guest that measures its frequency while
# other work has the processor gets a wrong one, and its clock runs several times too fast; one that checks a timer then
# may not start at all.
clock() {
  local khz
  khz=$(ucx_info -s 2>/dev/null | awk '/Timer frequency/ { printf "%.0f", $4 * 1000 }') || :
  echo "tsc=reliable no_timer_check ${khz:+tsc_early_khz=$khz}"
}

# boot ROLE MEMORY CORES [QEMU-ARGUMENT...]: starts a guest and waits until it is up. One that is not in 60 s
# (GUEST_UP) is started again, twice.
boot() {
  local role=$1 memory=$2 cores=$3 console=$out/console.$1 try pid
  shift 3
  for try in 1 2 3; do
    qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -machine q35 -cpu max -smp "$cores" -m "$memory" \
      -nodefaults -no-user-config -display none -serial "file:$console" -no-reboot \
      -kernel "$kernel/vmlinuz" -initrd "$tmp/initrd" \
      -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr $clock kvcl.role=$role kvcl.keep=$keep" \
      -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
      -virtfs "local,path=$out,mount_tag=out,security_model=none" "$@" </dev/null >"$out/qemu.$role" 2>&1 8>&- &
    pid=$!
    guests="$guests $pid"
    if is_up "$pid" "$console"; then
      echo "guest $role is up: $(sed -n 's/^GUEST up at //p' "$console" | tr -d '\r')"
      return 0
    fi
    kill -9 "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
    echo "guest $role is not up after ${GUEST_UP:-60} s (start $try)"
    tail -n 3 "$out/qemu.$role" "$console" 2>/dev/null || :
  done
  return 1
}

# wires NUMBER on|off: the arguments of QEMU for a guest's three network cards; the first guest listens
wires() {
  local n
  for n in 0 1 2; do
    printf '%s ' -netdev "stream,id=n$n,server=$2,addr.type=unix,addr.path=$tmp/wire$n" \
      -device "virtio-net-pci,netdev=n$n,romfile=,mac=52:54:00:00:0$n:0$1"
  done
}

# Guests A and B, which have 4 MiB of memory in common
# (conform_shared.c). With maxcpus, QEMU makes atomic operations of one guest atomic for the other.
# shellcheck disable=SC2046
boot_two() {
  local both="-object memory-backend-file,id=both,share=on,size=4M,mem-path=$tmp/both -device ivshmem-plain,memdev=both"
  boot B 1024 1,maxcpus=2 $(wires 2 on) $both && boot A 1024 1,maxcpus=2 $(wires 1 off) $both
}

is_up() {
  local until=$((SECONDS + ${GUEST_UP:-60}))
  while [ $SECONDS -lt $until ] && kill -0 "$1" 2>/dev/null; do
    ! grep -q '^GUEST up' "$2" 2>/dev/null || return 0
    sleep 0.2
  done
  return 1
}

# Wait until all guests have ended, or end them.
wait_guests() {
  local pid until=$((SECONDS + limit))
  for pid in $guests; do
    while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $until ]; do
      sleep 0.5
    done
    if kill -9 "$pid" 2>/dev/null; then
      echo "a guest had not ended after $limit s"
    fi
    wait "$pid" 2>/dev/null || :
  done
  guests=
}

count() { grep -c "$1" "$out/results.$2" || :; }

# verdict ROLE...: prints what the guests wrote, and the counts; its status is that of the test.
verdict() {
  local role passed=0 failed=0 skipped=0
  for role in "$@"; do
    echo "-- guest $role"
    tr -d '\r' <"$out/console.$role" | tail -n 400
    touch "$out/results.$role"
    passed=$((passed + $(count '^PASS ' "$role")))
    failed=$((failed + $(count '^FAIL ' "$role")))
    skipped=$((skipped + $(count '^SKIP: ' "$role")))
    if ! grep -qx DONE "$out/results.$role" 2>/dev/null; then
      echo "FAIL guest $role did not come to its end"
      failed=$((failed + 1))
    fi
  done
  echo "logs: $out"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ $failed = 0 ] && [ $passed -gt 0 ]
}
