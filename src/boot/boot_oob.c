/*
 * Boot over the caller's key-value store by its callbacks set, get and fence. Owns copies of the blobs it received.
 *
 * One key a rank, "kvcl.<n>.<rank>"; n counts this rank's boots on the store, so that several contexts do not read each
 * other's values. Rank 0 sets "kvcl.<n>.job": the job name and, unless a secret file is named, its public value. Then
 * each other rank sets "kvcl.<n>.pub.<rank>", and rank 0 "kvcl.<n>.sealed.<rank>", the secret sealed for that rank
 * (boot_agree.h): the secret is never in the store. The callbacks have no deadline argument: the caller decides how
 * long they wait.
 */
#include "config.h"
#include <kvcl/kvcl_context.h>
#include "boot/boot.h"
#include "boot/boot_agree.h"
#include "boot/boot_blobs.h"
#include "boot/boot_invite.h"
#include "base/error.h"
#include "base/structs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX_BYTES = 64 };

typedef struct boot_oob {
    kvcl_boot_t  super;
    kvcl_oob_t   cb;
    unsigned     n;
    kvcl_blobs_t blobs;
} boot_oob_t;

/* How many boots this process opened on a store for a rank: ranks may be threads of one process, and processes may have
 * opened different numbers of contexts on other stores. Kept for good: a few bytes a store. */
typedef struct count {
    struct count *next;
    const void   *arg;
    int           rank;
    unsigned      n;
} count_t;

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static count_t         *counts;

static kvcl_status_t take_number(const kvcl_oob_t *cb, unsigned *n_p)
{
    kvcl_status_t status = KVCL_OK;
    count_t       *count;

    pthread_mutex_lock(&count_lock);
    for (count = counts; count != NULL; count = count->next) {
        if ((count->arg == cb->arg) && (count->rank == cb->rank)) {
            break;
        }
    }
    if (count == NULL) {
        count = (count_t *)calloc(1, sizeof(*count));
        if (count == NULL) {
            status = kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
        } else {
            *count = (count_t){.next = counts, .arg = cb->arg, .rank = cb->rank};
            counts = count;
        }
    }
    if (status == KVCL_OK) {
        *n_p = count->n++;
    }
    pthread_mutex_unlock(&count_lock);
    return status;
}

static int oob_available(const kvcl_boot_params_t *params)
{
    return params->oob != NULL;
}

static kvcl_status_t oob_failed(kvcl_status_t status, const char *call, const char *key)
{
    return kvcl_fail((status < 0) ? status : KVCL_ERR_IO, "the caller's %s callback failed%s%s: %s", call,
                     (key[0] == '\0') ? "" : " for key ", key, kvcl_status_text(status));
}

static kvcl_status_t publish(boot_oob_t *oob, const char *key, const void *val, size_t len)
{
    kvcl_status_t status = oob->cb.set(oob->cb.arg, key, val, len);

    return (status == KVCL_OK) ? KVCL_OK : oob_failed(status, "set", key);
}

/* A value of len bytes exactly. */
static kvcl_status_t fetch(boot_oob_t *oob, const char *key, void *val, size_t len)
{
    size_t        got    = 0;
    kvcl_status_t status = oob->cb.get(oob->cb.arg, key, val, len, &got);

    if (status != KVCL_OK) {
        return oob_failed(status, "get", key);
    }
    return (got == len) ? KVCL_OK
                        : kvcl_fail(KVCL_ERR_PROTOCOL, "the value of %s has %zu bytes, not %zu", key, got, len);
}

/* Rank 0: every other rank gets the secret, sealed for it alone. */
static kvcl_status_t give_secret(boot_oob_t *oob, const kvcl_agree_t *own, uint64_t id)
{
    uint8_t       pub[KVCL_AGREE_LEN], sealed[KVCL_AGREE_SEALED_LEN];
    char          key[KEY_MAX_BYTES];
    kvcl_status_t status = KVCL_OK;
    int           rank;

    for (rank = 1; (rank < oob->super.size) && (status == KVCL_OK); ++rank) {
        snprintf(key, sizeof(key), "kvcl.%u.pub.%d", oob->n, rank);
        status = fetch(oob, key, pub, sizeof(pub));
        if (status == KVCL_OK) {
            status = kvcl_agree_seal(own, pub, id, rank, oob->super.secret, sealed);
        }
        if (status == KVCL_OK) {
            snprintf(key, sizeof(key), "kvcl.%u.sealed.%d", oob->n, rank);
            status = publish(oob, key, sealed, sizeof(sealed));
        }
    }
    return status;
}

static kvcl_status_t take_secret(boot_oob_t *oob, const kvcl_agree_t *own, const uint8_t *pub, uint64_t id)
{
    uint8_t       sealed[KVCL_AGREE_SEALED_LEN];
    char          key[KEY_MAX_BYTES];
    kvcl_status_t status;

    snprintf(key, sizeof(key), "kvcl.%u.pub.%d", oob->n, oob->super.rank);
    status = publish(oob, key, own->pub, sizeof(own->pub));
    snprintf(key, sizeof(key), "kvcl.%u.sealed.%d", oob->n, oob->super.rank);
    status = (status == KVCL_OK) ? fetch(oob, key, sealed, sizeof(sealed)) : status;
    return (status == KVCL_OK) ? kvcl_agree_open(own, pub, id, oob->super.rank, sealed, oob->super.secret) : status;
}

/* Rank 0 publishes the invite, the others get it; then, without a file, the secret. */
static kvcl_status_t pass_invite(boot_oob_t *oob, const char *secret_file, kvcl_agree_t *own, kvcl_invite_t *invite)
{
    uint8_t       wire[KVCL_INVITE_LEN];
    char          key[KEY_MAX_BYTES];
    size_t        len = 0;
    kvcl_status_t status;

    snprintf(key, sizeof(key), "kvcl.%u.job", oob->n);
    if (oob->super.rank == 0) {
        memcpy(invite->pub, own->pub, sizeof(own->pub));
        status = kvcl_invite_make(secret_file, invite, wire);
        status = (status == KVCL_OK) ? publish(oob, key, wire, sizeof(wire)) : status;
        return ((status == KVCL_OK) && (secret_file == NULL)) ? give_secret(oob, own, invite->id) : status;
    }
    status = oob->cb.get(oob->cb.arg, key, wire, sizeof(wire), &len);
    if (status != KVCL_OK) {
        return oob_failed(status, "get", key);
    }
    status = kvcl_invite_accept(wire, (len > sizeof(wire)) ? 0 : len, secret_file, invite);
    return ((status == KVCL_OK) && invite->agreed) ? take_secret(oob, own, invite->pub, invite->id) : status;
}

/* The job's name and secret. */
static kvcl_status_t oob_agree(boot_oob_t *oob, const char *secret_file)
{
    uint8_t       pub[KVCL_AGREE_LEN];
    kvcl_invite_t invite = {.secret = oob->super.secret, .pub = pub};
    kvcl_agree_t  own;
    kvcl_status_t status = kvcl_agree_begin(&own);

    status = (status == KVCL_OK) ? pass_invite(oob, secret_file, &own, &invite) : status;
    if (status == KVCL_OK) {
        snprintf(oob->super.job, sizeof(oob->super.job), "oob-%016" PRIx64, invite.id);
    }
    kvcl_agree_end(&own);
    return status;
}

static void oob_close(kvcl_boot_t *boot)
{
    boot_oob_t *oob = (boot_oob_t *)(void *)boot;

    kvcl_blobs_fini(&oob->blobs);
    free(oob);
}

static kvcl_status_t oob_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    kvcl_oob_t    own = KVCL_OOB_INIT, *cb = &own;
    boot_oob_t    *oob;
    kvcl_status_t status;

    if (params->oob == NULL) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "boot \"oob\" (KVCL_BOOT or params.boot) means the caller's "
                         "callbacks, and params.oob is NULL: give them, or another boot: %s", kvcl_boot_kinds());
    }
    status = kvcl_struct_in(&own, params->oob, KVCL_UP_TO(kvcl_oob_t, arg), sizeof(own), "kvcl_oob_t");
    if (status != KVCL_OK) {
        return status;
    }
    if ((cb->set == NULL) || (cb->get == NULL) || (cb->fence == NULL) || (cb->nranks < 1) || (cb->rank < 0) ||
        (cb->rank >= cb->nranks) || (cb->nranks > KVCL_BOOT_RANKS_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "params.oob: the callbacks set, get and fence are needed, and rank %d "
                         "of %d must be possible", cb->rank, cb->nranks);
    }
    oob = (boot_oob_t *)calloc(1, sizeof(*oob));
    if (oob == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    oob->super.ops        = &kvcl_boot_oob_ops;
    oob->super.secret     = secret;
    oob->super.rank       = cb->rank;
    oob->super.size       = cb->nranks;
    oob->super.local_rank = -1;
    oob->cb               = *cb;
    kvcl_blobs_init(&oob->blobs);
    status = take_number(cb, &oob->n);
    if (status == KVCL_OK) {
        status = oob_agree(oob, params->secret_file);
    }
    if (status != KVCL_OK) {
        oob_close(&oob->super);
        return status;
    }
    *boot_p = &oob->super;
    return KVCL_OK;
}

static kvcl_status_t oob_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_oob_t   *oob = (boot_oob_t *)(void *)boot;
    char          key[KEY_MAX_BYTES];
    kvcl_status_t status;

    snprintf(key, sizeof(key), "kvcl.%u.%d", oob->n, boot->rank);
    status = oob->cb.set(oob->cb.arg, key, blob, len);
    if (status != KVCL_OK) {
        return oob_failed(status, "set", key);
    }
    status = oob->cb.fence(oob->cb.arg);
    return (status == KVCL_OK) ? KVCL_OK : oob_failed(status, "fence", "");
}

static kvcl_status_t oob_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_oob_t   *oob = (boot_oob_t *)(void *)boot;
    char          key[KEY_MAX_BYTES];
    kvcl_status_t status = kvcl_blobs_get(&oob->blobs, rank, blob_p, len_p);
    size_t        len    = 0;
    void         *buf;

    if (status == KVCL_OK) {
        return KVCL_OK;
    }
    buf = malloc(KVCL_BOOT_BLOB_MAX);
    if (buf == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the blob of rank %d", rank);
    }
    snprintf(key, sizeof(key), "kvcl.%u.%d", oob->n, rank);
    status = oob->cb.get(oob->cb.arg, key, buf, KVCL_BOOT_BLOB_MAX, &len);
    if (status != KVCL_OK) {
        status = oob_failed(status, "get", key);
    } else if (len > KVCL_BOOT_BLOB_MAX) {
        status = kvcl_fail(KVCL_ERR_TRUNCATED, "the value of %s has %zu bytes, at most %d go", key, len,
                           (int)KVCL_BOOT_BLOB_MAX);
    } else {
        status = kvcl_blobs_put(&oob->blobs, rank, buf, len);
    }
    free(buf);
    return (status == KVCL_OK) ? kvcl_blobs_get(&oob->blobs, rank, blob_p, len_p) : status;
}

const kvcl_boot_ops_t kvcl_boot_oob_ops = {
    .size      = sizeof(kvcl_boot_ops_t),
    .name      = "oob",
    .available = oob_available,
    .open      = oob_open,
    .exchange  = oob_exchange,
    .get       = oob_get,
    .close     = oob_close
};
