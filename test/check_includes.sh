#!/bin/sh
# The include rules (contrib/doc/design, "rooms"): a vendor header is included in one place, and a room includes only
# the rooms below it.
set -eu
: "${top_srcdir:?}"
cd "$top_srcdir"
bad=0

complain() {
  echo "$1"
  bad=$((bad + 1))
}

sources() {
  find "$@" -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' | LC_ALL=C sort
}

# only HEADER-PATTERN ALLOWED-FILE-PATTERN: only these files may have lines "#include <HEADER...>".
only() {
  found=$(sources src ucx_glue collectives bindings test contrib include |
    xargs grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($1)" /dev/null || :)
  found=$(echo "$found" | grep -vE "^($2):" || :)
  [ -z "$found" ] || complain "only $2 may include $1:
$found"
}

# room FOLDER ALLOWED: the "..." includes of FOLDER may begin only with ALLOWED (or be config.h or the public contract,
# kvcl/).
room() {
  [ -d "$1" ] || return 0
  found=$(sources "$1" | xargs grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' /dev/null || :)
  found=$(echo "$found" | grep -vE "include[[:space:]]*\"(config\.h\"|kvcl/|$2)" | grep -v '^$' || :)
  [ -z "$found" ] || complain "$1 may include only $2:
$found"
}

# Vendor headers. test/ may include a vendor's library where it measures or verifies KVCL against it.
only 'uc[pst]/'                          'ucx_glue/[^:]*|test/[^:]*'
only 'pmix\.h'                          'src/pmix/pmix_api\.h'
only 'hwloc(\.h|/)'                      'src/topo/topo_hwloc\.c'
only '(cuda|cuda_runtime|cuda_runtime_api)\.h' 'src/device/cuda[^:]*\.[ch]'
only 'nccl\.h'                           'src/nccl/nccl_api\.h'
only 'openssl/'                          'src/base/(crypto|aead|poly1305|x25519)\.c|src/(policy/key_perm|kv/key)\.c'
only 'xxh(ash|3)\.h'                     'src/base/checksum\.[ch]'
only 'liburing'                          'src/tier/[a-z_]*uring[a-z_]*\.c'
only 'microhttpd\.h'                     'src/tools/serve/serve_http\.c'
only 'mpi\.h'                            'contrib/(bench|examples)/[^:]*'
only 'Python\.h'                         'bindings/python/[^:]*'
only 'check\.h'                          'test/[^:]*'
only '(backend/|common/nixl_|nixl_)'     'bindings/nixl/[^:]*'

# Public headers: the C library and one another.
libc='<(std(int|def|bool|arg|io|lib)|string|inttypes|sys/types)\.h>'
found=$(sources include | xargs grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null |
  grep -vE "include[[:space:]]*(<kvcl/[a-z_]+\.h>|\"kvcl/[a-z_]+\.h\"|$libc)" || :)
[ -z "$found" ] || complain "public headers include only kvcl/ and the C library:
$found"

# Rooms, lowest first. Every folder of src has a rule.
room src/base     'base/'
found=$(sources src/base | xargs grep -nE 'include[[:space:]]*[<"]kvcl/' /dev/null | grep -v 'kvcl/kvcl_status\.h' || :)
[ -z "$found" ] || complain "src/base knows nothing of KVCL but kvcl/kvcl_status.h:
$found"
room src/pmix     '(base|pmix)/'
room src/boot     '(base|boot|pmix)/'
room src/enter    '(base|boot|sock|enter)/'
room src/topo     '(base|topo)/'
room src/wire     '(base|wire)/'
room src/sock     '(base|weave|sock)/'
room src/handle   '(base|handle)/'
room src/conf     '(base|topo|weave|conf)/'
room src/core     '(base|boot|topo|wire|weave|conf|core|slots|handle|req)/'
room src/slots    '(base|boot|core|slots|handle)/'
room src/req      '(base|handle|core|req)/'
room src/loop     '(base|weave|loop)/|core/xport\.h'
room src/tcp      '(base|weave|sock|tcp)/|core/xport\.h|wire/address\.h'
room ucx_glue     '(base|weave|ucx_glue)/|core/xport\.h|life/ends\.h|near/near_ops\.h'
room src/device   '(base|weave|device)/'
room src/nccl     '(base|device|nccl)/|collectives/coll\.h'
room src/mem      '(base|topo|wire|weave|core|device|mem|cache|handle|req)/'
room src/weave    '(base|weave)/'
room src/kv       '(base|conf|device|weave|kv)/'
room src/ep       '(base|ep)/'
room src/sched    '(base|handle|sched)/'
room src/cache    '(base|wire|core|device|mem|kv|cache|handle|req)/'
room src/dir      '(base|dir|kv)/'
room src/tier     '(base|weave|tier)/'
room src/policy   '(base|policy)/|boot/secret_mem\.h'
room collectives  '(base|kv|collectives)/'
room src/lane     '(base|wire|weave|handle|core|req|lane)/|boot/boot_sock\.h'
room src/link     '(base|core|req|weave|link)/'
room src/gate     '(base|core|device|gate)/'
room src/native   '(base|native)/'
room src/near     '(base|core|mem|near)/'
room src/xfer     '(base|wire|handle|core|req|device|mem|weave|kv|cache|dir|lane|gate|native|xfer)/'
room src/vec      '(base|handle|core|req|device|mem|weave|kv|gate|xfer|vec)/'
room src/notify   '(base|wire|handle|core|req|weave|kv|xfer|notify)/'
room src/serve    '(base|wire|handle|core|req|device|mem|weave|kv|cache|dir|lane|xfer|serve)/'
room src/query    '(base|conf|wire|handle|core|req|nccl|topo|weave|mem|cache|collectives|query)/'
room src/p2p      '(base|wire|handle|core|req|device|mem|weave|kv|cache|gate|near|xfer|p2p)/'
room src/coll     '(base|wire|handle|core|req|weave|kv|mem|cache|near|xfer|collectives|coll)/'
room src/devcoll  '(base|wire|handle|core|req|xfer|device|nccl|coll|devcoll)/'
room src/join     '(base|wire|handle|core|req|join)/'
room src/view     '(base|view)/'
room src/life     '(base|life)/'
room src/member   '(base|wire|sock|enter|handle|core|req|coll|view|life|member)/'
room src/door     '(base|wire|sock|handle|core|req|xfer|door)/'
room src/experts  '(base|handle|core|ep|weave|kv|cache|xfer|experts)/'
room src/store    '(base|wire|handle|core|req|topo|mem|weave|kv|cache|xfer|dir|tier|policy|view|store)/|member/lease\.h"'
room src/value    '(base|wire|handle|core|req|mem|weave|kv|cache|xfer|dir|policy|store|value)/'
room src/metrics  '(base|handle|core|store|metrics)/'
room src/tools    'tools/|metrics/metrics_(context|store|text)\.h"|ucx_glue/ucp\.h"|base/(error|key_file|nearest|rand)\.h"|policy/evict\.h"|weave/(weave|choice)\.h"'
only 'ucx_glue/ucp\.h' 'ucx_glue/[^:]*|src/tools/perf/floor_impl\.h|test/[^:]*'
for dir in src/*/; do
  dir=${dir%/}
  grep -q "^room $dir " test/check_includes.sh || complain "$dir has no rule here"
done
room bindings/python 'kvcl/'
room bindings/nixl '[a-z]+\.hh"|backend/|nixl_types\.h"'
room contrib/examples 'moe_(model|watch)\.h"'
room test/api     'test/'

[ "$bad" = 0 ] || { echo "$bad rules broken"; exit 1; }
echo "include rules hold"
