/*
 * Directory messages from a hostile peer: unpacked and iterated. Requests are also passed to a home whose table must
 * stay consistent and whose reply must unpack. With an even first byte the header is made plausible first, so that the
 * rest is reached.
 */
#include "config.h"

#include "base/checksum.h"
#include "dir/home.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(64) char  mem[64 * 129];
static kvcl_shard_map_t   map;
static const uint16_t     incarnations[4] = {1, 1, 1, 1};

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void plausible(uint8_t *msg, size_t len)
{
    uint32_t bytes = (uint32_t)len, n = 0;

    msg[0] = 0x44;
    msg[1] = 0x4b;
    msg[2] = 1;
    msg[3] = (uint8_t)(1 + msg[3] % 6);
    n      = (uint32_t)(len - 32) / ((msg[3] <= 2) ? 64 : (msg[3] == 3) ? 32 : 1);
    n      = (msg[3] == 6) ? msg[24] : n;
    memcpy(msg + 4, &bytes, sizeof(bytes));
    msg[8] %= 3; /* the home is in view 1, and takes no publish from a later one */
    memset(msg + 9, 0, 7);
    memcpy(msg + 24, &n, sizeof(n));
    memset(msg + 28, 0, 4);
}

static void drive(const kvcl_dir_msg_t *msg)
{
    const uint32_t    ranks[4] = {0, 1, 2, 3};
    kvcl_home_event_t event    = {.type = KVCL_HOME_REQUEST, .u.request = msg};
    kvcl_home_out_t   out      = {.cap = kvcl_dir_reply_bytes_max(msg->type, msg->n)};
    kvcl_dir_table_t  table;
    kvcl_home_t       home;
    kvcl_dir_msg_t    reply;

    if (map.n_ranks == 0) {
        must(kvcl_shard_map_build(&map, 1, ranks, 4) == KVCL_OK);
    }
    must(kvcl_dir_table_format(&table, mem, sizeof(mem)) == KVCL_OK);
    must(kvcl_home_init(&home, &table, 0, &map, incarnations, 4) == KVCL_OK);
    out.buf = malloc(out.cap);
    must(kvcl_home_step(&home, &event, &out) == KVCL_OK);
    must(kvcl_dir_table_check(&table));
    must(kvcl_dir_msg_unpack(&reply, out.buf, out.len) == KVCL_OK);
    must(reply.n == msg->n);
    free(out.buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    kvcl_dir_msg_t msg;
    uint8_t       *copy = malloc(size + 1); /* separate memory, so that ASan detects reads past its end */
    uint32_t       at   = 0, i;

    if (size > 0) {
        memcpy(copy, data, size);
    }
    if ((size >= KVCL_DIR_MSG_HEADER_BYTES) && (copy[0] % 2 == 0)) {
        plausible(copy, size);
    }
    if (kvcl_dir_msg_unpack(&msg, copy, size) == KVCL_OK) {
        if (msg.type <= KVCL_DIR_MSG_LOOKUP) {
            drive(&msg);
        }
        for (i = 0; (msg.type == KVCL_DIR_MSG_LOOKUP_REPLY) && (i < msg.n); ++i) {
            must(kvcl_dir_msg_locs(&msg, i, &at, locs) <= KVCL_DIR_LOCS_MAX);
        }
        must(at == msg.n_locs);
    }
    free(copy);
    return 0;
}
