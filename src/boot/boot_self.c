/*
 * Alone: rank 0 of 1. The secret comes from the file if one is named (jobs started apart that connect later
 * share it), or it is the user's own if that was asked for; else it is random. Owns a copy of the one blob.
 */
#include "config.h"
#include "boot/boot.h"
#include "boot/secret.h"
#include "base/error.h"
#include "base/rand.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct boot_self {
    kvcl_boot_t super;
    void       *blob;
    size_t      len;
} boot_self_t;

static int self_available(const kvcl_boot_params_t *params)
{
    (void)params;
    return 1;
}

static kvcl_status_t self_open(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p)
{
    boot_self_t  *self;
    kvcl_status_t status;
    uint64_t      id;

    if ((params->size > 1) || (params->rank > 0)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s=%d (or params.%s), but the ranks have no way to meet: set "
                         "KVCL_RENDEZVOUS=tcp://host:port in all of them, start them under mpirun or srun, or give "
                         "params.oob; for one rank alone unset KVCL_SIZE and KVCL_RANK",
                         (params->size > 1) ? "KVCL_SIZE" : "KVCL_RANK",
                         (params->size > 1) ? params->size : params->rank, (params->size > 1) ? "nranks" : "rank");
    }
    self = (boot_self_t *)calloc(1, sizeof(*self));
    if (self == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for the boot");
    }
    self->super.ops    = &kvcl_boot_self_ops;
    self->super.secret = secret;
    self->super.size   = 1;
    status             = kvcl_random_bytes(&id, sizeof(id));
    if (status == KVCL_OK) {
        snprintf(self->super.job, sizeof(self->super.job), "self-%016" PRIx64, id);
        status = ((params->secret_file == NULL) && params->user_secret)
                     ? kvcl_secret_of_user(self->super.secret)
                     : kvcl_secret_or_random(params->secret_file, self->super.secret);
    }
    if (status != KVCL_OK) {
        free(self);
        return status;
    }
    *boot_p = &self->super;
    return KVCL_OK;
}

static kvcl_status_t self_exchange(kvcl_boot_t *boot, const void *blob, size_t len)
{
    boot_self_t *self = (boot_self_t *)(void *)boot;

    self->blob = malloc((len == 0) ? 1 : len);
    if (self->blob == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a boot blob");
    }
    if (len > 0) {
        memcpy(self->blob, blob, len);
    }
    self->len = len;
    return KVCL_OK;
}

static kvcl_status_t self_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
{
    boot_self_t *self = (boot_self_t *)(void *)boot;

    (void)rank;
    *blob_p = self->blob;
    *len_p  = self->len;
    return KVCL_OK;
}

static void self_close(kvcl_boot_t *boot)
{
    boot_self_t *self = (boot_self_t *)(void *)boot;

    free(self->blob);
    free(self);
}

const kvcl_boot_ops_t kvcl_boot_self_ops = {
    .size      = sizeof(kvcl_boot_ops_t),
    .name      = "self",
    .available = self_available,
    .open      = self_open,
    .exchange  = self_exchange,
    .get       = self_get,
    .close     = self_close
};
