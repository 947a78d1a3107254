/*
 * Accepting clients (clients.h). One thread accepts, and frees the clients that have ended; the list is its own until
 * it has been joined.
 */
#include "config.h"
#include "tools/serve/clients.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ACCEPT_NS UINT64_C(1000000000) /* how long closing may wait for the accepting thread */

enum { CLIENTS_MAX = 256, ADDRESS_MAX = 65536, PATH_BYTES = 4096 };

struct serve_clients {
    const job_t     *job;
    kvcl_store_h    store;
    kvcl_comm_h     self;
    uint64_t        buffer_bytes;
    serve_texts_t   *texts;
    char            file[PATH_BYTES];
    pthread_t       thread;
    atomic_bool     closing;
    serve_client_t  *client[CLIENTS_MAX];
    uint64_t        number;
    uint64_t        left; /* for which there was no place */
};

/* The file's name: "%r" is the rank. */
static bool expand(const char *file, int rank, char *out, size_t cap)
{
    const char *at = strstr(file, "%r");
    int        len = (at == NULL) ? snprintf(out, cap, "%s", file)
                                  : snprintf(out, cap, "%.*s%d%s", (int)(at - file), file, rank, at + 2);

    return (len > 0) && ((size_t)len < cap);
}

/* A reader finds the whole address or none. */
static bool write_address(serve_clients_t *all)
{
    char   path[PATH_BYTES + 16], *address = malloc(ADDRESS_MAX);
    size_t len  = 0;
    bool   good = (address != NULL) && (kvcl_context_address(all->job->ctx, address, ADDRESS_MAX, &len) == KVCL_OK);
    FILE   *out;

    if (!good) {
        job_complain(all->job, "--clients: no address (%s)", kvcl_last_error());
        free(address);
        return false;
    }
    snprintf(path, sizeof(path), "%s.%ld", all->file, (long)getpid());
    out  = fopen(path, "we");
    good = (out != NULL) && (fprintf(out, "%s\n", address) > 0);
    good = ((out != NULL) && (fclose(out) == 0)) && good;
    good = good && (rename(path, all->file) == 0);
    if (!good) {
        job_complain(all->job, "--clients: cannot write %s: %s", all->file, strerror(errno));
        unlink(path);
    }
    free(address);
    return good;
}

/* A place for one more; clients that have ended are freed. NULL: all are in use. */
static serve_client_t **place(serve_clients_t *all)
{
    serve_client_t **found = NULL;
    size_t         i;

    for (i = 0; i < CLIENTS_MAX; ++i) {
        if ((all->client[i] != NULL) && serve_client_ended(all->client[i])) {
            serve_client_free(all->client[i]);
            all->client[i] = NULL;
        }
        found = ((all->client[i] == NULL) && (found == NULL)) ? &all->client[i] : found;
    }
    return found;
}

/* Said for the first and at each doubling, since clients can cause as many as they like. */
static void note_left(serve_clients_t *all)
{
    const uint64_t n = ++all->left;

    if ((n & (n - 1)) == 0) {
        fprintf(stderr, "kvcl_serve: %d clients are connected: another one was left (%llu so far)\n", CLIENTS_MAX,
                (unsigned long long)n);
    }
}

static void *accept_all(void *arg)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    serve_clients_t       *all  = arg;

    while (!all->closing) {
        kvcl_comm_h    inter  = NULL;
        kvcl_status_t  status = kvcl_comm_accept(all->self, ACCEPT_NS, &inter);
        serve_client_t **free_place = place(all);

        if ((status == KVCL_OK) && (free_place != NULL)) {
            *free_place = serve_client_new(all->job->ctx, all->store, inter, ++all->number, all->buffer_bytes,
                                           all->texts);
        } else if (status == KVCL_OK) {
            note_left(all);
            kvcl_comm_free(inter);
        } else if (status != KVCL_ERR_TIMED_OUT) {
            nanosleep(&pause, NULL); /* a client that failed while it connected: not again at once */
        }
    }
    return NULL;
}

bool serve_clients_open(const job_t *job, kvcl_store_h store, const char *file, uint64_t buffer_bytes,
                        serve_clients_t **clients_p)
{
    serve_clients_t *all = calloc(1, sizeof(*all));

    if ((all == NULL) || ((all->texts = serve_texts_new()) == NULL)) {
        job_complain(job, "--clients: out of memory");
        free(all);
        return false;
    }
    all->job          = job;
    all->store        = store;
    all->buffer_bytes = buffer_bytes;
    if (!expand(file, job->rank, all->file, sizeof(all->file))) {
        job_complain(job, "--clients: the name of the file is too long");
    } else if (job_ok(job, kvcl_comm_create(job->world, &job->rank, 1, &all->self), "--clients") &&
               write_address(all)) {
        if (pthread_create(&all->thread, NULL, accept_all, all) == 0) {
            *clients_p = all;
            return true;
        }
        job_complain(job, "--clients: no thread");
        unlink(all->file);
    }
    kvcl_comm_free(all->self);
    serve_texts_free(all->texts);
    free(all);
    return false;
}

void serve_clients_close(serve_clients_t *clients)
{
    size_t i;

    if (clients == NULL) {
        return;
    }
    unlink(clients->file);
    clients->closing = true;
    pthread_join(clients->thread, NULL);
    for (i = 0; i < CLIENTS_MAX; ++i) {
        if (clients->client[i] != NULL) {
            serve_client_stop(clients->client[i]);
        }
    }
    for (i = 0; i < CLIENTS_MAX; ++i) {
        if (clients->client[i] != NULL) {
            serve_client_free(clients->client[i]);
        }
    }
    kvcl_comm_free(clients->self);
    serve_texts_free(clients->texts);
    free(clients);
}
