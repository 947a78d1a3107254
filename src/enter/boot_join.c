/*
 * A process that joins a running job: KVCL_JOIN=host:port[,host:port...], the ports of members (KVCL_JOIN_AT). Any of
 * them answers which slot the process gets, and who the members are; the rest of joining is src/member's.
 *
 * Owns the last answer, whose addresses are the members' blobs. A slot that no member has has no blob. What it waits
 * for ends at the deadline: a member that answers nothing, a slot whose process is about to be excluded.
 */
#include "config.h"
#include "boot/boot.h"
#include "enter/join_wire.h"
#include "boot/secret.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hostport.h"
#include "base/units.h"
#include "sock/sock_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ADDRESSES_MAX = 64 };
#define ASK_NS  (3 * KVCL_NS_PER_SEC)   /* for one member's answer */
#define MORE_NS KVCL_NS_PER_SEC         /* than KVCL_DEAD: a slot of a dead process may still seem taken */
#define NAP_NS  (100 * KVCL_NS_PER_MS)

typedef struct boot_join {
    kvcl_boot_t        super;
    unsigned           n;
    kvcl_hostport_t    at[ADDRESSES_MAX];
    void               *bytes; /* of the answer */
    void               *own;   /* this rank's blob */
    size_t             own_len;
    kvcl_join_answer_t answer;
} boot_join_t;

static int join_available(const kvcl_boot_params_t *params)
{
    return params->join != NULL;
}

static kvcl_status_t parse(boot_join_t *join, const char *text)
{
    char          *copy = strdup(text), *rest = copy, *item;
    kvcl_status_t status = KVCL_OK;

    while ((copy != NULL) && (status == KVCL_OK) && ((item = strsep(&rest, ",")) != NULL)) {
        if (item[0] == '\0') {
            continue;
        }
        status = (join->n < ADDRESSES_MAX)
                     ? kvcl_hostport_parse(item, "KVCL_JOIN", 1, &join->at[join->n++])
                     : kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_JOIN has more than %d addresses", ADDRESSES_MAX);
    }
    free(copy);
    if ((status == KVCL_OK) && (join->n == 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_JOIN=\"%s\" names no host:port", text);
    }
    return status;
}

/* One member's answer. */
static kvcl_status_t ask(boot_join_t *join, const kvcl_hostport_t *at, const kvcl_boot_params_t *params,
                         uint64_t deadline_ns)
{
    uint8_t              bytes[KVCL_JOIN_QUESTION];
    const uint64_t       limit_ns = kvcl_deadline_after(ASK_NS);
    kvcl_sock_question_t question = {.secret = join->super.secret, .id = kvcl_join_id, .wake_fd = -1,
                                     .deadline_ns = (limit_ns < deadline_ns) ? limit_ns : deadline_ns,
                                     .question = bytes, .question_len = sizeof(bytes),
                                     .answer_max = KVCL_JOIN_ANSWER_MAX};
    kvcl_status_t        status;
    size_t               len;

    kvcl_join_question_pack(params->rank, bytes, params->wire_version);
    free(join->bytes);
    join->bytes = NULL;
    status      = kvcl_sock_ask(at, &question, &join->bytes, &len);
    return (status == KVCL_OK) ? kvcl_join_answer_unpack(join->bytes, len, &join->answer) : status;
}

/* What an answer that is no slot means. */
static kvcl_status_t refused(kvcl_status_t status, const kvcl_boot_params_t *params, const char *at)
{
    switch (status) {
    case KVCL_ERR_NO_SPACE:
        return kvcl_fail(status, "the job at %s has no free slot: start it with a higher KVCL_SLOTS", at);
    case KVCL_ERR_BUSY:
        return kvcl_fail(status, "KVCL_RANK=%d (or params.rank): that slot of the job at %s has a living rank, or "
                         "another process is joining in it", params->rank, at);
    case KVCL_ERR_UNKNOWN_RANK:
        return kvcl_fail(status, "KVCL_RANK=%d (or params.rank): the job at %s has fewer slots", params->rank, at);
    case KVCL_ERR_VERSION:
        return kvcl_fail(status, "the job at %s runs another version of KVCL", at);
    case KVCL_INPROGRESS:
        return kvcl_fail(KVCL_ERR_BUSY, "the slot of the job at %s is not free yet", at);
    default:
        return status;
    }
}

/* Those that say nothing of the job: another address may. */
static bool says_nothing(kvcl_status_t status)
{
    return (status == KVCL_ERR_UNREACHABLE) || (status == KVCL_ERR_TIMED_OUT) || (status == KVCL_ERR_IO);
}

/* The slot asked for, or every slot, seems to be a living rank's: so does that of one that is silent for KVCL_DEAD. */
static bool may_end(const kvcl_join_answer_t *answer, uint64_t begun_ns)
{
    const uint64_t dead_ns = answer->times_ns[KVCL_JOIN_TIME_DEAD], spent_ns = kvcl_now_ns() - begun_ns;

    return ((answer->status == KVCL_ERR_BUSY) || (answer->status == KVCL_ERR_NO_SPACE)) &&
           ((spent_ns < MORE_NS) || (spent_ns - MORE_NS < dead_ns));
}

/* Each address once. *again_p: asking again may help. */
static kvcl_status_t ask_each(boot_join_t *join, const kvcl_boot_params_t *params, uint64_t deadline_ns,
                              uint64_t begun_ns, bool *again_p)
{
    char          at[KVCL_HOSTPORT_MAX], why[KVCL_ERROR_MAX];
    kvcl_status_t status, worst = KVCL_ERR_UNREACHABLE;
    unsigned      i;

    snprintf(why, sizeof(why), "none of the addresses of KVCL_JOIN was asked in time");
    *again_p = true;
    for (i = 0; (i < join->n) && !kvcl_deadline_passed(deadline_ns); ++i) {
        (void)kvcl_hostport_print(&join->at[i], at);
        status = ask(join, &join->at[i], params, deadline_ns);
        if (status == KVCL_OK) {
            if (join->answer.status == KVCL_OK) {
                return KVCL_OK;
            }
            *again_p = (join->answer.status == KVCL_INPROGRESS) || may_end(&join->answer, begun_ns);
            return refused(join->answer.status, params, at);
        }
        if (!says_nothing(status) || says_nothing(worst)) { /* a refusal says more */
            worst = says_nothing(status) ? KVCL_ERR_UNREACHABLE : status;
            snprintf(why, sizeof(why), "nobody at %s lets this process join: %s", at, kvcl_last_error());
        }
    }
    *again_p = says_nothing(worst);
    return kvcl_fail(worst, "%s", why);
}

static kvcl_status_t ask_all(boot_join_t *join, const kvcl_boot_params_t *params)
{
    const uint64_t        deadline_ns = join->super.join_until_ns;
    const uint64_t        begun_ns    = kvcl_now_ns();
    const struct timespec nap         = {.tv_nsec = (long)NAP_NS};
    kvcl_status_t         status;
    char                  why[KVCL_ERROR_MAX / 2], wait[32];
    bool                  again;

    for (;;) {
        status = ask_each(join, params, deadline_ns, begun_ns, &again);
        if ((status == KVCL_OK) || !again) {
            return status;
        }
        if (kvcl_deadline_left(deadline_ns) <= NAP_NS) {
            snprintf(why, sizeof(why), "%s", kvcl_last_error());
            return kvcl_fail(status, "%s; tried for %s (KVCL_BOOT_TIMEOUT)", why,
                             kvcl_time_format(wait, sizeof(wait), kvcl_boot_timeout(params)));
        }
        nanosleep(&nap, NULL);
    }
}

static void join_close(kvcl_boot_t *boot)
{
    boot_join_t *join = (boot_join_t *)(void *)boot;

    free(join->bytes);
    free(join->own);
    free(join);
}

static kvcl_status_t join_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    boot_join_t   *join;
    kvcl_status_t status;

    if (params->join == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_BOOT=join needs KVCL_JOIN=host:port, the port of a member "
                         "(KVCL_JOIN_AT)");
    }
    join = (boot_join_t *)calloc(1, sizeof(*join));
    if (join == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    join->super.ops           = &kvcl_boot_join_ops;
    join->super.secret        = secret;
    join->super.local_rank    = -1;
    join->super.join_until_ns = kvcl_deadline_after(kvcl_boot_timeout(params));
    status = parse(join, params->join);
    if ((status == KVCL_OK) && (params->rank >= KVCL_JOIN_SLOTS_MAX)) { /* no question can name it */
        status = kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "KVCL_RANK=%d (or params.rank): a job that one can join has at most "
                           "%d slots", params->rank, (int)KVCL_JOIN_SLOTS_MAX);
    }
    if (status == KVCL_OK) {
        status = (params->secret_file != NULL) ? kvcl_secret_named(params->secret_file, secret)
                                               : kvcl_secret_of_user(secret);
    }
    status = (status == KVCL_OK) ? ask_all(join, params) : status;
    if (status != KVCL_OK) {
        join_close(&join->super);
        return status;
    }
    join->super.rank          = (int)join->answer.slot;
    join->super.size          = (int)join->answer.n_slots;
    join->super.join_times_ns = join->answer.times_ns;
    snprintf(join->super.job, sizeof(join->super.job), "join-%u", (unsigned)join->answer.slot);
    *boot_p = &join->super;
    return KVCL_OK;
}

static kvcl_status_t join_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_join_t *join = (boot_join_t *)(void *)boot;

    join->own = malloc((len == 0) ? 1 : len);
    if (join->own == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a boot blob");
    }
    memcpy(join->own, blob, len);
    join->own_len = len;
    return KVCL_OK;
}

static kvcl_status_t join_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_join_t *join = (boot_join_t *)(void *)boot;
    uint32_t    i;

    if (rank == boot->rank) {
        *blob_p = join->own;
        *len_p  = join->own_len;
        return KVCL_OK;
    }
    for (i = 0; i < join->answer.n_members; ++i) {
        if (join->answer.members[i].slot == (uint32_t)rank) {
            *blob_p = join->answer.members[i].address;
            *len_p  = join->answer.members[i].len;
            return KVCL_OK;
        }
    }
    return KVCL_ERR_NOT_FOUND;
}

const kvcl_boot_ops_t kvcl_boot_join_ops = {
    .size      = sizeof(kvcl_boot_ops_t),
    .name      = "join",
    .available = join_available,
    .open      = join_open,
    .exchange  = join_exchange,
    .get       = join_get,
    .close     = join_close
};
