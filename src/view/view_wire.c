/*
 * The messages of the machine as bytes: see view_wire.h.
 */
#include "config.h"
#include "view/view_wire.h"
#include "base/error.h"
#include "base/wirebuf.h"

#include <string.h>

typedef struct parts {
    bool change, proposers, excused, view;
} parts_t;

static parts_t parts_of(kvcl_view_msg_type_t type)
{
    return (parts_t){
        .change    = (type == KVCL_VIEW_JOIN) || (type == KVCL_VIEW_PROMISE) || (type == KVCL_VIEW_ACCEPT),
        .proposers = (type == KVCL_VIEW_PROMISE) || (type == KVCL_VIEW_ACCEPT),
        .excused   = (type == KVCL_VIEW_ACCEPT),
        .view      = (type == KVCL_VIEW_COMMIT),
    };
}

/* ---- writing ---- */

static void put_set(kvcl_wr_t *wr, const kvcl_rankset_t *set)
{
    unsigned n = KVCL_RANKSET_WORDS, i;

    while ((n > 0) && (set->word[n - 1] == 0)) {
        --n;
    }
    kvcl_wr_u8(wr, (uint8_t)n);
    for (i = 0; i < n; ++i) {
        kvcl_wr_u64(wr, set->word[i]);
    }
}

static void put_change(kvcl_wr_t *wr, const kvcl_view_change_t *change)
{
    uint32_t i;

    put_set(wr, &change->gone);
    kvcl_wr_u8(wr, (uint8_t)change->n_joins);
    for (i = 0; i < change->n_joins; ++i) {
        kvcl_wr_u32(wr, change->joins[i].slot);
        kvcl_wr_u64(wr, change->joins[i].incarnation);
    }
}

static void put_view(kvcl_wr_t *wr, const kvcl_view_t *view)
{
    uint32_t slot;

    kvcl_wr_u64(wr, view->number);
    kvcl_wr_u64(wr, view->id);
    put_set(wr, &view->members);
    KVCL_RANKSET_EACH(&view->members, slot) {
        kvcl_wr_u64(wr, view->incarnation[slot]);
    }
}

size_t kvcl_view_msg_pack(const kvcl_view_msg_t *msg, void *buf, size_t cap)
{
    const parts_t parts = parts_of(msg->type);
    kvcl_wr_t     wr;

    kvcl_wr_init(&wr, buf, cap);
    kvcl_wr_u8(&wr, (uint8_t)msg->type);
    kvcl_wr_u8(&wr, msg->lease ? 1 : 0);
    kvcl_wr_u16(&wr, 0);
    kvcl_wr_u32(&wr, msg->from);
    kvcl_wr_u64(&wr, msg->incarnation);
    kvcl_wr_u64(&wr, msg->number);
    kvcl_wr_u64(&wr, msg->id);
    kvcl_wr_u64(&wr, msg->stamp);
    kvcl_wr_u64(&wr, msg->echo);
    kvcl_wr_u64(&wr, msg->accepted);
    kvcl_wr_u64(&wr, msg->ballot);
    kvcl_wr_u32(&wr, msg->phase);
    put_set(&wr, &msg->dead);
    put_set(&wr, &msg->leaving);
    if (parts.change) {
        put_change(&wr, &msg->change);
    }
    if (parts.proposers) {
        put_set(&wr, &msg->proposers);
    }
    if (parts.excused) {
        put_set(&wr, &msg->excused);
    }
    if (parts.view) {
        put_view(&wr, msg->view);
    }
    return kvcl_wr_ok(&wr) ? kvcl_wr_len(&wr) : 0;
}

/* ---- reading: the reader fails where a value is not one that put_...() writes ---- */

static void must(kvcl_rd_t *rd, bool truth)
{
    rd->failed = rd->failed || !truth;
}

static void get_set(kvcl_rd_t *rd, kvcl_rankset_t *set)
{
    const unsigned n = kvcl_rd_u8(rd);
    unsigned       i;

    memset(set, 0, sizeof(*set));
    must(rd, n <= KVCL_RANKSET_WORDS);
    for (i = 0; (i < n) && kvcl_rd_ok(rd); ++i) {
        set->word[i] = kvcl_rd_u64(rd);
    }
    must(rd, (n == 0) || (kvcl_rd_ok(rd) && (set->word[n - 1] != 0)));
}

static void get_change(kvcl_rd_t *rd, kvcl_view_change_t *change)
{
    uint32_t i;

    get_set(rd, &change->gone);
    change->n_joins = kvcl_rd_u8(rd);
    must(rd, change->n_joins <= KVCL_VIEW_JOINS);
    for (i = 0; (i < change->n_joins) && kvcl_rd_ok(rd); ++i) {
        change->joins[i].slot        = kvcl_rd_u32(rd);
        change->joins[i].incarnation = kvcl_rd_u64(rd);
        must(rd, (change->joins[i].slot < KVCL_SLOTS_MAX) && (change->joins[i].incarnation != 0));
    }
}

static void get_view(kvcl_rd_t *rd, kvcl_view_t *view)
{
    uint32_t slot;

    memset(view, 0, sizeof(*view));
    view->number = kvcl_rd_u64(rd);
    view->id     = kvcl_rd_u64(rd);
    get_set(rd, &view->members);
    KVCL_RANKSET_EACH(&view->members, slot) {
        view->incarnation[slot] = kvcl_rd_u64(rd);
        must(rd, view->incarnation[slot] != 0);
    }
    must(rd, view->number != 0);
}

static void get_head(kvcl_rd_t *rd, kvcl_view_msg_t *msg)
{
    const uint8_t type = kvcl_rd_u8(rd), lease = kvcl_rd_u8(rd);

    must(rd, (type >= KVCL_VIEW_BEAT) && (type <= KVCL_VIEW_COMMIT) && (lease <= 1));
    must(rd, kvcl_rd_u16(rd) == 0);
    msg->type        = (kvcl_view_msg_type_t)type;
    msg->lease       = (lease == 1);
    msg->from        = kvcl_rd_u32(rd);
    msg->incarnation = kvcl_rd_u64(rd);
    msg->number      = kvcl_rd_u64(rd);
    msg->id          = kvcl_rd_u64(rd);
    msg->stamp       = kvcl_rd_u64(rd);
    msg->echo        = kvcl_rd_u64(rd);
    msg->accepted    = kvcl_rd_u64(rd);
    msg->ballot      = kvcl_rd_u64(rd);
    msg->phase       = kvcl_rd_u32(rd);
    get_set(rd, &msg->dead);
    get_set(rd, &msg->leaving);
}

/* Whoever takes the message keeps something for each slot of the job alone. Parts that it does not have are empty. */
static bool is_within(const kvcl_view_msg_t *msg, uint32_t n)
{
    kvcl_rankset_t all = msg->dead;
    uint32_t       i;

    kvcl_rankset_join(&all, &msg->leaving);
    kvcl_rankset_join(&all, &msg->change.gone);
    kvcl_rankset_join(&all, &msg->proposers);
    kvcl_rankset_join(&all, &msg->excused);
    for (i = 0; i < msg->change.n_joins; ++i) {
        kvcl_rankset_add(&all, msg->change.joins[i].slot);
    }
    if (msg->view != NULL) {
        kvcl_rankset_join(&all, &msg->view->members);
    }
    return kvcl_rankset_next(&all, n) == KVCL_SLOT_NONE;
}

kvcl_status_t kvcl_view_msg_unpack(const void *buf, size_t len, uint32_t from, uint64_t incarnation, uint32_t n,
                                   kvcl_view_msg_t *msg, kvcl_view_t *view)
{
    parts_t   parts;
    kvcl_rd_t rd;

    memset(msg, 0, sizeof(*msg));
    kvcl_rd_init(&rd, buf, len);
    get_head(&rd, msg);
    if (!kvcl_rd_ok(&rd)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a message about views has a head that no rank writes");
    }
    if ((msg->from != from) || (msg->incarnation != incarnation)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a message about views says that it is of rank %u, and came from rank %u",
                         (unsigned)msg->from, (unsigned)from);
    }
    parts = parts_of(msg->type);
    if (parts.change) {
        get_change(&rd, &msg->change);
    }
    if (parts.proposers) {
        get_set(&rd, &msg->proposers);
    }
    if (parts.excused) {
        get_set(&rd, &msg->excused);
    }
    if (parts.view && kvcl_rd_ok(&rd)) {
        get_view(&rd, view);
        msg->view = view;
    }
    if (!kvcl_rd_done(&rd)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a message about views of rank %u is cut off, too long, or has a value "
                         "out of range", (unsigned)from);
    }
    if (!is_within(msg, n)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a message about views of rank %u names a slot that a world of %u ranks "
                         "does not have: is KVCL_SLOTS the same on all ranks?", (unsigned)from, (unsigned)n);
    }
    if (parts.view && ((view->id != kvcl_view_hash(view)) || !kvcl_view_has(view, from, incarnation))) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "a view of rank %u lacks that rank, or has the id of another view",
                         (unsigned)from);
    }
    return KVCL_OK;
}
