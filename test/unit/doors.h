/*
 * Contexts alone with a job secret, their doors, and services that are no doors.
 */
#ifndef KVCL_TEST_DOORS_H
#define KVCL_TEST_DOORS_H

#include "test_base.h"
#include "base/clock.h"
#include "base/hostport.h"
#include <kvcl/kvcl.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS(_s) ((uint64_t)(_s) * KVCL_NS_PER_SEC)

static char files[2][64];

static inline void make_secrets(void)
{
    int i, fd;

    for (i = 0; i < 2; ++i) {
        snprintf(files[i], sizeof(files[i]), "/tmp/kvcl-door-%d-%d", (int)getpid(), i);
        fd = open(files[i], O_CREAT | O_WRONLY | O_TRUNC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq((int)write(fd, (i == 0) ? "one secret of sixteen" : "another secret, this", 20), 20);
        close(fd);
    }
}

static inline void remove_secrets(void)
{
    unlink(files[0]);
    unlink(files[1]);
}

static inline kvcl_context_h alone(int secret)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_context_h     ctx;

    params.boot        = "self";
    params.secret_file = files[secret];
    ck_assert_int_eq(kvcl_init(&params, &ctx), KVCL_OK);
    return ctx;
}

static inline kvcl_comm_h listen_at(kvcl_context_h ctx, const char *at, char where[KVCL_HOSTPORT_MAX])
{
    kvcl_comm_h door;
    size_t      len;

    ck_assert_int_eq(kvcl_context_listen(ctx, at, where, KVCL_HOSTPORT_MAX, &len, &door), KVCL_OK);
    return door;
}

/* ---- other services ---- */

typedef struct service {
    int          fd, kind;
    _Atomic bool stop;
} service_t;

/* 0: never answers, 1: closes at once, 2: sends text */
static inline void *serve(void *arg)
{
    static const char text[]   = "SSH-2.0-something, and quite a few more bytes than a first message has: nobody "
                                 "waits for the rest of it\r\n";
    service_t         *service = arg;
    int               open[64], n = 0, fd;

    while (!atomic_load(&service->stop)) {
        struct pollfd pfd = {.fd = service->fd, .events = POLLIN};
        if ((poll(&pfd, 1, 20) <= 0) || ((fd = accept(service->fd, NULL, NULL)) < 0)) {
            continue;
        }
        if (service->kind == 2) {
            (void)send(fd, text, sizeof(text), MSG_NOSIGNAL);
        }
        if ((service->kind == 1) || (n == 64)) {
            close(fd);
        } else {
            open[n++] = fd;
        }
    }
    while (n > 0) {
        close(open[--n]);
    }
    return NULL;
}

#endif
