/*
 * The home's step over its table (home.h has the rules). Owns nothing; lock: the caller's.
 */
#include "config.h"

#include "dir/home.h"

#include "base/error.h"

#include <string.h>

enum { HOME_BATCH = 64 }; /* keys looked up at a time, on the stack */

kvcl_status_t kvcl_home_init(kvcl_home_t *home, kvcl_dir_table_t *table, uint32_t me,
                             const kvcl_shard_map_t *map, const uint16_t *incarnations,
                             uint32_t n_ranks)
{
    if ((table == NULL) || (map == NULL) || ((incarnations == NULL) && (n_ranks > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a home needs a table, a shard map and incarnations");
    }
    *home = (kvcl_home_t){
        .table = table, .map = map, .incarnations = incarnations, .n_ranks = n_ranks, .me = me};
    return KVCL_OK;
}

static bool is_of(const kvcl_shard_map_t *map, uint32_t rank, const kvcl_key_t *key)
{
    return (map != NULL) && ((kvcl_shard_home(map, key) == rank) || (kvcl_shard_backup(map, key) == rank));
}

static bool is_mine(const kvcl_home_t *home, const kvcl_key_t *key)
{
    return is_of(home->map, home->me, key) || is_of(home->old, home->me, key) || is_of(home->also, home->me, key);
}

kvcl_status_t kvcl_home_may_change(const kvcl_home_t *home, const kvcl_key_t *key, bool no_lease)
{
    return no_lease ? KVCL_ERR_NO_QUORUM : is_mine(home, key) ? KVCL_OK : KVCL_ERR_STALE;
}

static bool is_live(const kvcl_home_t *home, const kvcl_dir_loc_t *loc)
{
    return (loc->rank < home->n_ranks) && (home->incarnations[loc->rank] != 0) &&
           (home->incarnations[loc->rank] == loc->incarnation);
}

kvcl_status_t kvcl_home_may_remove(const kvcl_home_t *home, const kvcl_key_t *key, bool no_lease, bool two)
{
    const bool gone = (home->old != NULL) && (kvcl_shard_home(home->old, key) == KVCL_SHARD_NO_RANK) &&
                      (!two || (kvcl_shard_backup(home->old, key) == KVCL_SHARD_NO_RANK));

    return (gone && !no_lease) ? KVCL_ERR_STALE : kvcl_home_may_change(home, key, no_lease);
}

unsigned kvcl_home_remove(kvcl_home_t *home, const kvcl_key_t *key, bool waits, kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX])
{
    unsigned n = kvcl_dir_table_find(home->table, key, locs), kept = 0, i;

    for (i = 0; i < n; ++i) {
        bool lives = is_live(home, &locs[i]);

        if (!waits || !lives || (locs[i].rank == home->me)) {
            (void)!kvcl_dir_table_remove(home->table, key, &locs[i]);
        }
        if (lives) {
            locs[kept++] = locs[i];
        }
    }
    return kept;
}

/* Is a location with this tag listed? */
static bool is_listed(const kvcl_home_t *home, const kvcl_key_t *key, uint32_t tag)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n = kvcl_dir_table_find(home->table, key, locs), i;

    for (i = 0; i < n; ++i) {
        if (kvcl_dir_loc_tag(&locs[i]) == tag) {
            return true;
        }
    }
    return false;
}

/* True: the key had locations of processes that have gone, and has them no more. */
static bool drop_gone(kvcl_home_t *home, const kvcl_key_t *key)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX];
    unsigned       n     = kvcl_dir_table_find(home->table, key, locs), i;
    bool           drops = false;

    for (i = 0; i < n; ++i) {
        if (!is_live(home, &locs[i])) {
            drops = (kvcl_dir_table_remove(home->table, key, &locs[i]) == KVCL_OK) || drops;
        }
    }
    return drops;
}

kvcl_status_t kvcl_home_list(kvcl_home_t *home, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    kvcl_status_t status;

    if ((loc->source != 0) && (kvcl_shard_home(home->map, key) == home->me) && !is_listed(home, key, loc->source) &&
        !is_listed(home, key, kvcl_dir_loc_tag(loc))) {
        return KVCL_ERR_NOT_FOUND;
    }
    status = kvcl_dir_table_insert(home->table, key, loc);
    if (((status == KVCL_ERR_EXISTS) || (status == KVCL_ERR_STALE)) && drop_gone(home, key)) {
        status = kvcl_dir_table_insert(home->table, key, loc);
    }
    return status;
}

/* view: the sender's. */
static kvcl_status_t publish_one(kvcl_home_t *home, uint64_t view, bool no_lease, const kvcl_key_t *key,
                                 const kvcl_dir_loc_t *loc)
{
    kvcl_status_t status = kvcl_home_may_change(home, key, no_lease);

    if ((status == KVCL_OK) && ((view > home->map->view) || !is_live(home, loc))) {
        status = KVCL_ERR_STALE;
    }
    if (status == KVCL_OK) {
        status = kvcl_home_list(home, key, loc);
    }
    home->n_published += (status == KVCL_OK);
    home->n_refused += (status != KVCL_OK);
    return status;
}

static kvcl_status_t remove_one(kvcl_home_t *home, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    kvcl_status_t status = kvcl_dir_table_remove(home->table, key, loc);

    home->n_removed += (status == KVCL_OK);
    return status;
}

static void lookup(kvcl_home_t *home, const kvcl_dir_msg_t *msg, kvcl_dir_reply_t *reply)
{
    kvcl_dir_loc_t locs[HOME_BATCH][KVCL_DIR_LOCS_MAX];
    uint8_t        counts[HOME_BATCH];
    uint32_t       i, j, n;

    for (i = 0; i < msg->n; i += n) {
        n = (msg->n - i < HOME_BATCH) ? msg->n - i : HOME_BATCH;
        home->n_hits +=
                kvcl_dir_read_batch(&home->table->view, kvcl_dir_msg_key(msg, i), n, locs, counts);
        for (j = 0; j < n; ++j) {
            kvcl_dir_reply_locs(reply, i + j, locs[j], counts[j]);
        }
    }
    home->n_looked_up += msg->n;
}

static kvcl_status_t request_step(kvcl_home_t *home, const kvcl_dir_msg_t *msg, bool no_lease, kvcl_home_out_t *out)
{
    kvcl_dir_reply_t reply;
    kvcl_dir_loc_t   loc;
    kvcl_status_t    status;
    uint32_t         i;

    if ((msg->type < KVCL_DIR_MSG_PUBLISH) || (msg->type > KVCL_DIR_MSG_LOOKUP)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "directory message type %d is no request", (int)msg->type);
    }
    status = kvcl_dir_reply_begin(&reply, out->buf, out->cap, msg);
    if (status != KVCL_OK) {
        return status;
    }
    if (msg->type == KVCL_DIR_MSG_LOOKUP) {
        lookup(home, msg, &reply);
    } else {
        for (i = 0; i < msg->n; ++i) {
            kvcl_dir_msg_rec_loc(msg, i, &loc);
            status = (msg->type == KVCL_DIR_MSG_PUBLISH)
                         ? publish_one(home, msg->view, no_lease, kvcl_dir_msg_key(msg, i), &loc)
                         : remove_one(home, kvcl_dir_msg_key(msg, i), &loc);
            kvcl_dir_reply_status(&reply, i, status);
        }
    }
    out->len = kvcl_dir_reply_end(&reply, home->map->view, KVCL_OK);
    return KVCL_OK;
}

static bool is_foreign(void *arg, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    const kvcl_home_t *home = arg;

    return !kvcl_home_keeps(home, key, loc);
}

bool kvcl_home_keeps(const kvcl_home_t *home, const kvcl_key_t *key, const kvcl_dir_loc_t *loc)
{
    return is_mine(home, key) && is_live(home, loc);
}

void kvcl_home_adopt(kvcl_home_t *home, const kvcl_shard_map_t *map, const kvcl_shard_map_t *old,
                     const kvcl_shard_map_t *also, const uint16_t *incarnations, uint32_t n_ranks)
{
    home->map          = map;
    home->old          = old;
    home->also         = also;
    home->incarnations = incarnations;
    home->n_ranks      = n_ranks;
}

kvcl_status_t kvcl_home_step(kvcl_home_t *home, const kvcl_home_event_t *event, kvcl_home_out_t *out)
{
    out->len     = 0;
    out->dropped = 0;
    switch (event->type) {
    case KVCL_HOME_REQUEST:
        return request_step(home, event->u.request, event->no_lease, out);
    case KVCL_HOME_VIEW:
        if ((event->u.view.map == NULL) || (event->u.view.incarnations == NULL)) {
            return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a view needs a shard map and incarnations");
        }
        kvcl_home_adopt(home, event->u.view.map, event->u.view.old, NULL, event->u.view.incarnations,
                        event->u.view.n_ranks);
        out->dropped = kvcl_dir_table_remove_if(home->table, is_foreign, home);
        return KVCL_OK;
    case KVCL_HOME_RANK_DEAD:
        out->dropped = kvcl_dir_table_remove_rank(home->table, event->u.dead.rank, event->u.dead.incarnation);
        return KVCL_OK;
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "home event %d", (int)event->type);
}
