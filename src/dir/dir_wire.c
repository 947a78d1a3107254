/*
 * Packing and unpacking of the directory's messages (dir_wire.h has the layout).
 *
 * Invariant: after kvcl_dir_msg_unpack said KVCL_OK, items and locs cover exactly what n, the type
 * and the counts say, all inside the message. Owns nothing; no lock.
 */
#include "config.h"

#include "dir/dir_wire.h"

#include "base/error.h"
#include "base/wirebuf.h"

static size_t item_bytes(unsigned type)
{
    switch (type) {
    case KVCL_DIR_MSG_PUBLISH:
    case KVCL_DIR_MSG_REMOVE:
        return KVCL_DIR_REC_BYTES;
    case KVCL_DIR_MSG_LOOKUP:
        return KVCL_DIR_KEY_BYTES;
    case KVCL_DIR_MSG_PUBLISH_REPLY:
    case KVCL_DIR_MSG_REMOVE_REPLY:
    case KVCL_DIR_MSG_LOOKUP_REPLY:
        return 1;
    default:
        return 0;
    }
}

/* Records must be such that a home may take them as they are. */
static kvcl_status_t check_records(const kvcl_dir_msg_t *msg)
{
    kvcl_dir_loc_t loc;
    uint32_t       i;

    for (i = 0; i < msg->n; ++i) {
        kvcl_dir_msg_rec_loc(msg, i, &loc);
        if ((loc.rank == KVCL_DIR_RANK_NONE) || (loc.gen == 0) ||
            ((loc.source != 0) && (msg->type != KVCL_DIR_MSG_PUBLISH)) ||
            ((loc.flags & ~KVCL_DIR_FLAGS_MASK) != 0)) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "directory message: item %u has no valid location", i);
        }
    }
    return KVCL_OK;
}

static kvcl_status_t check_counts(kvcl_dir_msg_t *msg, kvcl_rd_t *rd)
{
    uint32_t i;

    for (i = 0; i < msg->n; ++i) {
        if (msg->items[i] > KVCL_DIR_LOCS_MAX) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "directory reply: item %u has %u locations", i,
                             msg->items[i]);
        }
        msg->n_locs += msg->items[i];
    }
    msg->locs = kvcl_rd_bytes(rd, (size_t)msg->n_locs * KVCL_DIR_LOC_BYTES);
    return KVCL_OK;
}

static kvcl_status_t check_statuses(const kvcl_dir_msg_t *msg)
{
    uint32_t i;

    for (i = 0; i < msg->n; ++i) {
        if (kvcl_dir_msg_status(msg, i) > KVCL_OK) {
            return kvcl_fail(KVCL_ERR_PROTOCOL, "directory reply: item %u has status %d", i,
                             (int)kvcl_dir_msg_status(msg, i));
        }
    }
    return KVCL_OK;
}

static kvcl_status_t read_header(kvcl_rd_t *rd, size_t len, kvcl_dir_msg_t *msg)
{
    uint16_t magic   = kvcl_rd_u16(rd);
    uint8_t  version = kvcl_rd_u8(rd);
    uint8_t  type    = kvcl_rd_u8(rd);
    uint32_t bytes   = kvcl_rd_u32(rd);

    msg->view   = kvcl_rd_u64(rd);
    msg->id     = kvcl_rd_u64(rd);
    msg->n      = kvcl_rd_u32(rd);
    msg->status = (kvcl_status_t)(int32_t)kvcl_rd_u32(rd);
    msg->type   = (kvcl_dir_msg_type_t)type;
    if (!kvcl_rd_ok(rd) || (magic != KVCL_DIR_MSG_MAGIC)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "%zu bytes are no directory message", len);
    }
    if (version != KVCL_DIR_MSG_VERSION) {
        return kvcl_fail(KVCL_ERR_VERSION, "directory message of version %u, expected %u", version,
                         (unsigned)KVCL_DIR_MSG_VERSION);
    }
    if ((bytes != len) || (item_bytes(type) == 0) || (msg->n > KVCL_DIR_BATCH_MAX) ||
        ((int)msg->status > 0)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "directory message of %zu bytes: type %u, length %u, %u items",
                         len, type, bytes, msg->n);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_dir_msg_unpack(kvcl_dir_msg_t *msg, const void *buf, size_t len)
{
    kvcl_dir_msg_t m      = {.type = KVCL_DIR_MSG_LOOKUP};
    kvcl_status_t  status = KVCL_OK;
    kvcl_rd_t      rd;

    kvcl_rd_init(&rd, buf, len);
    status = read_header(&rd, len, &m);
    if (status != KVCL_OK) {
        return status;
    }
    m.items = kvcl_rd_bytes(&rd, item_bytes(m.type) * m.n);
    if (kvcl_rd_ok(&rd)) {
        if (m.type <= KVCL_DIR_MSG_REMOVE) {
            status = check_records(&m);
        } else if (m.type == KVCL_DIR_MSG_LOOKUP_REPLY) {
            status = check_counts(&m, &rd);
        } else if (m.type > KVCL_DIR_MSG_LOOKUP) {
            status = check_statuses(&m);
        }
    }
    if (status != KVCL_OK) {
        return status;
    }
    if (!kvcl_rd_done(&rd)) {
        return kvcl_fail(KVCL_ERR_PROTOCOL, "directory message of %zu bytes does not hold its %u items",
                         len, m.n);
    }
    *msg = m;
    return KVCL_OK;
}

size_t kvcl_dir_request_bytes(kvcl_dir_msg_type_t type, uint32_t n)
{
    return KVCL_DIR_MSG_HEADER_BYTES + item_bytes(type) * n;
}

size_t kvcl_dir_reply_bytes_max(kvcl_dir_msg_type_t request, uint32_t n)
{
    size_t each = (request == KVCL_DIR_MSG_LOOKUP) ? 1 + KVCL_DIR_LOCS_MAX * KVCL_DIR_LOC_BYTES : 1;

    return KVCL_DIR_MSG_HEADER_BYTES + each * n;
}

static size_t write_header(uint8_t *buf, unsigned type, size_t bytes, uint64_t view, uint64_t id,
                           uint32_t n, kvcl_status_t status)
{
    kvcl_wr_t wr;

    kvcl_wr_init(&wr, buf, KVCL_DIR_MSG_HEADER_BYTES);
    kvcl_wr_u16(&wr, KVCL_DIR_MSG_MAGIC);
    kvcl_wr_u8(&wr, KVCL_DIR_MSG_VERSION);
    kvcl_wr_u8(&wr, (uint8_t)type);
    kvcl_wr_u32(&wr, (uint32_t)bytes);
    kvcl_wr_u64(&wr, view);
    kvcl_wr_u64(&wr, id);
    kvcl_wr_u32(&wr, n);
    kvcl_wr_u32(&wr, (uint32_t)status);
    return bytes;
}

kvcl_status_t kvcl_dir_pack_begin(kvcl_dir_pack_t *pack, void *buf, size_t cap,
                                  kvcl_dir_msg_type_t type, uint64_t view, uint64_t id)
{
    if ((type < KVCL_DIR_MSG_PUBLISH) || (type > KVCL_DIR_MSG_LOOKUP)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "directory message type %d is no request", (int)type);
    }
    if (cap < KVCL_DIR_MSG_HEADER_BYTES) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu bytes hold no directory message", cap);
    }
    *pack = (kvcl_dir_pack_t){.buf  = buf,
                              .cap  = cap,
                              .len  = KVCL_DIR_MSG_HEADER_BYTES,
                              .type = (uint8_t)type,
                              .view = view,
                              .id   = id};
    return KVCL_OK;
}

kvcl_status_t kvcl_dir_pack_add(kvcl_dir_pack_t *pack, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    size_t bytes = item_bytes(pack->type);

    if ((pack->cap - pack->len < bytes) || (pack->n == KVCL_DIR_BATCH_MAX)) {
        return KVCL_ERR_NO_SPACE;
    }
    memcpy(pack->buf + pack->len, key->bytes, sizeof(key->bytes));
    if (bytes == KVCL_DIR_REC_BYTES) {
        memcpy(pack->buf + pack->len + KVCL_DIR_KEY_BYTES, loc, sizeof(*loc));
    }
    pack->len += bytes;
    ++pack->n;
    return KVCL_OK;
}

size_t kvcl_dir_pack_end(kvcl_dir_pack_t *pack)
{
    return write_header(pack->buf, pack->type, pack->len, pack->view, pack->id, pack->n, KVCL_OK);
}

kvcl_status_t kvcl_dir_reply_begin(kvcl_dir_reply_t *reply, void *buf, size_t cap,
                                   const kvcl_dir_msg_t *request)
{
    if (cap < kvcl_dir_reply_bytes_max(request->type, request->n)) {
        return kvcl_fail(KVCL_ERR_NO_SPACE, "%zu bytes do not hold a reply to %u keys", cap, request->n);
    }
    *reply = (kvcl_dir_reply_t){.buf   = buf,
                                .items = (uint8_t *)buf + KVCL_DIR_MSG_HEADER_BYTES,
                                .n     = request->n,
                                .id    = request->id,
                                .type  = (uint8_t)(request->type + KVCL_DIR_MSG_LOOKUP)};
    reply->locs = reply->items + reply->n;
    return KVCL_OK;
}

size_t kvcl_dir_reply_end(kvcl_dir_reply_t *reply, uint64_t view, kvcl_status_t status)
{
    return write_header(reply->buf, reply->type, (size_t)(reply->locs - reply->buf), view, reply->id,
                        reply->n, status);
}
