/*
 * Waits with a deadline for PMIx (boot_pmix_wait.h). PMIx's own timeouts are optional for hosts, so each wait is a
 * non-blocking call plus a condition with a deadline.
 *
 * Owns: a wait, which caller and callback share (two references), because a callback may come after the caller stopped
 * waiting. Locks: the mutex of each wait, a leaf.
 */
#include "config.h"
#ifndef KVCL_HAVE_PMIX
#define KVCL_HAVE_PMIX 0
#endif
#if KVCL_HAVE_PMIX
#include "boot/boot_pmix_wait.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

kvcl_status_t kvcl_pmix_fail(pmix_status_t rc, const char *what)
{
    kvcl_status_t status;

    switch (rc) {
    case PMIX_ERR_UNREACH:
        status = KVCL_ERR_UNREACHABLE;
        break;
    case PMIX_ERR_NOT_FOUND:
        status = KVCL_ERR_NOT_FOUND;
        break;
    case PMIX_ERR_TIMEOUT:
        status = KVCL_ERR_TIMED_OUT;
        break;
    case PMIX_ERR_NOMEM:
        status = KVCL_ERR_NO_MEMORY;
        break;
    default:
        status = KVCL_ERR_IO;
        break;
    }
    return kvcl_fail(status, "%s: %s (%d)", what, kvcl_pmix.PMIx_Error_string(rc), (int)rc);
}

kvcl_pmix_wait_t *kvcl_pmix_wait_new(void)
{
    pthread_condattr_t attr;
    kvcl_pmix_wait_t   *wait = (kvcl_pmix_wait_t *)calloc(1, sizeof(*wait));

    if (wait == NULL) {
        (void)kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a PMIx request");
        return NULL;
    }
    wait->refs = 2;
    pthread_mutex_init(&wait->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&wait->cond, &attr);
    pthread_condattr_destroy(&attr);
    return wait;
}

void kvcl_pmix_wait_put(kvcl_pmix_wait_t *wait, int refs)
{
    int left;

    pthread_mutex_lock(&wait->lock);
    wait->refs -= refs;
    left = wait->refs;
    pthread_mutex_unlock(&wait->lock);
    if (left == 0) {
        pthread_cond_destroy(&wait->cond);
        pthread_mutex_destroy(&wait->lock);
        free(wait->bytes);
        free(wait);
    }
}

static void wait_finish(kvcl_pmix_wait_t *wait, pmix_status_t rc)
{
    pthread_mutex_lock(&wait->lock);
    wait->status = rc;
    wait->done   = 1;
    pthread_cond_signal(&wait->cond);
    pthread_mutex_unlock(&wait->lock);
    kvcl_pmix_wait_put(wait, 1);
}

void kvcl_pmix_on_fence(pmix_status_t rc, void *arg)
{
    wait_finish((kvcl_pmix_wait_t *)arg, rc);
}

void kvcl_pmix_on_value(pmix_status_t rc, pmix_value_t *value, void *arg)
{
    kvcl_pmix_wait_t *wait = (kvcl_pmix_wait_t *)arg;

    if ((rc == PMIX_SUCCESS) && ((value == NULL) || (value->type != PMIX_BYTE_OBJECT))) {
        rc = PMIX_ERR_TYPE_MISMATCH;
    }
    if (rc == PMIX_SUCCESS) {
        wait->len   = value->data.bo.size;
        wait->bytes = malloc((wait->len == 0) ? 1 : wait->len);
        if (wait->bytes == NULL) {
            rc = PMIX_ERR_NOMEM;
        } else if (wait->len > 0) {
            memcpy(wait->bytes, value->data.bo.bytes, wait->len);
        }
    }
    wait_finish(wait, rc);
}

kvcl_status_t kvcl_pmix_wait_until(kvcl_pmix_wait_t *wait, uint64_t deadline_ns, const char *what)
{
    struct timespec ts;
    kvcl_status_t   status;
    int             err = 0;

    ts.tv_sec  = (time_t)(deadline_ns / KVCL_NS_PER_SEC);
    ts.tv_nsec = (long)(deadline_ns % KVCL_NS_PER_SEC);
    pthread_mutex_lock(&wait->lock);
    while (!wait->done && (err == 0)) {
        err = pthread_cond_timedwait(&wait->cond, &wait->lock, &ts);
    }
    if (!wait->done) {
        status = kvcl_fail(KVCL_ERR_TIMED_OUT, "%s: not all ranks of the job started in time (KVCL_BOOT_TIMEOUT)",
                           what);
    } else {
        status = (wait->status == PMIX_SUCCESS) ? KVCL_OK : kvcl_pmix_fail(wait->status, what);
    }
    pthread_mutex_unlock(&wait->lock);
    return status;
}

#else
typedef int kvcl_boot_pmix_wait_is_empty_t; /* ISO C wants a declaration */
#endif
