/*
 * kvcl_ep_moves: for each slot that gets another expert, where the weights come from; ep_rounds.c decides when.
 *
 * Layer by layer, the slots of the old placement are listed by expert; a slot's source is the nearest of its expert's
 * list, among equals that of the rank that sends least so far. Weights that a rank is already to receive are copied
 * there.
 *
 * Pure but for one allocation; no lock.
 */
#include "ep/ep_moves.h"

#include "base/error.h"
#include "base/structs.h"

#include <stdlib.h>

typedef struct search {
    const kvcl_ep_shape_t *s;
    kvcl_ep_schedule_t    schedule;
    uint32_t              *first; /* [experts + 1]: where the slots of each expert begin in list */
    uint32_t              *list;  /* [slots]: of the old placement on active ranks, by expert, ascending */
    uint32_t              *sent;  /* [ranks]: moves so far */
    uint32_t              *by;    /* [slots]: the number of the move that fills each slot of this layer */
    void                  *memory;
} search_t;

static kvcl_status_t check_inactive(const kvcl_ep_shape_t *s, const int32_t *placement)
{
    size_t   n = (size_t)s->layers * s->slots, i;
    uint32_t rank;

    for (i = 0; i < n; ++i) {
        rank = (uint32_t)(i % s->slots) / s->per_rank;
        if ((placement[i] != KVCL_EP_NONE) && !kvcl_ep_is_active(s, rank)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM,
                             "ep_moves: layer %zu: placement has expert %d in slot %zu of rank %u, which is not active",
                             i / s->slots, (int)placement[i], i % s->slots, rank);
        }
    }
    return KVCL_OK;
}

static int needs_move(int32_t old, int32_t expert)
{
    return (expert != KVCL_EP_NONE) && (expert != old);
}

static size_t count_moves(const kvcl_ep_shape_t *s, const int32_t *old, const int32_t *placement)
{
    size_t n = (size_t)s->layers * s->slots, moves = 0, i;

    for (i = 0; i < n; ++i) {
        moves += (size_t)needs_move(old[i], placement[i]);
    }
    return moves;
}

/* The larger elements first: each array then is aligned. */
static kvcl_status_t open_search(search_t *f, size_t n)
{
    const kvcl_ep_shape_t *s = f->s;
    kvcl_ep_schedule_t    *d = &f->schedule;
    size_t                words = ((2 * (size_t)s->ranks) + 63) / 64, bytes;

    bytes = (n * (sizeof(*d->items) + sizeof(*d->pairs) + sizeof(*d->moves))) +
            (s->ranks * words * sizeof(*d->busy)) +
            (sizeof(uint32_t) * ((size_t)s->experts + 1 + s->slots + s->ranks + s->slots));
    f->memory = malloc(bytes);
    if (f->memory == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "ep_moves: no memory: %zu bytes for %zu moves", bytes, n);
    }
    d->n     = 0;
    d->words = (uint32_t)words;
    d->items = f->memory;
    d->pairs = (kvcl_ep_pair_t *)(void *)(d->items + n);
    d->moves = (kvcl_ep_move_t *)(void *)(d->pairs + n);
    d->busy  = (uint64_t *)(void *)(d->moves + n);
    f->first = (uint32_t *)(void *)(d->busy + (s->ranks * words));
    f->list  = f->first + s->experts + 1;
    f->sent  = f->list + s->slots;
    f->by    = f->sent + s->ranks;
    return KVCL_OK;
}

/* Fill first and list: first[e] is the end of e's part until the slots are filled in, from the last one down. */
static void list_sources(const search_t *f, const int32_t *old)
{
    const kvcl_ep_shape_t *s = f->s;
    uint32_t              i, slot;

    for (i = 0; i <= s->experts; ++i) {
        f->first[i] = 0;
    }
    for (slot = 0; slot < s->slots; ++slot) {
        if ((old[slot] != KVCL_EP_NONE) && kvcl_ep_is_active(s, slot / s->per_rank)) {
            ++f->first[old[slot]];
        }
    }
    for (i = 1; i <= s->experts; ++i) {
        f->first[i] += f->first[i - 1];
    }
    for (slot = s->slots; slot > 0; --slot) {
        if ((old[slot - 1] != KVCL_EP_NONE) && kvcl_ep_is_active(s, (slot - 1) / s->per_rank)) {
            f->list[--f->first[old[slot - 1]]] = slot - 1;
        }
    }
}

static uint32_t nearness(const kvcl_ep_shape_t *s, uint32_t from, uint32_t to)
{
    return (from == to) ? KVCL_EP_FROM_RANK
                        : (from / s->per_host == to / s->per_host) ? KVCL_EP_FROM_HOST : KVCL_EP_FROM_OTHER;
}

/* The nearest slot with the expert, into move->source and kind; the store if there is none. */
static void find_source(const search_t *f, kvcl_ep_move_t *move)
{
    uint32_t per_rank = f->s->per_rank, to = move->destination / per_rank, i, rank, kind;

    move->source = KVCL_EP_NONE;
    move->kind   = KVCL_EP_FROM_STORE;
    for (i = f->first[move->expert]; i < f->first[move->expert + 1]; ++i) {
        rank = f->list[i] / per_rank;
        kind = nearness(f->s, rank, to);
        if ((kind < move->kind) ||
            ((kind == move->kind) && (f->sent[rank] < f->sent[(uint32_t)move->source / per_rank]))) {
            move->source = (int32_t)f->list[i];
            move->kind   = kind;
        }
    }
}

/* A slot of the same rank, before this one, that another move fills with the same expert. */
static void find_rider(const search_t *f, const int32_t *old, const int32_t *placement, kvcl_ep_move_t *move)
{
    uint32_t slot = move->destination - (move->destination % f->s->per_rank);

    for (; slot < move->destination; ++slot) {
        if ((placement[slot] == (int32_t)move->expert) && needs_move(old[slot], placement[slot])) {
            move->source = (int32_t)slot;
            move->kind   = KVCL_EP_FROM_MOVE;
            move->round  = f->by[slot];
            return;
        }
    }
}

static void search_layer(search_t *f, uint32_t layer, const int32_t *old, const int32_t *placement)
{
    kvcl_ep_schedule_t *d = &f->schedule;
    kvcl_ep_move_t     *move;
    uint32_t           slot;

    list_sources(f, old);
    for (slot = 0; slot < f->s->slots; ++slot) {
        if (!needs_move(old[slot], placement[slot])) {
            continue;
        }
        move  = &d->moves[d->n];
        *move = (kvcl_ep_move_t){.layer = layer, .expert = (uint32_t)placement[slot], .destination = slot};
        find_source(f, move);
        if (move->kind != KVCL_EP_FROM_RANK) {
            find_rider(f, old, placement, move);
        }
        if (kvcl_ep_has_peer(move)) {
            ++f->sent[(uint32_t)move->source / f->s->per_rank];
        }
        f->by[slot] = (uint32_t)d->n++;
    }
}

static kvcl_status_t make_moves(search_t *f, const int32_t *old, const int32_t *placement, uint32_t *rounds_p)
{
    const kvcl_ep_shape_t *s = f->s;
    kvcl_status_t         status = open_search(f, count_moves(s, old, placement));
    uint32_t              l, r;

    if (status != KVCL_OK) {
        return status;
    }
    for (r = 0; r < s->ranks; ++r) {
        f->sent[r] = 0;
    }
    for (l = 0; l < s->layers; ++l) {
        search_layer(f, l, &old[(size_t)l * s->slots], &placement[(size_t)l * s->slots]);
    }
    *rounds_p = kvcl_ep_rounds(s, &f->schedule);
    return KVCL_OK;
}

static kvcl_status_t check_call(const kvcl_ep_shape_t *s, const int32_t *old, const int32_t *placement,
                                const void *moves, size_t stride, size_t cap, const size_t *n_p)
{
    kvcl_status_t status;

    if ((n_p == NULL) || ((moves == NULL) && (cap > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "ep_moves: moves or n_p is NULL");
    }
    status = kvcl_stride_check(stride, KVCL_UP_TO(kvcl_ep_move_t, round), "kvcl_ep_move_t", "ep_moves");
    if ((status != KVCL_OK) || ((status = kvcl_ep_placement_check(s, old, "ep_moves", "old")) != KVCL_OK) ||
        ((status = kvcl_ep_placement_check(s, placement, "ep_moves", "placement")) != KVCL_OK)) {
        return status;
    }
    return check_inactive(s, placement);
}

kvcl_status_t kvcl_ep_moves(const kvcl_ep_params_t *params, const int32_t *old, const int32_t *placement,
                            kvcl_ep_move_t *moves, size_t stride, size_t cap, size_t *n_p, uint32_t *rounds_p)
{
    kvcl_ep_shape_t s;
    search_t        f      = {.s = &s};
    kvcl_status_t   status = kvcl_ep_take(params, "ep_moves", &s);
    uint32_t        rounds = 0;
    size_t          i;

    if ((status != KVCL_OK) ||
        ((status = check_call(&s, old, placement, moves, stride, cap, n_p)) != KVCL_OK)) {
        return status;
    }
    i = count_moves(&s, old, placement);
    if (i > cap) {
        *n_p = i;
        return kvcl_fail(KVCL_ERR_TRUNCATED, "ep_moves: %zu moves, there is room for %zu", i, cap);
    }
    status = make_moves(&f, old, placement, &rounds);
    if (status != KVCL_OK) {
        return status;
    }
    for (i = 0; i < f.schedule.n; ++i) {
        kvcl_struct_out_at(moves, i, stride, &f.schedule.moves[f.schedule.items[i].index], sizeof(*moves));
    }
    *n_p = f.schedule.n;
    if (rounds_p != NULL) {
        *rounds_p = rounds;
    }
    free(f.memory);
    return KVCL_OK;
}
