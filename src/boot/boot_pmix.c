/*
 * Under mpirun, srun --mpi=pmix or prun: PMIx gives rank and size and carries the blobs. Only this file,
 * boot_pmix_wait.c, its waits, and boot_pmix_job.c, the launcher's numbers, call PMIx, by the table of pmix/pmix_api.h.
 *
 * Per rank: one put and commit, one fence that collects the data, then gets which the local PMIx server answers. The
 * key is "kvcl.<n>.blob", n counting the opens of this process, so several contexts do not meet each other's values. A
 * value begins with rank 0's invite (boot_invite.h), or with another rank's public value. Without a secret file rank 0
 * then seals the secret for each rank (boot_agree.h) and puts all of them as "kvcl.<n>.sealed", which a second fence
 * collects: PMIx and its daemons never have the secret.
 *
 * Invariant: every rank puts its value and takes part in both fences, with or without a secret file, also after it has
 * failed: the others wait there. The value of a rank that has failed is FAILED_LEN bytes; ranks that need it fail.
 *
 * Locks: none; the waits and the numbers have one each.
 */
#include "config.h"
#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif
#if KVCL_HAVE_PMIX
#include "boot/boot.h"
#include "boot/boot_agree.h"
#include "boot/boot_blobs.h"
#include "boot/boot_invite.h"
#include "boot/boot_pmix_job.h"
#include "boot/boot_pmix_wait.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct boot_pmix {
    kvcl_boot_t  super;
    pmix_proc_t  self;
    unsigned     n;
    char        *secret_file;
    kvcl_blobs_t blobs;
} boot_pmix_t;

enum { FAILED_LEN = 1 };

static atomic_uint open_count;

/* ---------------------------------------------------------------- open */

static int pmix_available(const kvcl_boot_params_t *params)
{
    (void)params;
    return (kvcl_settings_getenv(NULL, "PMIX_NAMESPACE") != NULL) &&
           (kvcl_settings_getenv(NULL, "PMIX_RANK") != NULL);
}

static kvcl_status_t read_job(boot_pmix_t *pm, const kvcl_boot_params_t *params)
{
    kvcl_pmix_numbers_t numbers;
    pmix_status_t       rc = kvcl_pmix_numbers(&pm->self, &numbers);

    if (rc != PMIX_SUCCESS) {
        return kvcl_pmix_fail(rc, "PMIx does not tell the job's size");
    }
    if ((numbers.size < 1) || (numbers.size > KVCL_BOOT_RANKS_MAX) || (pm->self.rank >= numbers.size)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "PMIx reports rank %u of %lu, at most %d ranks are supported",
                         (unsigned)pm->self.rank, numbers.size, (int)KVCL_BOOT_RANKS_MAX);
    }
    pm->super.rank       = (int)pm->self.rank;
    pm->super.size       = (int)numbers.size;
    pm->super.local_rank = (numbers.local_rank < KVCL_BOOT_RANKS_MAX) ? (int)numbers.local_rank : -1;
    if (((params->rank >= 0) && (params->rank != pm->super.rank)) ||
        ((params->size > 0) && (params->size != pm->super.size))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "rank %d of %d was requested, but the launcher made this rank %d of "
                         "%d: unset KVCL_RANK and KVCL_SIZE", params->rank, params->size, pm->super.rank,
                         pm->super.size);
    }
    snprintf(pm->super.job, sizeof(pm->super.job), "%.200s.%u", pm->self.nspace, pm->n);
    return KVCL_OK;
}

static void pmix_close(kvcl_boot_t *boot)
{
    boot_pmix_t  *pm = (boot_pmix_t *)(void *)boot;
    pmix_status_t rc = kvcl_pmix.PMIx_Finalize(NULL, 0); /* counted by PMIx: the last one disconnects */

    if (rc != PMIX_SUCCESS) {
        kvcl_log_warn("PMIx_Finalize: %s", kvcl_pmix.PMIx_Error_string(rc));
    }
    kvcl_blobs_fini(&pm->blobs);
    free(pm->secret_file);
    free(pm);
}

static kvcl_status_t pmix_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    kvcl_status_t status = kvcl_pmix_load();
    boot_pmix_t  *pm;
    pmix_status_t rc;

    if (status != KVCL_OK) {
        return kvcl_fail(status, "a PMIx launcher started this rank, but %s: install PMIx (Debian: libpmix2), or set "
                         "KVCL_RENDEZVOUS, or KVCL_BOOT=self", kvcl_last_error());
    }
    pm = (boot_pmix_t *)calloc(1, sizeof(*pm));
    if (pm == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    if (params->secret_file != NULL) {
        pm->secret_file = strdup(params->secret_file);
        if (pm->secret_file == NULL) {
            free(pm);
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
        }
    }
    rc = kvcl_pmix.PMIx_Init(&pm->self, NULL, 0);
    if (rc != PMIX_SUCCESS) {
        free(pm->secret_file);
        free(pm);
        (void)kvcl_pmix_fail(rc, "PMIx_Init");
        return kvcl_fail((rc == PMIX_ERR_UNREACH) ? KVCL_ERR_UNREACHABLE : KVCL_ERR_IO,
                         "no PMIx launcher answers (%s): start under mpirun or srun --mpi=pmix, or set "
                         "KVCL_RENDEZVOUS, or KVCL_BOOT=self", kvcl_last_error());
    }
    pm->super.ops    = &kvcl_boot_pmix_ops;
    pm->super.secret = secret;
    pm->n            = atomic_fetch_add(&open_count, 1);
    kvcl_blobs_init(&pm->blobs);
    status = read_job(pm, params);
    if (status != KVCL_OK) {
        pmix_close(&pm->super);
        return status;
    }
    *boot_p = &pm->super;
    return KVCL_OK;
}

/* ---------------------------------------------------------------- exchange */

static void make_key(const boot_pmix_t *pm, const char *what, char *key, size_t len)
{
    snprintf(key, len, "kvcl.%u.%s", pm->n, what);
}

static kvcl_status_t put_value(boot_pmix_t *pm, const char *what, const void *bytes, size_t len)
{
    char          key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t  value;
    pmix_status_t rc;

    make_key(pm, what, key, sizeof(key));
    memset(&value, 0, sizeof(value));
    value.type          = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)(uintptr_t)bytes; /* PMIx copies it */
    value.data.bo.size  = len;
    rc                  = kvcl_pmix.PMIx_Put(PMIX_GLOBAL, key, &value);
    if (rc == PMIX_SUCCESS) {
        rc = kvcl_pmix.PMIx_Commit();
    }
    return (rc == PMIX_SUCCESS) ? KVCL_OK : kvcl_pmix_fail(rc, "PMIx_Put");
}

/* Waits until all ranks have put their values, and collects these. */
static kvcl_status_t fence_until(boot_pmix_t *pm, uint64_t deadline_ns)
{
    kvcl_pmix_wait_t *wait = kvcl_pmix_wait_new();
    pmix_proc_t      job;
    pmix_info_t      info;
    kvcl_status_t    status;
    pmix_status_t    rc;

    if (wait == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    kvcl_pmix_proc(&job, pm->self.nspace, PMIX_RANK_WILDCARD);
    kvcl_pmix_yes(&info, PMIX_COLLECT_DATA); /* packed before PMIx_Fence_nb returns */
    rc = kvcl_pmix.PMIx_Fence_nb(&job, 1, &info, 1, kvcl_pmix_on_fence, wait);
    if (rc == PMIX_SUCCESS) {
        status = kvcl_pmix_wait_until(wait, deadline_ns, "PMIx_Fence");
        kvcl_pmix_wait_put(wait, 1);
    } else {
        status = (rc == PMIX_OPERATION_SUCCEEDED) ? KVCL_OK : kvcl_pmix_fail(rc, "PMIx_Fence");
        kvcl_pmix_wait_put(wait, 2);
    }
    return status;
}

static kvcl_status_t get_value(boot_pmix_t *pm, const char *what, int rank, void **bytes_p, size_t *len_p)
{
    char             key[PMIX_MAX_KEYLEN + 1];
    kvcl_pmix_wait_t *wait = kvcl_pmix_wait_new();
    pmix_proc_t      proc;
    kvcl_status_t    status;
    pmix_status_t    rc;

    if (wait == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    make_key(pm, what, key, sizeof(key));
    kvcl_pmix_proc(&proc, pm->self.nspace, (pmix_rank_t)rank);
    rc = kvcl_pmix.PMIx_Get_nb(&proc, key, NULL, 0, kvcl_pmix_on_value, wait);
    if (rc != PMIX_SUCCESS) {
        kvcl_pmix_wait_put(wait, 2);
        return kvcl_pmix_fail(rc, "PMIx_Get");
    }
    status = kvcl_pmix_wait_until(wait, kvcl_deadline_after(pm->super.timeout_ns), "PMIx_Get");
    if (status == KVCL_OK) {
        *bytes_p    = wait->bytes;
        *len_p      = wait->len;
        wait->bytes = NULL;
    }
    kvcl_pmix_wait_put(wait, 1);
    return status;
}

/* Also after a failure, whose status and sentence it keeps: the value that this rank lacks is replaced. False: the
 * fence failed. */
static bool fence_anyway(boot_pmix_t *pm, kvcl_status_t *status_p, const char *what, uint64_t deadline_ns)
{
    static const char failed[FAILED_LEN];
    char              why[KVCL_ERROR_MAX];
    kvcl_status_t     fenced;

    snprintf(why, sizeof(why), "%s", kvcl_last_error());
    if (*status_p != KVCL_OK) {
        (void)!put_value(pm, what, failed, sizeof(failed));
    }
    fenced    = fence_until(pm, deadline_ns);
    *status_p = (*status_p == KVCL_OK) ? fenced : kvcl_fail(*status_p, "%s", why);
    return fenced == KVCL_OK;
}

static kvcl_status_t has_failed(int rank)
{
    return kvcl_fail(KVCL_ERR_RANK_FAILED, "rank %d failed before the ranks met: see its own error", rank);
}

/* Bytes before the blob in a rank's value: rank 0's invite, or the rank's public value. */
static size_t head_len(int rank)
{
    return (rank == 0) ? (size_t)KVCL_INVITE_LEN : (size_t)KVCL_AGREE_LEN;
}

/* Fetch a rank's value: the head is returned, the blob is kept. */
static kvcl_status_t fetch_blob(boot_pmix_t *pm, int rank, uint8_t head[KVCL_INVITE_LEN])
{
    size_t        skip   = head_len(rank);
    size_t        len    = 0;
    void         *bytes  = NULL;
    kvcl_status_t status = get_value(pm, "blob", rank, &bytes, &len);

    if (status != KVCL_OK) {
        return status;
    }
    if (len == FAILED_LEN) {
        status = has_failed(rank);
    } else if ((len < skip) || (len - skip > KVCL_BOOT_BLOB_MAX)) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "rank %d gave a value of %zu bytes", rank, len);
    } else {
        memcpy(head, bytes, skip);
        status = kvcl_blobs_put(&pm->blobs, rank, (char *)bytes + skip, len - skip);
    }
    free(bytes);
    return status;
}

static kvcl_status_t put_blob(boot_pmix_t *pm, const kvcl_agree_t *own, kvcl_invite_t *invite, const void *blob,
                              size_t len)
{
    kvcl_status_t status = KVCL_OK;
    size_t        head   = head_len(pm->super.rank);
    uint8_t      *bytes  = (uint8_t *)malloc(head + len);

    if (bytes == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a boot blob");
    }
    if (pm->super.rank == 0) {
        memcpy(invite->pub, own->pub, sizeof(own->pub));
        status = kvcl_invite_make(pm->secret_file, invite, bytes);
    } else {
        memcpy(bytes, own->pub, sizeof(own->pub));
    }
    if (status == KVCL_OK) {
        if (len > 0) {
            memcpy(bytes + head, blob, len);
        }
        status = put_value(pm, "blob", bytes, head + len);
    }
    free(bytes);
    return status;
}

/* Rank 0: the secret, sealed for each other rank. */
static kvcl_status_t give_secret(boot_pmix_t *pm, const kvcl_agree_t *own, uint64_t id)
{
    size_t        len    = (size_t)(pm->super.size - 1) * KVCL_AGREE_SEALED_LEN;
    uint8_t      *sealed = (uint8_t *)malloc(len);
    uint8_t       head[KVCL_INVITE_LEN];
    kvcl_status_t status = KVCL_OK;
    int           rank;

    if (sealed == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    for (rank = 1; (rank < pm->super.size) && (status == KVCL_OK); ++rank) {
        status = fetch_blob(pm, rank, head);
        if (status == KVCL_OK) {
            status = kvcl_agree_seal(own, head, id, rank, pm->super.secret,
                                     sealed + (size_t)(rank - 1) * KVCL_AGREE_SEALED_LEN);
        }
    }
    status = (status == KVCL_OK) ? put_value(pm, "sealed", sealed, len) : status;
    free(sealed);
    return status;
}

static kvcl_status_t take_secret(boot_pmix_t *pm, const kvcl_agree_t *own, const kvcl_invite_t *invite)
{
    size_t        at    = (size_t)(pm->super.rank - 1) * KVCL_AGREE_SEALED_LEN, len = 0;
    void         *bytes = NULL;
    kvcl_status_t status = get_value(pm, "sealed", 0, &bytes, &len);

    if (status != KVCL_OK) {
        return status;
    }
    if (len == FAILED_LEN) {
        status = has_failed(0);
    } else if (len != (size_t)(pm->super.size - 1) * KVCL_AGREE_SEALED_LEN) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "rank 0 gave %zu bytes of sealed secrets for %d ranks", len,
                           pm->super.size);
    } else {
        status = kvcl_agree_open(own, invite->pub, invite->id, pm->super.rank, (const uint8_t *)bytes + at,
                                 pm->super.secret);
    }
    free(bytes);
    return status;
}

/* All values have been put. status: of this rank. */
static kvcl_status_t agree(boot_pmix_t *pm, const kvcl_agree_t *own, kvcl_invite_t *invite, kvcl_status_t status,
                           uint64_t deadline_ns)
{
    bool    first = (pm->super.rank == 0);
    uint8_t head[KVCL_INVITE_LEN];

    if (status == KVCL_OK) {
        if (!first) {
            status = fetch_blob(pm, 0, head);
            status = (status == KVCL_OK) ? kvcl_invite_accept(head, sizeof(head), pm->secret_file, invite) : status;
        } else if ((pm->secret_file == NULL) && (pm->super.size > 1)) {
            status = give_secret(pm, own, invite->id);
        }
    }
    (void)fence_anyway(pm, &status, "sealed", deadline_ns); /* only rank 0's is read */
    return ((status == KVCL_OK) && !first && invite->agreed) ? take_secret(pm, own, invite) : status;
}

static kvcl_status_t pmix_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_pmix_t  *pm          = (boot_pmix_t *)(void *)boot;
    uint64_t      deadline_ns = kvcl_deadline_after(boot->timeout_ns);
    uint8_t       pub[KVCL_AGREE_LEN];
    kvcl_invite_t invite = {.secret = boot->secret, .pub = pub};
    kvcl_agree_t  own;
    kvcl_status_t status = kvcl_agree_begin(&own);

    status = (status == KVCL_OK) ? put_blob(pm, &own, &invite, blob, len) : status;
    if (fence_anyway(pm, &status, "blob", deadline_ns)) {
        status = agree(pm, &own, &invite, status, deadline_ns);
    }
    kvcl_agree_end(&own);
    return status;
}

static kvcl_status_t pmix_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_pmix_t  *pm     = (boot_pmix_t *)(void *)boot;
    kvcl_status_t status = kvcl_blobs_get(&pm->blobs, rank, blob_p, len_p);
    uint8_t       head[KVCL_INVITE_LEN];

    if (status == KVCL_OK) {
        return KVCL_OK;
    }
    status = fetch_blob(pm, rank, head);
    return (status == KVCL_OK) ? kvcl_blobs_get(&pm->blobs, rank, blob_p, len_p) : status;
}

const kvcl_boot_ops_t kvcl_boot_pmix_ops = {
    .size      = sizeof(kvcl_boot_ops_t),
    .name      = "pmix",
    .available = pmix_available,
    .open      = pmix_open,
    .exchange  = pmix_exchange,
    .get       = pmix_get,
    .close     = pmix_close
};
#else
typedef int kvcl_boot_pmix_is_empty_t; /* ISO C wants a declaration */
#endif
