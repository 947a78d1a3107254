/*
 * Machines of src/view that send each other their messages, without loss, as fast as their receivers take them. Time
 * is the test's. One of them may be cut off.
 */
#ifndef KVCL_TEST_VIEWS_RANKS_H
#define KVCL_TEST_VIEWS_RANKS_H

#include "view/views.h"

#include "test_base.h"

#define MS UINT64_C(1000000)

enum { RANKS_MAX = 4, LETTERS = 256, TICK_MS = 10 };

typedef struct letter {
    uint32_t        from, to;
    kvcl_view_msg_t msg;
    kvcl_view_t     view;
} letter_t;

static kvcl_views_t ranks[RANKS_MAX];
static uint32_t     slots[RANKS_MAX], n_ranks, cut_off; /* cut_off: KVCL_SLOT_NONE: none is */
static letter_t     letters[LETTERS];                   /* a ring */
static unsigned     first, n_letters;
static uint64_t     now_ns;

static void on_send(void *arg, uint32_t to, const kvcl_view_msg_t *msg)
{
    const uint32_t from = *(const uint32_t *)arg;
    letter_t       *letter;

    if ((from == cut_off) || (to == cut_off)) {
        return;
    }
    ck_assert_uint_lt(n_letters, LETTERS);
    letter  = &letters[(first + n_letters++) % LETTERS];
    *letter = (letter_t){.from = from, .to = to, .msg = *msg};
    if (msg->view != NULL) {
        letter->view = *msg->view;
    }
}

static void on_event(void *arg, kvcl_views_event_t event, const kvcl_rankset_t *set)
{
    (void)arg;
    (void)event;
    (void)set;
}

static void deliver(void)
{
    while (n_letters > 0) {
        letter_t *letter = &letters[first];

        first            = (first + 1) % LETTERS;
        n_letters       -= 1;
        letter->msg.view = (letter->msg.view != NULL) ? &letter->view : NULL;
        (void)kvcl_views_lease_of(&ranks[letter->to], letter->from, ranks[letter->from].times.lease_ns);
        kvcl_views_take(&ranks[letter->to], &letter->msg, now_ns);
    }
}

static void tick(void)
{
    uint32_t slot;

    now_ns += TICK_MS * MS;
    for (slot = 0; slot < n_ranks; ++slot) {
        kvcl_views_tick(&ranks[slot], now_ns);
        deliver();
    }
}

static bool owns(uint32_t slot)
{
    return kvcl_views_has_lease(&ranks[slot], now_ns);
}

/* n ranks, which have been in their first view for a second. odd: the times of the last one. */
static void begin(uint32_t n, const kvcl_views_times_t *odd)
{
    static const kvcl_views_ops_t   ops                     = {on_send, on_event};
    static const kvcl_views_times_t times                   = KVCL_VIEWS_TIMES;
    const uint64_t                  incarnations[RANKS_MAX] = {1, 2, 3, 4};
    kvcl_view_t                     view;
    uint32_t                        slot;
    unsigned                        i;

    now_ns    = 1000 * MS;
    n_ranks   = n;
    first     = 0;
    n_letters = 0;
    cut_off   = KVCL_SLOT_NONE;
    kvcl_view_first(&view, incarnations, n);
    for (slot = 0; slot < n; ++slot) {
        slots[slot] = slot;
        kvcl_views_init(&ranks[slot], slot, slot + 1, &view, ((odd != NULL) && (slot == n - 1)) ? odd : &times, &ops,
                        &slots[slot], now_ns);
    }
    for (i = 0; i < 100; ++i) {
        tick();
    }
    for (slot = 0; slot < n; ++slot) {
        ck_assert(owns(slot));
    }
}

#endif
