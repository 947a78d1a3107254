/*
 * Under mpirun, srun --mpi=pmix or prun: PMIx gives rank and size and carries the blobs. Only this file and
 * boot_pmix_wait.c, its waits, use pmix.h.
 *
 * Per rank: one put and commit, one fence that collects the data, then gets which the local PMIx server
 * answers. The key is "kvcl.<n>.blob", n counting the opens of this process, so several contexts do not meet
 * each other's values. Rank 0's value starts with the invite (boot_invite.h), which carries the job secret:
 * PMIx shows a value only to processes of the job, which it authenticated.
 *
 * Locks: job_numbers_lock, a leaf; the waits have one of their own.
 */
#include "config.h"
#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif
#if KVCL_HAVE_PMIX
#include "boot/boot.h"
#include "boot/boot_blobs.h"
#include "boot/boot_invite.h"
#include "boot/boot_pmix_wait.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <pmix.h>

#include <pthread.h>
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

/* The launcher's numbers, read at the first open. Kept, because PMIx 4.2 drops the job's data when the last
 * PMIx_Finalize disconnects, and does not get it again when a later PMIx_Init connects. */
typedef struct job_numbers {
    int           known;
    unsigned long size;
    unsigned long local_rank; /* KVCL_BOOT_RANKS_MAX: not known */
} job_numbers_t;

static atomic_uint     open_count;
static job_numbers_t   job_numbers;
static pthread_mutex_t job_numbers_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */

/* ---------------------------------------------------------------- open */

static int pmix_available(const kvcl_boot_params_t *params)
{
    (void)params;
    return (kvcl_settings_getenv(NULL, "PMIX_NAMESPACE") != NULL) &&
           (kvcl_settings_getenv(NULL, "PMIX_RANK") != NULL);
}

/* A number that the launcher knows about the job or this process. */
static pmix_status_t get_number(const pmix_proc_t *proc, const char *key, unsigned long *number_p)
{
    pmix_value_t *value = NULL;
    pmix_info_t   info;
    bool          yes = true;
    pmix_status_t rc;

    PMIX_INFO_LOAD(&info, PMIX_OPTIONAL, &yes, PMIX_BOOL); /* only what is here: never ask over the network */
    rc = PMIx_Get(proc, key, &info, 1, &value);
    PMIX_INFO_DESTRUCT(&info);
    if (rc != PMIX_SUCCESS) {
        return rc;
    }
    switch (value->type) {
    case PMIX_UINT16:
        *number_p = value->data.uint16;
        break;
    case PMIX_UINT32:
        *number_p = value->data.uint32;
        break;
    default:
        rc = PMIX_ERR_TYPE_MISMATCH;
        break;
    }
    PMIX_VALUE_RELEASE(value);
    return rc;
}

static pmix_status_t read_numbers(const pmix_proc_t *self, job_numbers_t *numbers)
{
    pmix_status_t rc = PMIX_SUCCESS;
    pmix_proc_t   job;

    pthread_mutex_lock(&job_numbers_lock);
    if (!job_numbers.known) {
        PMIX_LOAD_PROCID(&job, self->nspace, PMIX_RANK_WILDCARD);
        rc = get_number(&job, PMIX_JOB_SIZE, &job_numbers.size);
        if ((rc == PMIX_SUCCESS) && (get_number(self, PMIX_LOCAL_RANK, &job_numbers.local_rank) != PMIX_SUCCESS)) {
            job_numbers.local_rank = KVCL_BOOT_RANKS_MAX;
        }
        job_numbers.known = (rc == PMIX_SUCCESS);
    }
    *numbers = job_numbers;
    pthread_mutex_unlock(&job_numbers_lock);
    return rc;
}

static kvcl_status_t read_job(boot_pmix_t *pm, const kvcl_boot_params_t *params)
{
    job_numbers_t numbers;
    pmix_status_t rc = read_numbers(&pm->self, &numbers);

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
    pmix_status_t rc = PMIx_Finalize(NULL, 0); /* counted by PMIx: the last one disconnects */

    if (rc != PMIX_SUCCESS) {
        kvcl_log_warn("PMIx_Finalize: %s", PMIx_Error_string(rc));
    }
    kvcl_blobs_fini(&pm->blobs);
    free(pm->secret_file);
    free(pm);
}

static kvcl_status_t pmix_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    boot_pmix_t  *pm = (boot_pmix_t *)calloc(1, sizeof(*pm));
    kvcl_status_t status;
    pmix_status_t rc;

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
    rc = PMIx_Init(&pm->self, NULL, 0);
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

static void blob_key(const boot_pmix_t *pm, char *key, size_t len)
{
    snprintf(key, len, "kvcl.%u.blob", pm->n);
}

static kvcl_status_t put_value(boot_pmix_t *pm, const void *bytes, size_t len)
{
    char          key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t  value;
    pmix_status_t rc;

    blob_key(pm, key, sizeof(key));
    memset(&value, 0, sizeof(value));
    value.type          = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)(uintptr_t)bytes; /* PMIx copies it */
    value.data.bo.size  = len;
    rc                  = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (rc == PMIX_SUCCESS) {
        rc = PMIx_Commit();
    }
    return (rc == PMIX_SUCCESS) ? KVCL_OK : kvcl_pmix_fail(rc, "PMIx_Put");
}

/* Waits until all ranks have put their values, and collects these. */
static kvcl_status_t fence_until(boot_pmix_t *pm, uint64_t deadline_ns)
{
    kvcl_pmix_wait_t *wait   = kvcl_pmix_wait_new();
    bool             collect = true;
    pmix_proc_t      job;
    pmix_info_t      info;
    kvcl_status_t    status;
    pmix_status_t    rc;

    if (wait == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    PMIX_LOAD_PROCID(&job, pm->self.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    rc = PMIx_Fence_nb(&job, 1, &info, 1, kvcl_pmix_on_fence, wait);
    if (rc == PMIX_SUCCESS) {
        status = kvcl_pmix_wait_until(wait, deadline_ns, "PMIx_Fence");
        kvcl_pmix_wait_put(wait, 1);
    } else {
        status = (rc == PMIX_OPERATION_SUCCEEDED) ? KVCL_OK : kvcl_pmix_fail(rc, "PMIx_Fence");
        kvcl_pmix_wait_put(wait, 2);
    }
    PMIX_INFO_DESTRUCT(&info); /* it was packed before PMIx_Fence_nb returned */
    return status;
}

static kvcl_status_t get_value(boot_pmix_t *pm, int rank, void **bytes_p, size_t *len_p)
{
    char             key[PMIX_MAX_KEYLEN + 1];
    kvcl_pmix_wait_t *wait = kvcl_pmix_wait_new();
    pmix_proc_t      proc;
    kvcl_status_t    status;
    pmix_status_t    rc;

    if (wait == NULL) {
        return KVCL_ERR_NO_MEMORY;
    }
    blob_key(pm, key, sizeof(key));
    PMIX_LOAD_PROCID(&proc, pm->self.nspace, (pmix_rank_t)rank);
    rc = PMIx_Get_nb(&proc, key, NULL, 0, kvcl_pmix_on_value, wait);
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

/* Fetch a rank's value, take the invite off rank 0's, keep the blob. */
static kvcl_status_t fetch_blob(boot_pmix_t *pm, int rank)
{
    kvcl_invite_t invite = {.secret = pm->super.secret};
    size_t        skip   = 0;
    size_t        len    = 0;
    void         *bytes  = NULL;
    kvcl_status_t status = get_value(pm, rank, &bytes, &len);

    if (status != KVCL_OK) {
        return status;
    }
    if (rank == 0) {
        skip = KVCL_INVITE_LEN;
        if (pm->super.rank != 0) {
            status = kvcl_invite_accept(bytes, (len < skip) ? len : skip, pm->secret_file, &invite);
        }
    }
    if ((status == KVCL_OK) && ((len < skip) || (len - skip > KVCL_BOOT_BLOB_MAX))) {
        status = kvcl_fail(KVCL_ERR_PROTOCOL, "rank %d gave a value of %zu bytes", rank, len);
    }
    if (status == KVCL_OK) {
        status = kvcl_blobs_put(&pm->blobs, rank, (char *)bytes + skip, len - skip);
    }
    if (skip > 0) {
        kvcl_wipe(bytes, (len < skip) ? len : skip);
    }
    free(bytes);
    return status;
}

static kvcl_status_t put_with_invite(boot_pmix_t *pm, const void *blob, size_t len)
{
    kvcl_invite_t invite = {.secret = pm->super.secret};
    kvcl_status_t status;
    uint8_t      *bytes = (uint8_t *)malloc(KVCL_INVITE_LEN + len);

    if (bytes == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a boot blob");
    }
    status = kvcl_invite_make(pm->secret_file, &invite, bytes);
    if (status == KVCL_OK) {
        if (len > 0) {
            memcpy(bytes + KVCL_INVITE_LEN, blob, len);
        }
        status = put_value(pm, bytes, KVCL_INVITE_LEN + len);
    }
    kvcl_wipe(bytes, KVCL_INVITE_LEN);
    free(bytes);
    return status;
}

static kvcl_status_t pmix_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_pmix_t  *pm          = (boot_pmix_t *)(void *)boot;
    uint64_t      deadline_ns = kvcl_deadline_after(boot->timeout_ns);
    kvcl_status_t status;

    status = (boot->rank == 0) ? put_with_invite(pm, blob, len) : put_value(pm, blob, len);
    if (status == KVCL_OK) {
        status = fence_until(pm, deadline_ns);
    }
    if ((status == KVCL_OK) && (boot->rank != 0)) {
        status = fetch_blob(pm, 0); /* for the secret */
    }
    return status;
}

static kvcl_status_t pmix_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_pmix_t  *pm     = (boot_pmix_t *)(void *)boot;
    kvcl_status_t status = kvcl_blobs_get(&pm->blobs, rank, blob_p, len_p);

    if (status == KVCL_OK) {
        return KVCL_OK;
    }
    status = fetch_blob(pm, rank);
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
