/*
 * Keys of blocks in events, and the public calls with the same formulas. Owns nothing. Pure.
 */
#include "config.h"

#include "sched/events/ev_keys.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/structs.h"

#include "kvcl/kvcl_sched_index.h"

#include <stdio.h>
#include <string.h>

typedef struct line {
    char   text[4 * KVCL_EV_TEXT_MAX + 128];
    size_t len;
    bool   fits;
} line_t;

static void add(line_t *line, const char *name, const char *text, size_t len)
{
    size_t n = strlen(name);

    if (len > KVCL_EV_TEXT_MAX) {
        line->fits = false;
        return;
    }
    memcpy(line->text + line->len, name, n);
    memcpy(line->text + line->len + n, text, len);
    line->len += n + len;
    line->text[line->len++] = '\n';
}

static void add_number(line_t *line, const char *name, uint64_t number)
{
    char text[24];

    add(line, name, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)number));
}

bool kvcl_ev_root(const kvcl_key_t *base, const kvcl_ev_t *ev, kvcl_key_t *root)
{
    line_t line;

    line.len  = 0;
    line.fits = true;
    if (ev->lora.at != NULL) {
        add(&line, "lora:", ev->lora.at, ev->lora.len);
    } else if (ev->has_lora_id) {
        add_number(&line, "lora:#", ev->lora_id);
    }
    if (ev->group != 0) {
        add_number(&line, "group:", ev->group);
    }
    if ((ev->tenant.at != NULL) && ((ev->tenant.len != 7) || (memcmp(ev->tenant.at, "default", 7) != 0))) {
        add(&line, "tenant:", ev->tenant.at, ev->tenant.len);
    }
    if (ev->salt.at != NULL) {
        add(&line, "salt:", ev->salt.at, ev->salt.len);
    }
    *root = *base;
    if (line.fits && (line.len > 0)) {
        kvcl_key_from_bytes(base->bytes, sizeof(base->bytes), line.text, line.len, root);
    }
    return line.fits;
}

bool kvcl_ev_extra(kvcl_ev_list_t *extra, const kvcl_ev_text_t *lora, kvcl_key_t *parent)
{
    uint8_t        text[KVCL_EV_EXTRA_MAX];
    const uint8_t  *from;
    size_t         len = 0, n;
    uint32_t       i, count;
    kvcl_mp_item_t item;
    kvcl_mp_t      head;
    kvcl_key_t     before = *parent;

    if (!kvcl_mp_next(&extra->mp, &item) || ((item.kind != KVCL_MP_ARRAY) && (item.kind != KVCL_MP_NIL))) {
        return false;
    }
    count = (item.kind == KVCL_MP_ARRAY) ? item.len : 0;
    for (i = 0; i < count; ++i) {
        from = extra->mp.pos;
        head = extra->mp;
        if (!kvcl_mp_skip(&extra->mp) || !kvcl_mp_next(&head, &item)) {
            return false;
        }
        n = (size_t)(extra->mp.pos - from);
        if ((lora->at != NULL) && kvcl_mp_is(&item, lora->at, lora->len)) {
            continue;
        }
        if (n > sizeof(text) - len) {
            return false;
        }
        memcpy(text + len, from, n);
        len += n;
    }
    if (len > 0) {
        kvcl_key_from_bytes(before.bytes, sizeof(before.bytes), text, len, parent);
    }
    return true;
}

void kvcl_ev_hash_key(const kvcl_key_t *root, uint64_t hash, kvcl_key_t *key)
{
    uint8_t  bytes[8];
    unsigned i;

    for (i = 0; i < sizeof(bytes); ++i) {
        bytes[i] = (uint8_t)(hash >> (8 * i));
    }
    kvcl_key_from_bytes(root->bytes, sizeof(root->bytes), bytes, sizeof(bytes), key);
}

/* ---- public ---- */

static kvcl_ev_text_t text_of(const char *text)
{
    return (kvcl_ev_text_t){((text != NULL) && (text[0] != '\0')) ? text : NULL,
                            (text != NULL) ? (uint32_t)strnlen(text, KVCL_EV_TEXT_MAX + 1) : 0};
}

kvcl_status_t kvcl_sched_index_root(const kvcl_sched_root_t *root, kvcl_key_t *key_p)
{
    kvcl_sched_root_t r      = KVCL_SCHED_ROOT_INIT;
    kvcl_ev_t         ev     = {.kind = KVCL_EV_STORED};
    kvcl_status_t     status = KVCL_OK;
    kvcl_key_t        base;

    if (root != NULL) {
        status = kvcl_struct_in(&r, root, KVCL_UP_TO(kvcl_sched_root_t, reserved), sizeof(r), "kvcl_sched_root_t");
    }
    if (status != KVCL_OK) {
        return status;
    }
    if ((key_p == NULL) || ((r.salt == NULL) && (r.salt_len > 0)) || (r.reserved != 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_root: key_p or salt is NULL, or reserved is not 0");
    }
    kvcl_key_root(r.salt, r.salt_len, r.model, &base);
    ev.lora   = text_of(r.lora);
    ev.tenant = text_of(r.tenant);
    ev.salt   = text_of(r.extra);
    ev.group  = r.group;
    return kvcl_ev_root(&base, &ev, key_p)
               ? KVCL_OK
               : kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_root: lora, tenant and extra may have %d bytes",
                           KVCL_EV_TEXT_MAX);
}

kvcl_status_t kvcl_sched_index_hash_keys(const kvcl_key_t *root, uint64_t seed, const uint32_t *tokens,
                                         size_t n_tokens, size_t tokens_per_block, kvcl_key_t *keys, size_t cap,
                                         size_t *n_p)
{
    uint64_t pair[2];
    size_t   i, n;

    if ((root == NULL) || ((tokens == NULL) && (n_tokens > 0)) || (tokens_per_block == 0) ||
        ((keys == NULL) && (cap > 0)) || (n_p == NULL)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_index_hash_keys: root, tokens, keys or n_p is NULL, or "
                         "tokens_per_block is 0");
    }
    n = n_tokens / tokens_per_block;
    for (i = 0; (i < n) && (i < cap); ++i) { /* little-endian, as kvcl_key_chain asserts */
        pair[1] = kvcl_checksum_seed(tokens + i * tokens_per_block, tokens_per_block * sizeof(*tokens), seed);
        pair[0] = (i == 0) ? pair[1] : kvcl_checksum_seed(pair, sizeof(pair), seed);
        kvcl_ev_hash_key(root, pair[0], &keys[i]);
    }
    *n_p = n;
    return KVCL_OK;
}
