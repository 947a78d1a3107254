/*
 * Addresses of tcp transports. Pure, and hostile-safe. Bytes, little-endian:
 *   u32 magic, u32 check (of all that follows), u8 version, u8 n, u16 0, id[16], host[16],
 *   n times: u8 family, u8 wire, u16 port, addr[16]
 * Magic, check word and version have their places in every version, so that another one is named as such.
 * The check word detects corrupt and truncated addresses. It does not detect forgery: addresses come from authenticated
 * ranks only, and a connection is proven to lead to the id.
 */
#include "config.h"
#include "tcp/tcp.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/wirebuf.h"
#include "weave/pieces.h"

#include <string.h>

#define ADDR_MAGIC UINT32_C(0x4b565451)

enum { ADDR_VERSION = 1, CHECKED = 8 /* offset of the first byte under the check word */ };

typedef struct wire_addr {
    uint32_t    magic, check;
    uint8_t     version, n;
    uint16_t    zero;
    uint8_t     id[KVCL_SOCK_ID_LEN], host[16];
    tcp_where_t at[TCP_ADDRS];
} wire_addr_t;
_Static_assert((sizeof(tcp_where_t) == 20) && (sizeof(wire_addr_t) == TCP_ADDR_BYTES), "wire format");

size_t kvcl_tcp_addr_pack(const tcp_addr_t *addr, uint8_t buf[TCP_ADDR_BYTES])
{
    wire_addr_t wire = {.magic = ADDR_MAGIC, .version = ADDR_VERSION, .n = (uint8_t)addr->n};
    size_t      len  = offsetof(wire_addr_t, at) + addr->n * sizeof(wire.at[0]);

    memcpy(wire.id, addr->id, sizeof(wire.id));
    memcpy(wire.host, addr->host, sizeof(wire.host));
    memcpy(wire.at, addr->at, sizeof(wire.at));
    wire.check = kvcl_check32((const uint8_t *)&wire + CHECKED, len - CHECKED);
    kvcl_copy_bytes(buf, &wire, len);
    return len;
}

static bool read_where(kvcl_rd_t *rd, tcp_where_t *where)
{
    where->family = kvcl_rd_u8(rd);
    where->wire   = kvcl_rd_u8(rd);
    where->port   = kvcl_rd_u16(rd);
    kvcl_rd_copy(rd, where->addr, sizeof(where->addr));
    return ((where->family == 4) || (where->family == 6)) && (where->port != 0) &&
           ((where->wire == KVCL_SOCK_PLAIN) || (where->wire == KVCL_SOCK_AEAD));
}

kvcl_status_t kvcl_tcp_addr_unpack(const void *buf, size_t len, tcp_addr_t *addr)
{
    kvcl_rd_t rd;
    uint8_t   version;
    bool      good;
    unsigned  i;

    memset(addr, 0, sizeof(*addr));
    kvcl_rd_init(&rd, buf, len);
    good    = (kvcl_rd_u32(&rd) == ADDR_MAGIC) && (len > CHECKED) &&
              (kvcl_rd_u32(&rd) == kvcl_check32((const uint8_t *)buf + CHECKED, len - CHECKED));
    version = kvcl_rd_u8(&rd);
    if (good && (version != ADDR_VERSION)) {
        return kvcl_fail(KVCL_ERR_VERSION, "tcp: the peer's address has version %u, this rank reads version %d: run "
                         "the same KVCL on all ranks", version, ADDR_VERSION);
    }
    addr->n = kvcl_rd_u8(&rd);
    good    = good && (kvcl_rd_u16(&rd) == 0) && (addr->n <= TCP_ADDRS);
    kvcl_rd_copy(&rd, addr->id, sizeof(addr->id));
    kvcl_rd_copy(&rd, addr->host, sizeof(addr->host));
    for (i = 0; good && (i < addr->n); ++i) {
        good = read_where(&rd, &addr->at[i]);
    }
    if (!good || !kvcl_rd_done(&rd)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "tcp: malformed address of %zu bytes", len);
    }
    return KVCL_OK;
}

/* Lower is nearer. -1: it leads elsewhere from this host. */
static int distance(const tcp_where_t *where, bool same_host, const kvcl_net_addr_t *nets, unsigned n_nets)
{
    unsigned i;

    if (kvcl_net_is_loopback(where->family, where->addr)) {
        return same_host ? 0 : -1;
    }
    for (i = 0; i < n_nets; ++i) {
        if (kvcl_net_same_subnet(&nets[i], where->family, where->addr)) {
            return 1;
        }
    }
    return 2;
}

void kvcl_tcp_addr_sort(tcp_addr_t *addr, const tcp_addr_t *own, const kvcl_net_addr_t *nets, unsigned n_nets)
{
    bool       same_host = (memcmp(addr->host, own->host, sizeof(addr->host)) == 0);
    tcp_addr_t sorted    = *addr;
    unsigned   i;
    int        d;

    sorted.n = 0;
    for (d = 0; d <= 2; ++d) {
        for (i = 0; i < addr->n; ++i) {
            if (distance(&addr->at[i], same_host, nets, n_nets) == d) {
                sorted.at[sorted.n++] = addr->at[i];
            }
        }
    }
    *addr = sorted;
}
