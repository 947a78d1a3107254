/*
 * Imported regions (region.h): parsing a peer's description, mapping what can be mapped. Engine lock held, but for
 * kvcl_region_parse() and kvcl_region_authentic(). A description is hostile until parse() has accepted it, and it is
 * opened only after its MAC has been checked: UCX's parser of keys trusts its input.
 */
#include "config.h"
#include "mem/region.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wirebuf.h"
#include "core/comm.h"
#include "wire/address.h"

#include <stdio.h>
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
    part_t   segment, ctl_segment;
    part_t   region[KVCL_ADDRESS_PARTS], ctl[KVCL_ADDRESS_PARTS];
} parsed_t;

static void parse_segment(kvcl_rd_t *rd, part_t *segment)
{
    segment->len = kvcl_rd_u16(rd);
    segment->buf = kvcl_rd_bytes(rd, segment->len);
}

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
    parse_segment(&rd, &p->segment);
    parse_parts(&rd, p->region);
    parse_segment(&rd, &p->ctl_segment);
    parse_parts(&rd, p->ctl);
    (void)kvcl_rd_bytes(&rd, KVCL_REGION_MAC_BYTES);
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

kvcl_status_t kvcl_region_authentic(const kvcl_peer_t *peer, const void *buf, size_t len)
{
    size_t  covered = len - KVCL_REGION_MAC_BYTES; /* parsed: at least that long */
    uint8_t mac[KVCL_REGION_MAC_BYTES];

    kvcl_region_mac(peer->ctx->secret, peer->uuid, buf, covered, mac);
    if (!kvcl_ct_equal(mac, (const uint8_t *)buf + covered, sizeof(mac))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "the MAC of the description (%zu bytes) is wrong: the bytes were changed, "
                         "or another rank or job made them: import what kvcl_mem_export of that rank returned", len);
    }
    return KVCL_OK;
}

/* Why a transport does not reach memory, where the transport does not say. */
static const char *no_part(const kvcl_peer_t *peer, kvcl_mem_kind_t kind)
{
    if (peer->ep == NULL) {
        return "there is no connection";
    }
    if (peer->ep->sockets) {
        return "TCP carries messages only";
    }
    if (peer->ops == &kvcl_xport_rdma) {
        return (kind == KVCL_MEM_HOST) ? "its owner could not register it with the port (ulimit -l there)"
                                       : "device memory, and its owner has no GPUDirect";
    }
    return (kind == KVCL_MEM_HOST) ? "its owner only registered it, and UCX_TLS leaves out cma there"
                                   : "device memory, which its owner's driver shares with no peer";
}

/* Map the memory, or make it gettable, if the transport can; otherwise its owner serves it. */
static void open_part(kvcl_peer_t *peer, const part_t parts[KVCL_ADDRESS_PARTS], uint64_t addr, uint64_t len,
                      kvcl_xport_rmem_t **rmem_p, kvcl_xport_rmem_attr_t *attr)
{
    const part_t  *part = &parts[peer->part];
    kvcl_status_t status;

    memset(attr, 0, sizeof(*attr));
    *rmem_p = NULL;
    if ((part->buf == NULL) || (peer->ep == NULL)) {
        return;
    }
    status = peer->ops->rmem_open(peer->ep, part->buf, part->len, addr, len, rmem_p, attr);
    if (status != KVCL_OK) {
        memset(attr, 0, sizeof(*attr));
        attr->why = (status == KVCL_ERR_NO_MEMORY)        ? "there was no memory for its key"
                    : (status == KVCL_ERR_NOT_REGISTERED) ? "its owner has freed it" : "its key is malformed";
        *rmem_p = NULL;
    }
}

/* The peer's segment, where the processes of this host may map it. Only a lie is an error: without the segment a
 * transport or the owner reaches the bytes. *result_p: the status of mapping it. */
static kvcl_status_t open_segment(kvcl_peer_t *peer, const part_t *segment, uint64_t len, bool write,
                                  kvcl_segment_view_t *view, kvcl_status_t *result_p)
{
    int           path = peer->ctx->config.path;
    char          why[KVCL_ERROR_MAX / 2];
    kvcl_status_t status;

    *result_p = KVCL_OK;
    memset(view, 0, sizeof(*view));
    if ((segment->len == 0) || (peer->ops == &kvcl_xport_loop) ||
        ((path != KVCL_PATH_AUTO) && (path != KVCL_PATH_SHM))) {
        return KVCL_OK;
    }
    status    = kvcl_segment_open(segment->buf, segment->len, len, write, view);
    *result_p = status;
    if (status == KVCL_ERR_PROTOCOL) {
        char name[48];
        snprintf(why, sizeof(why), "%s", kvcl_last_error());
        return kvcl_fail(status, "%s describes memory that it does not have: %s",
                         kvcl_comm_peer_name(peer, name, sizeof(name)), why);
    }
    if ((status == KVCL_ERR_ACCESS) && !peer->unmappable) {
        peer->unmappable = true;
        kvcl_log_warn("%s is on this host and its memory cannot be mapped, it is reached by messages: %s", peer->name,
                      kvcl_last_error());
    } else if (status != KVCL_OK) {
        kvcl_log_debug("%s: %s", peer->name, kvcl_last_error());
    }
    return KVCL_OK;
}

static bool is_reached(const kvcl_xport_rmem_attr_t *attr)
{
    return (attr->map != NULL) || attr->get || attr->put;
}

/* Neither mapped nor native. segment: the status of mapping its segment; between hosts that always fails. */
static const char *why_served(const kvcl_peer_t *peer, const kvcl_rregion_t *rregion, kvcl_status_t segment)
{
    if ((segment != KVCL_OK) && (peer->ops == &kvcl_xport_ucx)) {
        return (segment == KVCL_ERR_ACCESS)        ? "the kernel does not permit this process to map it"
               : (segment == KVCL_ERR_UNREACHABLE) ? "its owner is in another process namespace"
               : (segment == KVCL_ERR_NOT_FOUND)   ? "its owner has freed it" : "this process could not map it";
    }
    return (rregion->attr.why != NULL) ? rregion->attr.why : no_part(peer, rregion->kind);
}

static kvcl_status_t open_region(kvcl_peer_t *peer, const parsed_t *parsed, kvcl_rregion_t *rregion)
{
    bool          write  = (rregion->rights & KVCL_WRITE) != 0;
    kvcl_status_t status = KVCL_OK, segment = KVCL_OK;

    if (rregion->kind == KVCL_MEM_HOST) {
        status = open_segment(peer, &parsed->segment, rregion->len, write, &rregion->view, &segment);
    }
    if (rregion->view.addr != NULL) { /* no transport is given the peer's bytes */
        memset(&rregion->attr, 0, sizeof(rregion->attr));
        rregion->attr.map = rregion->view.addr;
    } else if (status == KVCL_OK) {
        open_part(peer, parsed->region, rregion->addr, rregion->len, &rregion->rmem, &rregion->attr);
    }
    rregion->why = is_reached(&rregion->attr) ? NULL : why_served(peer, rregion, segment);
    return status;
}

/* The control page: mapped, or its words can be got. */
static kvcl_status_t open_ctl(kvcl_peer_t *peer, const parsed_t *parsed, kvcl_rregion_t *rregion)
{
    kvcl_xport_rmem_attr_t attr   = {0};
    kvcl_status_t          segment;
    kvcl_status_t          status = open_segment(peer, &parsed->ctl_segment, parsed->ctl_len, false,
                                                 &rregion->ctl_view, &segment);
    const void             *page  = rregion->ctl_view.addr;

    if ((status == KVCL_OK) && (page == NULL)) {
        open_part(peer, parsed->ctl, parsed->ctl_addr, parsed->ctl_len, &rregion->ctl_rmem, &attr);
        page = attr.map;
    }
    if (page != NULL) {
        rregion->ctl = (const _Atomic uint64_t *)page + rregion->id;
    } else {
        rregion->attr.map = NULL; /* revocation is seen by getting the word, or the owner serves */
        rregion->attr.get = rregion->attr.get && attr.get;
        rregion->attr.put = rregion->attr.put && attr.get;
        rregion->why      = is_reached(&rregion->attr) ? NULL : "its control word cannot be read";
    }
    return status;
}

static void shut(kvcl_rregion_t *rregion);

/* Map what can be mapped; rregion's description is parsed already and is not written. */
static kvcl_status_t open_parts(kvcl_peer_t *peer, const parsed_t *parsed, kvcl_rregion_t *rregion)
{
    kvcl_status_t status;

    rregion->peer = peer;
    status        = open_region(peer, parsed, rregion);
    /* A peer's device memory is mapped within one process only; then it is reached as local device memory. */
    if ((rregion->attr.map != NULL) && (rregion->kind != KVCL_MEM_HOST) &&
        (kvcl_copier_open(rregion->kind, rregion->attr.map, rregion->len, &rregion->copier) != KVCL_OK)) {
        rregion->attr.map = NULL;
        rregion->why      = is_reached(&rregion->attr) ? NULL : "device memory, and this process has no driver for it";
    }
    if ((status == KVCL_OK) && is_reached(&rregion->attr)) {
        status = open_ctl(peer, parsed, rregion);
    }
    if (status != KVCL_OK) {
        shut(rregion);
    }
    return status;
}

kvcl_status_t kvcl_rregion_open(kvcl_peer_t *peer, const void *buf, size_t len, kvcl_rregion_t *rregion,
                                size_t *used_p)
{
    parsed_t      parsed;
    kvcl_status_t status;

    kvcl_assert_locked(peer->ctx);
    status = parse(buf, len, rregion, &parsed, used_p);
    if (status == KVCL_OK) {
        status = kvcl_region_authentic(peer, buf, *used_p);
    }
    return (status == KVCL_OK) ? open_parts(peer, &parsed, rregion) : status;
}

/* Other threads check ranges against the description without a lock: it is parsed into another one here. A lie is not
 * opened: each operation fails with it. */
kvcl_status_t kvcl_rregion_ready(kvcl_rregion_t *rregion, kvcl_peer_t *peer)
{
    kvcl_rregion_t again;
    parsed_t       parsed;
    size_t         used;
    kvcl_status_t  status;

    kvcl_assert_locked(peer->ctx);
    if ((rregion->packed == NULL) || rregion->opened) {
        return KVCL_OK;
    }
    status = parse(rregion->packed, rregion->packed_len, &again, &parsed, &used);
    if (status == KVCL_OK) { /* kvcl_rmem_import has checked its MAC */
        status = open_parts(peer, &parsed, rregion);
    }
    rregion->opened = (status == KVCL_OK);
    return status;
}

kvcl_mem_path_t kvcl_rregion_path(const kvcl_rregion_t *rregion, bool put)
{
    kvcl_assert_locked(rregion->peer->ctx);
    return (rregion->attr.map != NULL)                     ? kvcl_mem_path_mapped(rregion->peer)
           : (put ? rregion->attr.put : rregion->attr.get) ? KVCL_MEM_PATH_NATIVE : KVCL_MEM_PATH_SERVED;
}

const char *kvcl_rregion_why(const kvcl_rregion_t *rregion, bool put)
{
    return (rregion->why != NULL)       ? rregion->why
           : (put && rregion->attr.get) ? rregion->attr.why_put : rregion->attr.why;
}

const char *kvcl_rregion_mechanism(const kvcl_rregion_t *rregion)
{
    const char *native = rregion->attr.native;

    return ((rregion->kind != KVCL_MEM_HOST) && (rregion->peer != NULL) && (rregion->peer->ops == &kvcl_xport_ucx))
                   ? "cuda_ipc" : native;
}

static void shut(kvcl_rregion_t *rregion)
{
    rregion->opened = false;
    kvcl_copier_close(rregion->copier);
    rregion->copier = NULL;
    if (rregion->peer == NULL) {
        return;
    }
    kvcl_segment_close(&rregion->view);
    kvcl_segment_close(&rregion->ctl_view);
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
    rregion->why      = NULL;
    rregion->live_ns  = 0;
    memset(&rregion->attr, 0, sizeof(rregion->attr));
}

void kvcl_rregion_lost(kvcl_rregion_t *rregion)
{
    if (rregion->peer != NULL) {
        kvcl_assert_locked(rregion->peer->ctx);
    }
    if (rregion->attr.map == NULL) {
        shut(rregion);
    }
}

void kvcl_rregion_close(kvcl_rregion_t *rregion)
{
    if (rregion->peer != NULL) {
        kvcl_assert_locked(rregion->peer->ctx);
    }
    free(rregion->packed);
    rregion->packed = NULL;
    shut(rregion);
}
