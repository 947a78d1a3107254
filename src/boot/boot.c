/*
 * The list of kinds and the choice among them; argument checks that all kinds share. No state, no lock.
 */
#include "config.h"
#include "boot/boot.h"
#include "boot/secret_mem.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <stdio.h>
#include <string.h>

#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif

/* In the order in which "auto" tries them. */
static const kvcl_boot_ops_t *const kinds[] = {
    &kvcl_boot_oob_ops,
    &kvcl_boot_join_ops,
    &kvcl_boot_tcp_ops,
#if KVCL_HAVE_PMIX
    &kvcl_boot_pmix_ops,
#endif
    &kvcl_boot_self_ops
};

enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

const char *kvcl_boot_kinds(void)
{
#if KVCL_HAVE_PMIX
    return "auto, pmix, tcp, join, self, oob";
#else
    return "auto, tcp, join, self, oob (pmix is not built in)";
#endif
}

uint64_t kvcl_boot_timeout(const kvcl_boot_params_t *params)
{
    return (params->timeout_ns == 0) ? KVCL_BOOT_TIMEOUT_DEFAULT_NS : params->timeout_ns;
}

static kvcl_status_t pick_named(const char *which, const kvcl_boot_ops_t **ops_p)
{
    size_t i;

    for (i = 0; i < KIND_COUNT; ++i) {
        if (strcmp(kinds[i]->name, which) == 0) {
            *ops_p = kinds[i];
            return KVCL_OK;
        }
    }
    if (strcmp(which, "pmix") == 0) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "boot \"pmix\" (KVCL_BOOT or params.boot): this build has no PMIx; "
                         "it has %s", kvcl_boot_kinds());
    }
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "boot \"%s\" (KVCL_BOOT or params.boot) is no way to start; there are %s",
                     which, kvcl_boot_kinds());
}

static kvcl_status_t pick_auto(const kvcl_boot_params_t *params, const kvcl_boot_ops_t **ops_p)
{
    size_t i;

#if !KVCL_HAVE_PMIX
    /* Many ranks 0 of 1 would start instead of one job. */
    if ((params->oob == NULL) && (params->rendezvous == NULL) && (params->join == NULL) &&
        (kvcl_settings_getenv(NULL, "PMIX_NAMESPACE") != NULL)) {
        return kvcl_fail(KVCL_ERR_UNSUPPORTED, "started by a PMIx launcher, but this build has no PMIx: set "
                         "KVCL_RENDEZVOUS, or KVCL_BOOT=self for processes that do not belong together");
    }
#endif
    for (i = 0; i < KIND_COUNT; ++i) {
        if (kinds[i]->available(params)) {
            *ops_p = kinds[i];
            return KVCL_OK;
        }
    }
    return kvcl_fail(KVCL_ERR_INTERNAL, "no way to start is available"); /* self always is */
}

static kvcl_status_t check_numbers(const kvcl_boot_params_t *params)
{
    if ((params->size < 0) || (params->size > KVCL_BOOT_RANKS_MAX)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_SIZE=%d (or params.nranks): a job has 1 to %d ranks",
                         params->size, (int)KVCL_BOOT_RANKS_MAX);
    }
    if (params->rank < -1) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_RANK=%d (or params.rank): ranks begin at 0; -1 asks for any",
                         params->rank);
    }
    if ((params->size > 0) && (params->rank >= params->size)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "KVCL_RANK=%d (or params.rank): with KVCL_SIZE=%d (or params.nranks) "
                         "the ranks are 0 to %d", params->rank, params->size, params->size - 1);
    }
    return KVCL_OK;
}

kvcl_status_t kvcl_boot_open(const kvcl_boot_params_t *params, kvcl_boot_t **boot_p)
{
    const kvcl_boot_ops_t *ops   = NULL;
    int                    named = (params->which != NULL) && (strcmp(params->which, "auto") != 0);
    uint8_t                *secret;
    kvcl_status_t          status;

    status = check_numbers(params);
    if (status != KVCL_OK) {
        return status;
    }
    status = named ? pick_named(params->which, &ops) : pick_auto(params, &ops);
    if (status != KVCL_OK) {
        return status;
    }
    secret = (uint8_t *)kvcl_secret_mem_alloc(KVCL_SHA256_LEN);
    if (secret == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the job secret");
    }
    status = ops->open(params, secret, boot_p);
    if (status != KVCL_OK) {
        kvcl_secret_mem_free(secret, KVCL_SHA256_LEN);
    } else {
        (*boot_p)->timeout_ns = kvcl_boot_timeout(params);
        kvcl_log_debug("boot %s: rank %d of %d, job %s", ops->name, (*boot_p)->rank, (*boot_p)->size,
                       (*boot_p)->job);
    }
    return status;
}

kvcl_status_t kvcl_boot_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    kvcl_status_t status;

    if (len > KVCL_BOOT_BLOB_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "a boot blob of %zu bytes, at most %d go", len,
                         (int)KVCL_BOOT_BLOB_MAX);
    }
    if (boot->exchanged) {
        return kvcl_fail(KVCL_ERR_EXISTS, "this boot exchanged its blobs already");
    }
    status          = boot->ops->exchange(boot, blob, len);
    boot->exchanged = (status == KVCL_OK);
    return status;
}

kvcl_status_t kvcl_boot_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    if ((rank < 0) || (rank >= boot->size)) {
        return kvcl_fail(KVCL_ERR_UNKNOWN_RANK, "rank %d of a job of %d", rank, boot->size);
    }
    if (!boot->exchanged) {
        return kvcl_fail(KVCL_ERR_NOT_FOUND, "rank %d's blob before the exchange", rank);
    }
    return boot->ops->get(boot, rank, blob_p, len_p);
}

void kvcl_boot_close(kvcl_boot_t *boot)
{
    uint8_t *secret;

    if (boot != NULL) {
        secret = boot->secret;
        boot->ops->close(boot);
        kvcl_secret_mem_free(secret, KVCL_SHA256_LEN);
    }
}
