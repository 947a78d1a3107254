/*
 * A rank as owner (fill, publish, withdraw, remove, serve) and as home (replies to requests).
 *
 * The owner obeys the rules of slots.h and home.h; the mutations of sim_break_t are made here, in sim_get.c, sim_copy.c
 * and sim_table.c, never in the library.
 */
#include "config.h"

#include "sim.h"

#include <string.h>

static sim_mem_t *mem_of(sim_t *sim, sim_node_t *node)
{
    return &sim->mems[node->rank][node->inc];
}

static void retarget(sim_t *sim, sim_node_t *node, sim_pub_t *pub)
{
    pub->acked    = false;
    pub->refused  = false;
    pub->home     = sim_home_of(sim, node, pub->key);
    pub->retry_at = sim->step;
    ++pub->target;
}

void sim_node_start(sim_t *sim, uint32_t rank, uint16_t inc, unsigned view)
{
    sim_node_t       *node    = &sim->nodes[rank];
    const sim_view_t *v       = &sim->views[view];
    uint64_t          next_id = node->next_id;

    memset(node, 0, sizeof(*node));
    node->up      = true;
    node->rank    = rank;
    node->inc     = inc;
    node->view    = view;
    node->next_id = next_id + 1;
    if ((kvcl_slots_init(&node->slots, mem_of(sim, node)->gens, node->slot_array, SIM_SLOTS, (uint16_t)rank,
                         inc, 0, 1) != KVCL_OK) ||
        (kvcl_evict_init(&node->evict, SIM_SLOTS, node->evict_mem,
                         sizeof(node->evict_mem)) != KVCL_OK) ||
        (kvcl_dir_table_format(&node->table, node->table_mem, sizeof(node->table_mem)) != KVCL_OK) ||
        (kvcl_home_init(&node->home, &node->table, rank, sim_map(view), v->inc, SIM_RANKS) != KVCL_OK)) {
        sim_fail(sim, "Internal", "rank %u does not start", rank);
    }
}

void sim_node_view(sim_t *sim, sim_node_t *node)
{
    const sim_view_t *old = &sim->views[node->view], *v = old + 1;
    kvcl_home_event_t event = {.type = KVCL_HOME_VIEW, .u.view = {sim_map(node->view + 1), v->inc, SIM_RANKS}};
    kvcl_home_out_t   out   = {.buf = NULL};
    unsigned          s;
    uint32_t          home;

    if (v->inc[node->rank] != node->inc) {
        sim_log(sim, "rank %u finds itself excluded and ends", node->rank);
        node->up = false;
        return;
    }
    ++node->view;
    if (kvcl_home_step(&node->home, &event, &out) != KVCL_OK) {
        sim_fail(sim, "Internal", "rank %u cannot take a view", node->rank);
    }
    for (s = 0; s < SIM_SLOTS; ++s) {
        home = sim_home_of(sim, node, node->pub[s].key);
        if (node->pub[s].live && ((home != node->pub[s].home) || (old->inc[home] != v->inc[home]))) {
            retarget(sim, node, &node->pub[s]);
        }
    }
    sim_check_findable(sim, node);
}

static void publish(sim_t *sim, sim_node_t *node, uint32_t slot)
{
    sim_pub_t *pub = &node->pub[slot];

    if ((kvcl_slots_publish(&node->slots, slot, &sim->keys[pub->key], KVCL_DIR_TIER_DRAM, sizeof(uint64_t) * SIM_WORDS,
                            sim_content(pub->key, 0), &pub->loc) != KVCL_OK) ||
        (kvcl_evict_insert(&node->evict, slot, sim_content(pub->key, 1)) != KVCL_OK)) {
        sim_fail(sim, "Internal", "rank %u cannot publish slot %u", node->rank, slot);
    }
    pub->live = true;
    retarget(sim, node, pub);
    ++sim->counts.publishes;
    sim_log(sim, "rank %u publishes key %u in slot %u gen %u", node->rank, pub->key, slot, pub->loc.gen);
}

static bool has_key(const sim_node_t *node, unsigned key)
{
    unsigned s;

    for (s = 0; s < SIM_SLOTS; ++s) {
        if ((node->pub[s].live || node->pub[s].filling) && (node->pub[s].key == key)) {
            return true;
        }
    }
    return false;
}

/* The slot is FILLING: start a block, often the slot's previous one. */
static void begin_fill(sim_t *sim, sim_node_t *node, uint32_t slot)
{
    sim_pub_t *pub = &node->pub[slot];

    if (sim_chance(sim, 500) || has_key(node, pub->key)) {
        do {
            pub->key = sim_below(sim, SIM_KEYS);
        } while (has_key(node, pub->key));
    }
    pub->filling = true;
    pub->live    = false;
    pub->written = 0;
    if (sim->broken == BREAK_PUBLISH_BEFORE_BYTES) {
        publish(sim, node, slot);
    }
}

static void fill_step(sim_t *sim, sim_node_t *node, uint32_t slot)
{
    sim_pub_t *pub = &node->pub[slot];
    sim_mem_t *mem = mem_of(sim, node);

    if ((pub->late != 0) && (pub->written == 1)) {
        atomic_store(&mem->gens[slot], pub->late);
        pub->late = 0;
    }
    if (pub->written < SIM_WORDS) {
        mem->words[slot][pub->written] = sim_content(pub->key, pub->written);
        ++mem->touched[slot];
        ++pub->written;
        return;
    }
    pub->filling = false;
    if (!pub->live) {
        publish(sim, node, slot);
    }
}

static void withdraw(sim_t *sim, sim_node_t *node)
{
    kvcl_slot_state_t next = sim_chance(sim, 600) ? KVCL_SLOT_FILLING : KVCL_SLOT_FREE;
    sim_pub_t        *pub;
    uint32_t          slot;

    if ((kvcl_evict_victim(&node->evict, &slot) != KVCL_OK)) {
        return;
    }
    pub = &node->pub[slot];
    if (kvcl_slots_withdraw(&node->slots, slot, next) != KVCL_OK) {
        sim_fail(sim, "Internal", "rank %u cannot withdraw slot %u", node->rank, slot);
        return;
    }
    if (sim->broken == BREAK_NO_GEN_BUMP) {
        atomic_store(&mem_of(sim, node)->gens[slot], pub->loc.gen);
    }
    if (sim->broken == BREAK_NO_WRITE_FENCE) {
        pub->late = kvcl_slots_gen(&node->slots, slot);
        atomic_store(&mem_of(sim, node)->gens[slot], pub->loc.gen);
    }
    ++sim->counts.withdrawals;
    sim_log(sim, "rank %u withdraws key %u from slot %u gen %u", node->rank, pub->key, slot, pub->loc.gen);
    pub->live = false;
    sim_owner_remove(sim, node, pub->key, &pub->loc);
    if (pub->filling) {
        pub->filling = false; /* only when published before the bytes */
    }
    if (next == KVCL_SLOT_FILLING) {
        begin_fill(sim, node, slot);
    }
}

void sim_owner_step(sim_t *sim, sim_node_t *node)
{
    uint32_t slot = sim_below(sim, SIM_SLOTS);

    if (node->pub[slot].filling) {
        fill_step(sim, node, slot);
    } else if (node->slot_array[slot].state == KVCL_SLOT_FILLING) {
        begin_fill(sim, node, slot);
    } else if (!sim->quiet_end && (node->slot_array[slot].state == KVCL_SLOT_FREE)) {
        if (kvcl_slots_take(&node->slots, slot) != KVCL_OK) {
            sim_fail(sim, "Internal", "rank %u cannot take slot %u", node->rank, slot);
        }
        begin_fill(sim, node, slot);
    } else if (!sim->quiet_end && sim_chance(sim, 150)) {
        withdraw(sim, node);
    }
}

void sim_owner_remove(sim_t *sim, sim_node_t *node, unsigned key, const kvcl_dir_loc_t *loc)
{
    sim_remove_t *remove = &node->removes[sim_below(sim, SIM_REMOVES)]; /* an older one may be lost */

    *remove = (sim_remove_t){.live = true, .key = key, .loc = *loc, .retry_at = sim->step};
}

static void send_remove(sim_t *sim, sim_node_t *node, sim_remove_t *remove)
{
    sim_msg_t      *msg = sim_send(sim, node->rank, sim_home_of(sim, node, remove->key), MSG_DIR);
    kvcl_dir_pack_t pack;

    remove->id       = ++node->next_id;
    remove->retry_at = sim->step + SIM_TIMEOUT;
    remove->live     = (++remove->tries < 4);
    if ((kvcl_dir_pack_begin(&pack, msg->bytes, SIM_BYTES, KVCL_DIR_MSG_REMOVE, node->view, remove->id) != KVCL_OK) ||
        (kvcl_dir_pack_add(&pack, &sim->keys[remove->key], &remove->loc) != KVCL_OK)) {
        sim_fail(sim, "Internal", "cannot pack a remove");
    }
    msg->len = kvcl_dir_pack_end(&pack);
}

/* One message with everything that waits to be published at @a home. */
static void send_publish(sim_t *sim, sim_node_t *node, uint32_t home)
{
    sim_request_t  *request;
    sim_msg_t      *msg = sim_send(sim, node->rank, home, MSG_DIR);
    kvcl_dir_pack_t pack;
    sim_pub_t      *pub;
    uint32_t        s;

    request  = &node->requests[++node->next_id % SIM_REQUESTS];
    *request = (sim_request_t){.id = node->next_id};
    if (kvcl_dir_pack_begin(&pack, msg->bytes, SIM_BYTES, KVCL_DIR_MSG_PUBLISH, node->view, request->id) != KVCL_OK) {
        sim_fail(sim, "Internal", "cannot pack a publish");
        return;
    }
    for (s = 0; s < SIM_SLOTS; ++s) {
        pub = &node->pub[s];
        if (pub->live && !pub->acked && !pub->refused && (pub->home == home)) {
            pub->retry_at               = sim->step + SIM_TIMEOUT;
            request->slot[request->n]   = s;
            request->target[request->n] = pub->target;
            ++request->n;
            if (kvcl_dir_pack_add(&pack, &sim->keys[pub->key], &pub->loc) != KVCL_OK) {
                sim_fail(sim, "Internal", "cannot pack a publish");
            }
        }
    }
    msg->len = kvcl_dir_pack_end(&pack);
}

void sim_owner_retry(sim_t *sim, sim_node_t *node)
{
    sim_pub_t *pub;
    unsigned   i;

    for (i = 0; i < SIM_SLOTS; ++i) {
        pub = &node->pub[i];
        if (pub->live && !pub->acked && !pub->refused && (sim->step >= pub->retry_at)) {
            send_publish(sim, node, pub->home);
        }
    }
    for (i = 0; i < SIM_REMOVES; ++i) {
        if (node->removes[i].live && (sim->step >= node->removes[i].retry_at)) {
            send_remove(sim, node, &node->removes[i]);
        }
    }
}

static void publish_reply(sim_t *sim, sim_node_t *node, const kvcl_dir_msg_t *reply)
{
    const sim_request_t *request = &node->requests[reply->id % SIM_REQUESTS];
    sim_pub_t           *pub;
    kvcl_status_t        status;
    uint32_t             i;

    if ((request->id != reply->id) || (request->n != reply->n)) {
        return;
    }
    for (i = 0; i < reply->n; ++i) {
        pub    = &node->pub[request->slot[i]];
        status = kvcl_dir_msg_status(reply, i);
        if (!pub->live || (pub->target != request->target[i]) || pub->acked) {
            continue;
        }
        pub->acked   = (status == KVCL_OK);
        pub->refused = (status == KVCL_ERR_EXISTS) || (status == KVCL_ERR_NO_SPACE);
        if (pub->acked) {
            ++sim->counts.acks;
            sim_log(sim, "rank %u: key %u slot %u is acknowledged by rank %u", node->rank, pub->key,
                    request->slot[i], pub->home);
            sim_check_findable(sim, &sim->nodes[pub->home]);
        }
    }
}

void sim_owner_reply(sim_t *sim, sim_node_t *node, const kvcl_dir_msg_t *reply)
{
    unsigned i;

    if (reply->type == KVCL_DIR_MSG_PUBLISH_REPLY) {
        publish_reply(sim, node, reply);
    }
    for (i = 0; (reply->type == KVCL_DIR_MSG_REMOVE_REPLY) && (i < SIM_REMOVES); ++i) {
        node->removes[i].live = node->removes[i].live && (node->removes[i].id != reply->id);
    }
}

/* The mutation: a remove deletes the current contents of the slot's entry. */
static void forget_gen(const sim_t *sim, const sim_node_t *node, uint8_t *record)
{
    kvcl_dir_loc_t locs[KVCL_DIR_LOCS_MAX], loc;
    kvcl_key_t     key;
    unsigned       n, i;

    (void)sim;
    memcpy(&key, record, sizeof(key));
    memcpy(&loc, record + sizeof(key), sizeof(loc));
    n = kvcl_dir_table_find(&node->table, &key, locs);
    for (i = 0; i < n; ++i) {
        if ((locs[i].rank == loc.rank) && (locs[i].slot == loc.slot)) {
            memcpy(record + sizeof(key), &locs[i], sizeof(loc));
        }
    }
}

void sim_home_request(sim_t *sim, sim_node_t *node, const sim_msg_t *msg, const kvcl_dir_msg_t *request)
{
    kvcl_dir_msg_t    taken = *request;
    kvcl_home_event_t event = {.type = KVCL_HOME_REQUEST, .u.request = &taken};
    uint8_t           answer[SIM_BYTES];
    kvcl_home_out_t   out = {.buf = answer, .cap = sizeof(answer)};
    sim_msg_t        *back;

    if ((sim->broken == BREAK_LATE_REMOVE) && (request->type == KVCL_DIR_MSG_REMOVE)) {
        forget_gen(sim, node, (uint8_t *)(uintptr_t)request->items);
    }
    if (sim->broken == BREAK_HOME_BEHIND) {
        taken.view = 0;
    }
    sim->counts.behind += (request->type == KVCL_DIR_MSG_PUBLISH) && (request->view > node->view);
    if (kvcl_home_step(&node->home, &event, &out) != KVCL_OK) {
        sim_fail(sim, "Internal", "rank %u cannot answer", node->rank);
        return;
    }
    sim_check_findable(sim, node);
    back      = sim_send(sim, node->rank, msg->from, MSG_DIR);
    back->len = out.len;
    memcpy(back->bytes, answer, out.len);
}

static void serve_reply(sim_t *sim, const sim_node_t *node, uint32_t reader, uint64_t id, kvcl_status_t status,
                        const uint64_t *words)
{
    sim_msg_t *back = sim_send(sim, node->rank, reader, MSG_GET_REPLY);

    back->id     = id;
    back->status = status;
    if (words != NULL) {
        memcpy(back->words, words, sizeof(back->words));
    }
}

void sim_serve_begin(sim_t *sim, sim_node_t *node, const sim_msg_t *msg)
{
    sim_serve_t *serve = &node->serves[sim_below(sim, SIM_SERVES)];

    if (serve->live) {
        serve_reply(sim, node, msg->from, msg->id, KVCL_ERR_BUSY, NULL);
    } else if ((msg->loc.incarnation != node->inc) && (sim->broken != BREAK_STALE_INCARNATION)) {
        serve_reply(sim, node, msg->from, msg->id, KVCL_ERR_STALE, NULL);
    } else {
        *serve = (sim_serve_t){.live = true, .reader = msg->from, .id = msg->id, .loc = msg->loc};
        sim_copy_begin(sim, &serve->copy, false);
    }
}

/* Copy a word; after the last, the generation word decides, and the reply is sent. */
void sim_serve_step(sim_t *sim, sim_node_t *node)
{
    sim_serve_t *serve = &node->serves[sim_below(sim, SIM_SERVES)];
    sim_mem_t   *mem   = mem_of(sim, node);
    unsigned    i;

    for (i = 0; !serve->live && (i < SIM_SERVES); ++i) {
        serve = &node->serves[i];
    }
    if (!serve->live || !sim_copy_step(sim, &serve->copy, mem, &serve->loc)) {
        return;
    }
    serve->live = false;
    if (sim_copy_holds(sim, &serve->copy, mem, &serve->loc, "by the server")) {
        kvcl_evict_touch(&node->evict, serve->loc.slot);
        serve_reply(sim, node, serve->reader, serve->id, KVCL_OK, serve->copy.words);
    } else {
        ++sim->counts.serves_stale;
        serve_reply(sim, node, serve->reader, serve->id, KVCL_ERR_STALE, NULL);
    }
}
