/*
 * Staging memory (coll_stage.h): the slots of this rank's segment, and the views of its peers'.
 *
 * The segment: a page whose first word is the count of failures, then the slots. Only its owner writes to it. A
 * description from a peer is hostile: kvcl_segment_open() checks it, and the number of slots is computed here from the
 * size of the communicator. The bytes of a slot are the peer's word, as those of a message are.
 */
#include "config.h"
#include "base/fence.h"
#include "base/log.h"
#include "coll/coll_run.h"
#include "coll/coll_stage.h"
#include "weave/pieces.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 4096 }; /* bytes before the slots */

static size_t bytes_of(uint32_t slots)
{
    return FIRST + ((size_t)slots * KVCL_COLL_STAGE_SLOT);
}

static char *slot_at(void *segment, uint32_t slot)
{
    return (char *)segment + bytes_of(slot);
}

/* All ranks compute the same. */
static void set_slots(kvcl_coll_stage_t *stage, uint32_t size)
{
    const uint32_t peers = size - 1;

    stage->window = KVCL_COLL_STAGE_SLOTS / peers;
    stage->window = (stage->window > KVCL_COLL_STAGE_WINDOW) ? KVCL_COLL_STAGE_WINDOW : stage->window;
    stage->window = (stage->window > 0) ? stage->window : 1;
    stage->slots  = peers * stage->window;
    stage->slots  = (stage->slots < KVCL_COLL_STAGE_SLOTS) ? stage->slots : KVCL_COLL_STAGE_SLOTS;
}

static void free_all(kvcl_coll_stage_t *stage)
{
    uint32_t i;

    for (i = 0; i < stage->slots; ++i) {
        stage->free[i] = (uint8_t)(stage->slots - 1 - i);
        stage->use[i]  = (kvcl_coll_stage_slot_t){0, 0, 0};
    }
    stage->n_free = stage->slots;
}

void kvcl_coll_stage_make(kvcl_comm_h comm, kvcl_coll_comm_t *cc)
{
    kvcl_context_h    ctx   = comm->ctx;
    const uint32_t    size  = (uint32_t)comm->size;
    kvcl_coll_stage_t stage = {.tried = true, .segment = {.fd = -1}};
    kvcl_status_t     status;
    bool              tried;

    pthread_mutex_lock(&ctx->boot_lock); /* another thread may be making it */
    kvcl_lock(ctx);
    tried = cc->stage.tried;
    kvcl_unlock(ctx);
    if (!tried) {
        set_slots(&stage, size);
        free_all(&stage);
        stage.peers = calloc(size, sizeof(*stage.peers));
        status      = (stage.peers == NULL) ? KVCL_ERR_NO_MEMORY
                                            : kvcl_segment_create(&stage.segment, bytes_of(stage.slots),
                                                                  KVCL_SEGMENT_READ_ONLY | KVCL_SEGMENT_HUGE);
        if ((status != KVCL_OK) ||
            (kvcl_segment_pack(&stage.segment, stage.packed, sizeof(stage.packed)) != sizeof(stage.packed))) {
            kvcl_log_info("a communicator of %u ranks moves plain bytes by messages: %s", size,
                          (status == KVCL_OK) ? "peers cannot map memory of this process" : kvcl_status_text(status));
            kvcl_segment_destroy(&stage.segment);
            free(stage.peers);
            stage.peers = NULL;
        }
        kvcl_lock(ctx);
        cc->stage = stage;
        kvcl_unlock(ctx);
    }
    pthread_mutex_unlock(&ctx->boot_lock);
}

void kvcl_coll_stage_free(kvcl_coll_stage_t *stage, uint32_t size)
{
    uint32_t i;

    if (stage->peers != NULL) {
        for (i = 0; i < size; ++i) {
            kvcl_segment_close(&stage->peers[i].view);
        }
        kvcl_segment_destroy(&stage->segment);
        free(stage->peers);
        stage->peers = NULL;
    }
}

void kvcl_coll_stage_hold(kvcl_coll_op_t *op)
{
    if (op->staged) {
        op->cc->stage.holder = op;
    }
}

static _Atomic uint64_t *count_of(const kvcl_coll_stage_t *stage)
{
    return stage->segment.addr;
}

void kvcl_coll_stage_release(kvcl_coll_op_t *op, bool failed)
{
    kvcl_coll_stage_t *stage = &op->cc->stage;

    if (stage->holder != op) {
        return;
    }
    if (failed) { /* a peer may still be reading */
        (void)atomic_fetch_add(count_of(stage), 1);
    }
    free_all(stage);
    stage->holder = NULL;
}

uint64_t kvcl_coll_stage_count(const kvcl_coll_stage_t *stage)
{
    return (stage->peers != NULL) ? atomic_load(count_of(stage)) : 0;
}

/* A slot that has these bytes already, for another peer. */
static uint8_t find_slot(const kvcl_coll_stage_t *stage, uint64_t off, uint64_t len)
{
    uint8_t i;

    for (i = 0; i < stage->slots; ++i) {
        if ((stage->use[i].refs > 0) && (stage->use[i].off == off) && (stage->use[i].len == len)) {
            return i;
        }
    }
    return KVCL_COLL_STAGE_NO_SLOT;
}

uint8_t kvcl_coll_stage_write(kvcl_coll_op_t *op, const kvcl_coll_peer_t *to, uint32_t index, const void *bytes,
                         uint64_t off, uint64_t len)
{
    kvcl_coll_stage_t *stage = &op->cc->stage;
    uint8_t      slot;

    if ((stage->holder != op) || stage->peers[to->rank].refused || (len > KVCL_COLL_STAGE_SLOT)) {
        return KVCL_COLL_STAGE_NO_SLOT;
    }
    slot = find_slot(stage, off, len);
    if (slot == KVCL_COLL_STAGE_NO_SLOT) {
        if (stage->n_free == 0) {
            return KVCL_COLL_STAGE_NO_SLOT;
        }
        slot = stage->free[--stage->n_free];
        kvcl_copy_bytes(slot_at(stage->segment.addr, slot), bytes, len);
        stage->use[slot] = (kvcl_coll_stage_slot_t){.off = off, .len = len};
    }
    ++stage->use[slot].refs;
    op->slot_of[index] = slot;
    return slot;
}

void kvcl_coll_stage_changed(kvcl_coll_op_t *op, uint64_t off, uint64_t len)
{
    kvcl_coll_stage_t *stage = &op->cc->stage;
    uint32_t     i;

    for (i = 0; (stage->holder == op) && (i < stage->slots); ++i) {
        if ((stage->use[i].off < off + len) && (off < stage->use[i].off + stage->use[i].len)) {
            stage->use[i].len = 0;
        }
    }
}

void kvcl_coll_stage_acked(kvcl_coll_op_t *op, uint32_t index)
{
    kvcl_coll_stage_t *stage = &op->cc->stage;
    uint8_t      slot;

    if ((stage->holder != op) || (op->slot_of[index] == KVCL_COLL_STAGE_NO_SLOT)) {
        return;
    }
    slot               = op->slot_of[index];
    op->slot_of[index] = KVCL_COLL_STAGE_NO_SLOT;
    if (--stage->use[slot].refs == 0) {
        stage->free[stage->n_free++] = slot;
    }
}

kvcl_status_t kvcl_coll_stage_describe(kvcl_coll_comm_t *cc, uint32_t rank, const void *packed, size_t len)
{
    kvcl_coll_stage_t      *stage = &cc->stage;
    kvcl_coll_stage_peer_t *peer;
    kvcl_status_t     status;

    if (len != KVCL_SEGMENT_WIRE_BYTES) {
        return KVCL_ERR_PROTOCOL;
    }
    if (stage->peers == NULL) {
        return KVCL_OK;
    }
    peer = &stage->peers[rank];
    if (peer->known && (memcmp(peer->packed, packed, sizeof(peer->packed)) == 0)) {
        return KVCL_OK;
    }
    kvcl_segment_close(&peer->view);
    memcpy(peer->packed, packed, sizeof(peer->packed));
    peer->known = true;
    status      = kvcl_segment_open(packed, len, bytes_of(stage->slots), false, &peer->view);
    if (status != KVCL_OK) {
        kvcl_log_info("rank %u gives plain bytes by messages: %s", rank, kvcl_last_error());
    }
    return (status == KVCL_ERR_PROTOCOL) ? status : KVCL_OK;
}

const void *kvcl_coll_stage_read(const kvcl_coll_comm_t *cc, uint32_t rank, uint32_t slot, uint64_t len)
{
    const kvcl_coll_stage_t *stage = &cc->stage;

    if ((stage->peers == NULL) || (stage->peers[rank].view.addr == NULL) || (slot >= stage->slots) ||
        (len > KVCL_COLL_STAGE_SLOT)) {
        return NULL;
    }
    return slot_at(stage->peers[rank].view.addr, slot);
}

bool kvcl_coll_stage_is_valid(const kvcl_coll_comm_t *cc, uint32_t rank, uint64_t count)
{
    _Atomic uint64_t *word = cc->stage.peers[rank].view.addr;

    kvcl_fence(memory_order_acquire); /* the bytes were read before */
    return atomic_load_explicit(word, memory_order_acquire) == count;
}
