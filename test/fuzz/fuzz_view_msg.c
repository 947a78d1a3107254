/*
 * Messages about views from a hostile peer: unpacked, packed again (a message has one form only), and taken by a rank,
 * whose view must stay one. With an even first byte the rest is drawn upon to make well-formed messages, so that the
 * machine is reached; with an odd one the sender is made plausible, so that the rest is read.
 */
#include "config.h"

#include "base/wirebuf.h"
#include "view/view_wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, ME = 0, FROM = 2, DEAD_AT = 68 /* the first set, behind the fixed fields */ };

static const uint64_t incarnations[RANKS] = {11, 12, 13, 14};
static kvcl_views_t   views;
static kvcl_view_t    view, drawn_view;

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void drop(void *arg, uint32_t to, const kvcl_view_msg_t *msg)
{
    uint8_t buf[KVCL_VIEW_MSG_MAX];

    (void)arg;
    must(to < KVCL_SLOTS_MAX);
    must(kvcl_view_msg_pack(msg, buf, sizeof(buf)) > 0);
}

static void ignore(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *ranks)
{
    (void)arg;
    (void)event;
    (void)ranks;
}

static kvcl_rankset_t draw_set(kvcl_rd_t *rd)
{
    return (kvcl_rankset_t){{kvcl_rd_u8(rd) % (1u << RANKS)}};
}

static void draw_change(kvcl_rd_t *rd, kvcl_view_change_t *change)
{
    uint32_t i;

    change->gone    = draw_set(rd);
    change->n_joins = kvcl_rd_u8(rd) % 3;
    for (i = 0; i < change->n_joins; ++i) {
        change->joins[i] = (kvcl_view_join_t){kvcl_rd_u8(rd) % 6, 1 + kvcl_rd_u8(rd)};
    }
}

static void draw_view(kvcl_rd_t *rd)
{
    uint32_t slot;

    memset(&drawn_view, 0, sizeof(drawn_view));
    drawn_view.number  = 1 + (kvcl_rd_u8(rd) % 4);
    drawn_view.members = draw_set(rd);
    kvcl_rankset_add(&drawn_view.members, FROM);
    KVCL_RANKSET_EACH(&drawn_view.members, slot) {
        drawn_view.incarnation[slot] = incarnations[slot] + (kvcl_rd_u8(rd) % 8 == 1);
    }
    drawn_view.incarnation[FROM] = incarnations[FROM];
    drawn_view.id                = kvcl_view_hash(&drawn_view);
}

static size_t draw(const uint8_t *data, size_t size, uint8_t *buf, size_t cap)
{
    kvcl_view_msg_t msg = {.from = FROM, .incarnation = incarnations[FROM]};
    kvcl_rd_t       rd;

    kvcl_rd_init(&rd, data, size);
    msg.type   = (kvcl_view_msg_type_t)(KVCL_VIEW_BEAT + (kvcl_rd_u8(&rd) / 2 % KVCL_VIEW_COMMIT));
    msg.number = views.view.number + (kvcl_rd_u8(&rd) % 8 == 1);
    msg.id     = views.view.id;
    msg.stamp  = kvcl_rd_u16(&rd);
    msg.echo   = kvcl_rd_u16(&rd);
    msg.ballot = 1 + FROM + ((uint64_t)(kvcl_rd_u8(&rd) % 3) * KVCL_SLOTS_MAX);
    msg.lease  = kvcl_rd_u8(&rd) % 2;
    msg.phase  = kvcl_rd_u8(&rd);
    msg.dead   = draw_set(&rd);
    msg.leaving   = draw_set(&rd);
    msg.proposers = draw_set(&rd);
    msg.excused   = draw_set(&rd);
    draw_change(&rd, &msg.change);
    draw_view(&rd);
    msg.view = &drawn_view;
    return kvcl_view_msg_pack(&msg, buf, cap);
}

/* The length that the sets of a beat make, where there are as many bytes. */
static size_t plausible(uint8_t *buf, size_t len)
{
    kvcl_wr_t wr;
    size_t    at = DEAD_AT, set;

    kvcl_wr_init(&wr, buf, len);
    kvcl_wr_u8(&wr, (uint8_t)(KVCL_VIEW_BEAT + (buf[0] / 2 % KVCL_VIEW_COMMIT)));
    kvcl_wr_u8(&wr, (len > 1) ? buf[1] % 2 : 0);
    kvcl_wr_u16(&wr, 0);
    kvcl_wr_u32(&wr, FROM);
    kvcl_wr_u64(&wr, incarnations[FROM]);
    for (set = 0; (set < 2) && (at < len); ++set) { /* few words, of few bits */
        buf[at] %= 3;
        for (at += 1, wr.pos = buf + at; (wr.pos < buf + at + (8 * (size_t)buf[at - 1])) && (wr.pos < buf + len);) {
            kvcl_wr_u8(&wr, *wr.pos % 2);
        }
        at += 8 * (size_t)buf[at - 1];
    }
    return (at < len) ? at : len;
}

static void begin(void)
{
    static const kvcl_views_ops_t   ops   = {.send = drop, .event = ignore};
    static const kvcl_views_times_t times = KVCL_VIEWS_TIMES;

    kvcl_view_first(&view, incarnations, RANKS);
    kvcl_views_init(&views, ME, incarnations[ME], &view, &times, &ops, NULL, 1000);
}

static void take(const uint8_t *bytes, size_t len, uint64_t now)
{
    static uint8_t  again[KVCL_VIEW_MSG_MAX];
    kvcl_view_msg_t msg;

    if (kvcl_view_msg_unpack(bytes, len, FROM, incarnations[FROM], KVCL_SLOTS_MAX, &msg, &view) != KVCL_OK) {
        return;
    }
    must((kvcl_view_msg_pack(&msg, again, sizeof(again)) == len) && (memcmp(again, bytes, len) == 0));
    kvcl_views_take(&views, &msg, now);
    kvcl_views_tick(&views, now + 50000000);
    must(views.view.id == kvcl_view_hash(&views.view));
    must((views.state == KVCL_VIEWS_OUT) || kvcl_view_has(&views.view, ME, incarnations[ME]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t made[KVCL_VIEW_MSG_MAX];
    uint8_t       *copy; /* separate memory, so that ASan detects reads past its end */
    uint64_t       now = 100000000;
    size_t         at, step = 24, len = 0;

    begin();
    if ((size == 0) || (data[0] % 2 != 0)) {
        copy = malloc(size + 1);
        if (size > 0) {
            memcpy(copy, data, size);
            len = plausible(copy, size);
        }
        take(copy, len, now);
        take(copy, size, now);
        free(copy);
        return 0;
    }
    for (at = 1; at < size; at += step, now += 100000000) { /* several messages, one after the other */
        take(made, draw(data + at, (size - at < step) ? size - at : step, made, sizeof(made)), now);
    }
    return 0;
}
