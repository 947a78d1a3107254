/*
 * The connections of the HTTP server (serve_conns.h), and the thread that ends those that take too long.
 *
 * Slow clients cannot keep others out: a request and a reply have a total deadline, however steadily bytes trickle; an
 * address has a bounded number of connections; and room for a new connection is always made, by shutting down the
 * oldest connection of the address that has the most, those whose reply is being made last. The time that a reply takes
 * to make has no deadline here: the calls that make it have their own.
 *
 * Invariant: a connection in the list has an open descriptor. Lock: conns->lock guards the list. The thread sleeps
 * until the next deadline, and without a connection until one is added.
 */
#include "config.h"
#include "tools/serve/serve_conns.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct serve_conn {
    serve_conn_t       *next; /* younger */
    int                fd;
    uint8_t            address[8];
    serve_conn_state_t state;
    time_t             until;   /* monotonic; of RECEIVING and SENDING */
    bool               closing; /* it was shut down */
};

struct serve_conns {
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* a connection was added, or a deadline, or the end */
    pthread_t       thread;
    serve_conn_t    *oldest;
    unsigned        n; /* not closing */
    bool            ending;
};

static time_t now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Lock held. */
static void shut_down(serve_conns_t *conns, serve_conn_t *conn)
{
    conn->closing = true;
    --conns->n;
    shutdown(conn->fd, SHUT_RDWR);
}

/* Lock held: end what is late. Returns the next deadline, 0: none. */
static time_t sweep(serve_conns_t *conns)
{
    serve_conn_t *conn;
    time_t       now = now_s(), next = 0;

    for (conn = conns->oldest; conn != NULL; conn = conn->next) {
        if (conn->closing || (conn->state == SERVE_BUILDING)) {
            continue;
        }
        if (conn->until <= now) {
            shut_down(conns, conn);
        } else if ((next == 0) || (conn->until < next)) {
            next = conn->until;
        }
    }
    return next;
}

static void *watch(void *arg)
{
    serve_conns_t *conns = arg;

    pthread_mutex_lock(&conns->lock);
    while (!conns->ending) {
        struct timespec until = {.tv_sec = sweep(conns)};

        if (until.tv_sec == 0) {
            pthread_cond_wait(&conns->changed, &conns->lock);
        } else {
            pthread_cond_timedwait(&conns->changed, &conns->lock, &until);
        }
    }
    pthread_mutex_unlock(&conns->lock);
    return NULL;
}

serve_conns_t *serve_conns_new(void)
{
    serve_conns_t      *conns = calloc(1, sizeof(*conns));
    pthread_condattr_t attr;

    if (conns == NULL) {
        return NULL;
    }
    pthread_mutex_init(&conns->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&conns->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&conns->thread, NULL, watch, conns) != 0) {
        pthread_cond_destroy(&conns->changed);
        pthread_mutex_destroy(&conns->lock);
        free(conns);
        return NULL;
    }
    return conns;
}

void serve_conns_free(serve_conns_t *conns)
{
    if (conns == NULL) {
        return;
    }
    pthread_mutex_lock(&conns->lock);
    conns->ending = true;
    pthread_cond_signal(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
    pthread_join(conns->thread, NULL);
    pthread_cond_destroy(&conns->changed);
    pthread_mutex_destroy(&conns->lock);
    free(conns);
}

/* The 4 bytes of an IPv4 address (mapped to IPv6 or not), the network of an IPv6 one. */
static void address_of(const struct sockaddr *from, uint8_t *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    memset(address, 0, 8);
    if ((from != NULL) && (from->sa_family == AF_INET)) {
        memcpy(address, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    } else if ((from != NULL) && (from->sa_family == AF_INET6)) {
        const uint8_t *in6 = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr.s6_addr;

        memcpy(address, (memcmp(in6, mapped, sizeof(mapped)) == 0) ? in6 + 12 : in6,
               (memcmp(in6, mapped, sizeof(mapped)) == 0) ? 4 : 8);
    }
}

/* Lock held: connections of an address; *first_p: the one to shut down first, or NULL. */
static unsigned count(const serve_conns_t *conns, const uint8_t *address, serve_conn_t **first_p)
{
    serve_conn_t *conn;
    unsigned     n = 0;

    *first_p = NULL;
    for (conn = conns->oldest; conn != NULL; conn = conn->next) {
        if (!conn->closing && (memcmp(conn->address, address, sizeof(conn->address)) == 0)) {
            ++n;
            if ((*first_p == NULL) || (((*first_p)->state == SERVE_BUILDING) && (conn->state != SERVE_BUILDING))) {
                *first_p = conn;
            }
        }
    }
    return n;
}

/* Lock held: room for one more of this address. */
static void make_room(serve_conns_t *conns, const uint8_t *address)
{
    serve_conn_t *conn, *first, *victim;
    unsigned     n, most = 0;

    if (count(conns, address, &victim) < SERVE_CONNS_ADDRESS) {
        victim = NULL;
        for (conn = (conns->n < SERVE_CONNS_MAX) ? NULL : conns->oldest; conn != NULL; conn = conn->next) {
            n = count(conns, conn->address, &first);
            if (n > most) {
                most   = n;
                victim = first;
            }
        }
    }
    if (victim != NULL) {
        shut_down(conns, victim);
    }
}

serve_conn_t *serve_conns_add(serve_conns_t *conns, int fd, const struct sockaddr *address)
{
    serve_conn_t *conn = calloc(1, sizeof(*conn)), **at = &conns->oldest;

    if (conn == NULL) {
        return NULL;
    }
    conn->fd    = fd;
    conn->until = now_s() + SERVE_REQUEST_S;
    address_of(address, conn->address);
    pthread_mutex_lock(&conns->lock);
    make_room(conns, conn->address);
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = conn;
    ++conns->n;
    pthread_cond_signal(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
    return conn;
}

void serve_conns_set(serve_conns_t *conns, serve_conn_t *conn, serve_conn_state_t state)
{
    if (conn == NULL) {
        return;
    }
    pthread_mutex_lock(&conns->lock);
    conn->state = state;
    conn->until = now_s() + ((state == SERVE_SENDING) ? SERVE_REPLY_S : SERVE_REQUEST_S);
    pthread_cond_signal(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
}

void serve_conns_remove(serve_conns_t *conns, serve_conn_t *conn)
{
    serve_conn_t **at = &conns->oldest;

    if (conn == NULL) {
        return;
    }
    pthread_mutex_lock(&conns->lock);
    while (*at != conn) {
        at = &(*at)->next;
    }
    *at       = conn->next;
    conns->n -= conn->closing ? 0 : 1;
    pthread_mutex_unlock(&conns->lock);
    free(conn);
}
