/*
 * The decoder of events (ev_event.h). Owns the tables of their fields. Pure.
 *
 * Arrays, by position: vLLM's and SGLang's begin alike. Where SGLang has a map of further fields (its cache_salt), vLLM
 * has the adapter's name; the kinds of the values tell them apart. Maps, by name: also Mooncake's names. Mooncake may
 * send a field under both names, one of them empty: an empty or nil value sets nothing. Sources:
 * vllm/distributed/kv_events.py; sglang/srt/disaggregation/kv_events.py; Mooncake
 * docs/source/design/conductor/indexer-api-design.md.
 */
#include "config.h"

#include "sched/events/ev_event.h"

#include <string.h>

typedef enum field {
    F_NONE, F_TYPE, F_HASHES, F_PARENT, F_TOKENS, F_BLOCK_SIZE, F_LORA_ID, F_MEDIUM, F_LORA, F_EXTRA, F_GROUP, F_SALT,
    F_TENANT, F_BACKEND, F_MODEL, F_EVENT_ID, F_BASE, F_DP_RANK, F_MORE
} field_t;

static const struct {
    const char *name;
    field_t    field;
} names[] = {
    {"type", F_TYPE},
    {"event_type", F_TYPE},
    {"block_hashes", F_HASHES},
    {"seq_hashes", F_HASHES},
    {"parent_block_hash", F_PARENT},
    {"parent_hash", F_PARENT},
    {"token_ids", F_TOKENS},
    {"block_size", F_BLOCK_SIZE},
    {"lora_id", F_LORA_ID},
    {"medium", F_MEDIUM},
    {"lora_name", F_LORA},
    {"extra_keys", F_EXTRA},
    {"group_idx", F_GROUP},
    {"cache_salt", F_SALT},
    {"additional_salt", F_SALT},
    {"tenant_id", F_TENANT},
    {"backend_id", F_BACKEND},
    {"model_name", F_MODEL},
    {"event_id", F_EVENT_ID},
    {"base_block_idx", F_BASE},
    {"dp_rank", F_DP_RANK},
};

/* Behind the kind. F_LORA may be a map in its place: F_MORE. */
static const field_t stored_order[]  = {F_HASHES, F_PARENT, F_TOKENS, F_BLOCK_SIZE, F_LORA_ID, F_MEDIUM, F_LORA,
                                        F_EXTRA, F_GROUP};
static const field_t removed_order[] = {F_HASHES, F_MEDIUM, F_GROUP};

static const struct {
    const char     *name;
    kvcl_ev_kind_t kind;
} kinds[] = {
    {"BlockStored", KVCL_EV_STORED},
    {"BlockRemoved", KVCL_EV_REMOVED},
    {"AllBlocksCleared", KVCL_EV_CLEARED},
    {"stored", KVCL_EV_STORED},
    {"removed", KVCL_EV_REMOVED},
    {"cleared", KVCL_EV_CLEARED},
};

static kvcl_ev_kind_t kind_of(const kvcl_mp_item_t *item)
{
    size_t i;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        if (kvcl_mp_is(item, kinds[i].name, strlen(kinds[i].name))) {
            return kinds[i].kind;
        }
    }
    return KVCL_EV_UNKNOWN;
}

static field_t field_of(const kvcl_mp_item_t *item)
{
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (kvcl_mp_is(item, names[i].name, strlen(names[i].name))) {
            return names[i].field;
        }
    }
    return F_NONE;
}

/* ---- one field ---- */

static bool take_text(const kvcl_mp_item_t *item, kvcl_ev_text_t *text)
{
    if (item->kind != KVCL_MP_BYTES) {
        return false;
    }
    if (item->len > 0) {
        *text = (kvcl_ev_text_t){(const char *)item->bytes, item->len};
    }
    return true;
}

/* The list's values are behind its head; the caller goes past them. */
static bool take_list(const kvcl_mp_t *behind, const kvcl_mp_item_t *item, kvcl_ev_list_t *list)
{
    if (item->kind != KVCL_MP_ARRAY) {
        return false;
    }
    if (item->len > 0) {
        *list = (kvcl_ev_list_t){*behind, item->len};
    }
    return true;
}

static bool take_number(const kvcl_mp_item_t *item, uint64_t *value, bool *has)
{
    *value = item->number;
    *has   = (item->kind == KVCL_MP_UINT);
    return *has;
}

static bool take_u32(const kvcl_mp_item_t *item, uint32_t *value)
{
    *value = (uint32_t)item->number;
    return (item->kind == KVCL_MP_UINT) && (item->number <= UINT32_MAX);
}

static bool take_parent(const kvcl_mp_item_t *item, kvcl_ev_t *ev)
{
    ev->parent = *item;
    return (item->kind == KVCL_MP_UINT) || (item->kind == KVCL_MP_INT) || (item->kind == KVCL_MP_BYTES);
}

static bool take_map(const kvcl_mp_t *behind, uint32_t pairs, kvcl_ev_t *ev);

static bool take_field(const kvcl_mp_t *behind, const kvcl_mp_item_t *item, field_t field, kvcl_ev_t *ev)
{
    if (item->kind == KVCL_MP_NIL) {
        return true;
    }
    switch (field) {
    case F_HASHES:
        return take_list(behind, item, &ev->hashes);
    case F_PARENT:
        return take_parent(item, ev);
    case F_TOKENS:
        return take_list(behind, item, &ev->tokens);
    case F_EXTRA:
        return take_list(behind, item, &ev->extra);
    case F_BLOCK_SIZE:
        return take_u32(item, &ev->block_size);
    case F_GROUP:
        return take_u32(item, &ev->group);
    case F_LORA_ID:
        return take_number(item, &ev->lora_id, &ev->has_lora_id);
    case F_EVENT_ID:
        return take_number(item, &ev->event_id, &ev->has_event_id);
    case F_BASE:
        return take_number(item, &ev->base, &ev->has_base);
    case F_DP_RANK:
        return take_number(item, &ev->dp_rank, &ev->has_dp_rank);
    case F_LORA:
        return (item->kind == KVCL_MP_MAP) ? take_map(behind, item->len, ev) : take_text(item, &ev->lora);
    case F_MEDIUM:
        return take_text(item, &ev->medium);
    case F_SALT:
        return take_text(item, &ev->salt);
    case F_TENANT: /* Mooncake's name for no tenant */
        return kvcl_mp_is(item, "default", 7) || take_text(item, &ev->tenant);
    case F_BACKEND:
        return take_text(item, &ev->backend);
    case F_MODEL:
        return take_text(item, &ev->model);
    case F_TYPE:
        return take_text(item, &ev->type);
    default:
        return true;
    }
}

/* The head of a value, and whole: mp goes past it. */
static bool next_value(kvcl_mp_t *mp, kvcl_mp_item_t *item, kvcl_mp_t *behind)
{
    kvcl_mp_t head = *mp;

    if (!kvcl_mp_skip(mp) || !kvcl_mp_next(&head, item)) {
        return false;
    }
    *behind = head;
    return true;
}

/* SGLang's map of further fields: only a salt is of use. */
static bool take_map(const kvcl_mp_t *at, uint32_t pairs, kvcl_ev_t *ev)
{
    kvcl_mp_t      mp = *at, behind;
    kvcl_mp_item_t item;
    field_t        field;

    for (; pairs > 0; --pairs) {
        if (!next_value(&mp, &item, &behind)) {
            return false;
        }
        field = field_of(&item);
        if (!next_value(&mp, &item, &behind)) {
            return false;
        }
        if ((field == F_SALT) && (item.kind != KVCL_MP_NIL) && !take_text(&item, &ev->salt)) {
            return false;
        }
    }
    return true;
}

/* ---- one event ---- */

/* The fields of an array of n values behind its kind, and what follows them: mp goes past all. */
static bool of_array(kvcl_mp_t *mp, uint32_t n, kvcl_ev_t *ev)
{
    const field_t  *order;
    kvcl_mp_item_t item;
    kvcl_mp_t      behind;
    uint32_t       i, known;

    if ((n == 0) || !next_value(mp, &item, &behind) || (item.kind != KVCL_MP_BYTES)) {
        return false;
    }
    ev->kind = kind_of(&item);
    order    = (ev->kind == KVCL_EV_STORED) ? stored_order : removed_order;
    known    = (ev->kind == KVCL_EV_STORED)    ? sizeof(stored_order) / sizeof(stored_order[0])
               : (ev->kind == KVCL_EV_REMOVED) ? sizeof(removed_order) / sizeof(removed_order[0])
                                               : 0;
    for (i = 0; i + 1 < n; ++i) {
        if (i >= known) {
            if (!kvcl_mp_skip(mp)) {
                return false;
            }
        } else if (!next_value(mp, &item, &behind) || !take_field(&behind, &item, order[i], ev)) {
            return false;
        }
    }
    return true;
}

static bool of_map(kvcl_mp_t *mp, uint32_t pairs, kvcl_ev_t *ev)
{
    kvcl_mp_item_t item;
    kvcl_mp_t      behind;
    field_t        field;

    for (; pairs > 0; --pairs) {
        if (!next_value(mp, &item, &behind)) {
            return false;
        }
        field = field_of(&item);
        if (!next_value(mp, &item, &behind) || !take_field(&behind, &item, field, ev)) {
            return false;
        }
        if ((field == F_TYPE) && (ev->kind == KVCL_EV_UNKNOWN)) {
            ev->kind = kind_of(&item);
        }
    }
    return ev->type.at != NULL;
}

bool kvcl_ev_next(kvcl_ev_list_t *events, kvcl_ev_t *ev)
{
    kvcl_mp_t      event = events->mp, mp = event;
    kvcl_mp_item_t item;
    bool           ok;

    memset(ev, 0, sizeof(*ev));
    --events->n;
    ok = kvcl_mp_next(&mp, &item) && (((item.kind == KVCL_MP_ARRAY) && of_array(&mp, item.len, ev)) ||
                                      ((item.kind == KVCL_MP_MAP) && of_map(&mp, item.len, ev)));
    if (!ok) {
        mp = event;
        if (!kvcl_mp_skip(&mp)) {
            events->n = 0;
        }
    }
    events->mp = mp;
    return ok;
}

/* ---- a payload ---- */

static bool batch_map(kvcl_mp_t mp, uint32_t pairs, kvcl_ev_batch_t *batch)
{
    kvcl_mp_item_t item, name;
    kvcl_mp_t      behind;
    bool           found = false;

    for (; pairs > 0; --pairs) {
        if (!next_value(&mp, &name, &behind) || !next_value(&mp, &item, &behind)) {
            return false;
        }
        if (kvcl_mp_is(&name, "events", 6)) {
            if (item.kind != KVCL_MP_ARRAY) {
                return false;
            }
            batch->events = (kvcl_ev_list_t){behind, item.len};
            found         = true;
        } else if (kvcl_mp_is(&name, "data_parallel_rank", 18) || kvcl_mp_is(&name, "dp_rank", 7)) {
            (void)take_number(&item, &batch->dp_rank, &batch->has_dp_rank);
        }
    }
    return found;
}

/* The values of an array: mp goes past all of them, in one walk. *is_batch_p: they are a batch. @return false: the
 * bytes end, or are none of the format. */
static bool batch_array(kvcl_mp_t *mp, uint32_t n, kvcl_ev_batch_t *batch, bool *is_batch_p)
{
    kvcl_mp_item_t item;
    kvcl_mp_t      behind;
    uint32_t       i;

    *is_batch_p = false;
    for (i = 0; i < n; ++i) {
        if (!next_value(mp, &item, &behind)) {
            return false;
        }
        if ((i == 1) && (item.kind == KVCL_MP_ARRAY)) {
            batch->events = (kvcl_ev_list_t){behind, item.len};
            *is_batch_p   = true;
        } else if (i == 2) {
            (void)take_number(&item, &batch->dp_rank, &batch->has_dp_rank);
        }
    }
    return true;
}

/* Is the first of the values a map? */
static bool is_of_maps(kvcl_mp_t mp, uint32_t n)
{
    kvcl_mp_item_t item;

    return (n == 0) || (kvcl_mp_next(&mp, &item) && (item.kind == KVCL_MP_MAP));
}

/* A payload that is one value, walked over already; head: of it, behind: behind the head. */
static bool batch_of(const kvcl_mp_t *whole, const kvcl_mp_item_t *head, const kvcl_mp_t *behind, bool bare,
                     kvcl_ev_batch_t *batch)
{
    if (head->kind == KVCL_MP_ARRAY) { /* bare */
        batch->events = (kvcl_ev_list_t){*behind, head->len};
        return true;
    }
    if (head->kind != KVCL_MP_MAP) {
        return false;
    }
    if (batch_map(*behind, head->len, batch)) {
        return true;
    }
    batch->events = (kvcl_ev_list_t){*whole, 1};
    return bare;
}

bool kvcl_ev_batch(const uint8_t *payload, size_t len, bool bare, kvcl_ev_batch_t *batch, size_t *at_p)
{
    kvcl_mp_t      whole = {payload, payload + len}, mp = whole, behind;
    kvcl_mp_item_t item;
    bool           is_array, ok, is_batch = false;

    memset(batch, 0, sizeof(*batch));
    ok       = kvcl_mp_next(&mp, &item);
    behind   = mp;
    is_array = ok && (item.kind == KVCL_MP_ARRAY) && !(bare && is_of_maps(behind, item.len));
    if (is_array) {
        ok = batch_array(&mp, item.len, batch, &is_batch);
    } else if (ok) {
        mp = whole;
        ok = kvcl_mp_skip(&mp);
    }
    ok    = ok && (mp.pos == mp.end);
    *at_p = ok ? 0 : (size_t)(mp.pos - payload);
    return ok && (is_array ? is_batch : batch_of(&whole, &item, &behind, bare, batch));
}
