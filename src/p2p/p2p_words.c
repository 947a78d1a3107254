/*
 * The words of p2p_words.h. No state.
 */
#include "config.h"
#include "p2p/p2p_words.h"
#include <kvcl/kvcl_xfer.h>

#include <stdio.h>

const char *kvcl_describe_tag(uint64_t tag, char *buf, size_t cap)
{
    if (tag == KVCL_ANY_TAG) {
        snprintf(buf, cap, "any tag");
    } else {
        snprintf(buf, cap, "tag %llu", (unsigned long long)tag);
    }
    return buf;
}

const char *kvcl_describe_layouts(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, char *buf,
                                  size_t cap)
{
    const kvcl_shape_t *shape = &cache->shape;
    kvcl_token_t       token  = kvcl_token_of(shape, sel);
    uint32_t           sent, wanted;
    const char         *what = kvcl_token_differs(&msg->token, &token, &sent, &wanted);
    const char         *more = ": give both sides as many layers and heads, of equal kv, head_dim and elem_bytes";

    if (what == NULL) {
        what   = "tokens of a block";
        sent   = msg->each;
        wanted = shape->tokens;
        more   = ": one must divide the other";
    }
    snprintf(buf, cap, "layouts do not match: %s is %u in the send, %u in the recv%s; the send has %llu blocks of %u "
             "tokens, %llu bytes in all, the recv selects %zu blocks of %u tokens, %llu bytes", what, sent, wanted,
             more, (unsigned long long)msg->n_blocks, msg->each, (unsigned long long)msg->len, sel->n_blocks,
             shape->tokens, (unsigned long long)kvcl_sel_bytes(shape, sel));
    return buf;
}

const char *kvcl_describe_sizes(const kvcl_msg_send_t *msg, kvcl_cache_h cache, const kvcl_sel_t *sel, uint64_t bytes,
                                char *buf, size_t cap)
{
    const unsigned long long sent = msg->len, room = bytes;

    if ((cache != NULL) && (msg->n_blocks != 0) && (msg->each == 1) && kvcl_shape_is_opaque(&cache->shape)) {
        snprintf(buf, cap, "the send has %llu bytes (%llu blocks), the recv selects %llu (%zu blocks): select as many "
                 "blocks on both sides", sent, (unsigned long long)msg->n_blocks, room, sel->n_blocks);
    } else if ((cache != NULL) && (msg->n_blocks != 0)) {
        snprintf(buf, cap, "the send has %llu bytes (%llu blocks of %u tokens), the recv selects %llu (%zu blocks of "
                 "%u tokens): select as many tokens on both sides", sent, (unsigned long long)msg->n_blocks, msg->each,
                 room, sel->n_blocks, cache->shape.tokens);
    } else {
        snprintf(buf, cap, "the send has %llu bytes, the recv %s %llu: give it as much room as the send has", sent,
                 (cache != NULL) ? "selects" : "has room for", room);
    }
    return buf;
}
