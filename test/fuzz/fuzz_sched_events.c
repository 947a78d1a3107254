/*
 * The feeds of the prefix index, and the reader of saved ones, on any bytes. The first byte chooses what reads them;
 * the rest are messages, each behind two bytes: its length, and how far its number goes on. Nothing reads past an end
 * (each message is copied to memory of its length), the index stays whole, and what it says is told by its own
 * counters.
 */
#include "config.h"

#include <kvcl/kvcl_sched_index.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FEEDS = 3, MAX_BLOCKS = 500 };

static void must(int ok)
{
    if (!ok) {
        abort();
    }
}

static void feed(kvcl_sched_index_h index, uint32_t source, uint64_t number, uint64_t flags, const uint8_t *data,
                 size_t len, int alone)
{
    uint8_t            seq[8], *exact = malloc(len + (len == 0));
    kvcl_sched_frame_t frames[2] = {{seq, sizeof(seq)}, {exact, len}};
    unsigned           i;

    must(exact != NULL);
    memcpy(exact, data, len);
    for (i = 0; i < 8; ++i) {
        seq[i] = (uint8_t)(number >> (56 - 8 * i));
    }
    (void)!kvcl_sched_index_feed(index, source, flags, alone ? &frames[1] : frames, alone ? 1 : 2, NULL);
    free(exact);
}

static void feed_all(kvcl_sched_index_h index, uint32_t source, const uint8_t *data, size_t size, int alone)
{
    uint64_t number = 0;
    size_t   len;

    while (size >= 2) {
        len = (data[0] < size - 2) ? data[0] : size - 2;
        len = (data[0] == 0xff) ? size - 2 : len;
        number += (data[1] & 0x40) ? data[1] & 7 : 1;
        number = (data[1] == 0xff) ? UINT64_MAX : number;
        feed(index, source, number - 1, (data[1] & 0x80) ? KVCL_SCHED_REPLAYED : 0, data + 2, len, alone);
        data += len + 2;
        size -= len + 2;
    }
}

/* Saved and loaded, it has as many blocks; forgotten, none. */
static void check(kvcl_sched_index_h index, uint32_t source)
{
    kvcl_sched_source_info_t info  = KVCL_SCHED_SOURCE_INFO_INIT;
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;
    kvcl_sched_index_h       other;
    size_t                   len;
    uint8_t                  *bytes;

    must(kvcl_sched_index_info(index, source, &info) == KVCL_OK);
    must(info.blocks <= MAX_BLOCKS);
    must(kvcl_sched_index_stats(index, &stats) == KVCL_OK);
    must((stats.holders == info.blocks) && (stats.blocks == info.blocks) && (stats.retired == 0));
    must(kvcl_sched_index_save(index, NULL, 0, &len) == KVCL_OK);
    bytes = malloc(len);
    must((bytes != NULL) && (kvcl_sched_index_save(index, bytes, len, &len) == KVCL_OK));
    must(kvcl_sched_index_create(NULL, &other) == KVCL_OK);
    must(kvcl_sched_index_load(other, bytes, len) == KVCL_OK);
    must(kvcl_sched_index_stats(other, &stats) == KVCL_OK);
    must(stats.blocks == info.blocks);
    kvcl_sched_index_destroy(other);
    free(bytes);
    must(kvcl_sched_index_forget(index, source) == KVCL_OK);
    must(kvcl_sched_index_stats(index, &stats) == KVCL_OK);
    must((stats.blocks == 0) && (stats.holders == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    kvcl_sched_index_h         index;
    uint32_t                   source;

    if (size == 0) {
        return 0;
    }
    must(kvcl_sched_index_create(NULL, &index) == KVCL_OK);
    if (data[0] == 0xff) {
        (void)!kvcl_sched_index_load(index, data + 1, size - 1);
    } else {
        p.name         = "fuzz";
        p.feed         = KVCL_SCHED_FEED_VLLM + data[0] % FEEDS;
        p.max_blocks   = MAX_BLOCKS;
        p.block_tokens = (data[0] & 0x40) ? 4 : 0;
        must(kvcl_sched_index_source(index, &p, &source) == KVCL_OK);
        feed_all(index, source, data + 1, size - 1, (data[0] & 0x20) && (data[0] % FEEDS == 2));
        check(index, source);
    }
    kvcl_sched_index_destroy(index);
    return 0;
}
