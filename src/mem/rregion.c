/*
 * Imported regions (region.h): parsing a peer's description, mapping what can be mapped. Engine lock held, but for
 * kvcl_region_parse(). A description is hostile until parse() has accepted it.
 */
#include "config.h"
#include "mem/region.h"
#include "base/error.h"
#include "base/wirebuf.h"
#include "wire/address.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    const void *buf;
    size_t     len;
} part_t;

/* The parts for each transport kind. */
static void parse_parts(kvcl_rd_t *rd, part_t parts[KVCL_ADDRESS_PARTS])
{
    unsigned n = kvcl_rd_u8(rd), i;

    for (i = 0; (i < n) && kvcl_rd_ok(rd); ++i) {
        unsigned   kind = kvcl_rd_u8(rd);
        size_t     len  = kvcl_rd_u16(rd);
        const void *buf = kvcl_rd_bytes(rd, len);
        if (kvcl_rd_ok(rd) && (kind >= 1) && (kind < KVCL_ADDRESS_PARTS) && (len > 0)) {
            parts[kind].buf = buf;
            parts[kind].len = len;
        }
    }
}

typedef struct parsed {
    uint64_t ctl_addr, ctl_len;
    part_t   region[KVCL_ADDRESS_PARTS], ctl[KVCL_ADDRESS_PARTS];
} parsed_t;

static kvcl_status_t parse(const void *buf, size_t len, kvcl_rregion_t *r, parsed_t *p, size_t *used_p)
{
    kvcl_rd_t rd;

    memset(r, 0, sizeof(*r));
    memset(p, 0, sizeof(*p));
    kvcl_rd_init(&rd, buf, len);
    r->id       = kvcl_rd_u32(&rd);
    r->rights   = kvcl_rd_u16(&rd);
    r->kind     = (kvcl_mem_kind_t)kvcl_rd_u16(&rd);
    r->keys[0]  = kvcl_rd_u64(&rd);
    r->keys[1]  = kvcl_rd_u64(&rd);
    r->epoch    = kvcl_rd_u64(&rd);
    r->addr     = kvcl_rd_u64(&rd);
    r->len      = kvcl_rd_u64(&rd);
    p->ctl_addr = kvcl_rd_u64(&rd);
    p->ctl_len  = kvcl_rd_u64(&rd);
    parse_parts(&rd, p->region);
    parse_parts(&rd, p->ctl);
    if (!kvcl_rd_ok(&rd) || (r->len == 0) || (r->addr + r->len < r->addr) || (r->id >= KVCL_REGIONS_MAX) ||
        (p->ctl_len != KVCL_REGIONS_MAX * sizeof(uint64_t)) || ((r->rights & ~(unsigned)KVCL_READ_WRITE) != 0) ||
        ((r->kind != KVCL_MEM_HOST) && (r->kind != KVCL_MEM_CUDA))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "not a description of a region (%zu bytes)", len);
    }
    *used_p = len - kvcl_rd_left(&rd);
    return KVCL_OK;
}

kvcl_status_t kvcl_region_parse(const void *buf, size_t len, kvcl_rregion_t *rregion, size_t *used_p)
{
    parsed_t parsed;

    return parse(buf, len, rregion, &parsed, used_p);
}

/* Map (or make gettable) what can be; what cannot is served by its owner. */
static void open_part(kvcl_peer_t *peer, const part_t parts[KVCL_ADDRESS_PARTS], uint64_t addr, uint64_t len,
                      kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    const part_t *part = &parts[kvcl_xport_part(peer->ops)];

    memset(attr, 0, sizeof(*attr));
    *rmem_p = NULL;
    if ((part->buf == NULL) || (peer->ep == NULL)) {
        return;
    }
    if (peer->ops->rmem_open(peer->ep, part->buf, part->len, addr, len, rmem_p, attr) != KVCL_OK) {
        memset(attr, 0, sizeof(*attr));
        *rmem_p = NULL;
    }
}

/* Map what can be mapped; rregion's description is parsed already and is not written. */
static void open_parts(kvcl_peer_t *peer, const parsed_t *parsed, kvcl_rregion_t *rregion)
{
    kvcl_xport_rmem_attr_t ctl_attr;

    rregion->peer = peer;
    open_part(peer, parsed->region, rregion->addr, rregion->len, &rregion->rmem, &rregion->attr);
    /* A peer's device memory is mapped within one process only; then it is reached as local device memory. */
    if ((rregion->attr.map != NULL) && (rregion->kind != KVCL_MEM_HOST) &&
        (kvcl_copier_open(rregion->kind, rregion->attr.map, rregion->len, &rregion->copier) != KVCL_OK)) {
        rregion->attr.map = NULL;
    }
    if ((rregion->attr.map != NULL) || rregion->attr.get || rregion->attr.put) {
        open_part(peer, parsed->ctl, parsed->ctl_addr, parsed->ctl_len, &rregion->ctl_rmem, &ctl_attr);
        if (ctl_attr.map != NULL) {
            rregion->ctl = (const _Atomic uint64_t *)ctl_attr.map + rregion->id;
        } else {
            rregion->attr.map = NULL; /* revocation is seen by getting the word, or the owner serves */
            rregion->attr.get = rregion->attr.get && ctl_attr.get;
            rregion->attr.put = rregion->attr.put && ctl_attr.get;
        }
    }
}

kvcl_status_t kvcl_rregion_open(kvcl_peer_t *peer, const void *buf, size_t len, kvcl_rregion_t *rregion,
                                size_t *used_p)
{
    parsed_t      parsed;
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    status = parse(buf, len, rregion, &parsed, used_p);
    if (status == KVCL_OK) {
        open_parts(peer, &parsed, rregion);
    }
    return status;
}

/* Other threads check ranges against the description without a lock: it is parsed into another one here. */
kvcl_status_t kvcl_rregion_ready(kvcl_rregion_t *rregion, kvcl_peer_t *peer)
{
    kvcl_rregion_t again;
    parsed_t       parsed;
    size_t         used;
    kvcl_status_t  status;

    kvcl_assert_locked(peer->ctx);
    if (rregion->pending == NULL) {
        return KVCL_OK;
    }
    status = parse(rregion->pending, rregion->pending_len, &again, &parsed, &used);
    if (status == KVCL_OK) {
        open_parts(peer, &parsed, rregion);
    }
    free(rregion->pending);
    rregion->pending = NULL;
    return status;
}

void kvcl_rregion_close(kvcl_rregion_t *rregion)
{
    if (rregion->peer != NULL) {
        kvcl_assert_locked(rregion->peer->ctx);
    }
    free(rregion->pending);
    rregion->pending = NULL;
    kvcl_copier_close(rregion->copier);
    rregion->copier = NULL;
    if (rregion->peer == NULL) {
        return;
    }
    if (rregion->ctl_rmem != NULL) {
        rregion->peer->ops->rmem_close(rregion->ctl_rmem);
    }
    if (rregion->rmem != NULL) {
        rregion->peer->ops->rmem_close(rregion->rmem);
    }
    /* The description stays: other threads check ranges against it without a lock. */
    rregion->peer     = NULL;
    rregion->rmem     = NULL;
    rregion->ctl_rmem = NULL;
    rregion->ctl      = NULL;
    memset(&rregion->attr, 0, sizeof(rregion->attr));
}
