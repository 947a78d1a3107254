/*
 * How long a thread that waits polls before it sleeps. Polling finds an event some microseconds sooner than a sleep
 * does, but not where the thread that is to make the event needs this core: there each poll delays what it waits for.
 * So after two waits in a row in which polling was in vain, the next waits sleep at once, 4 of them, then 8, up to 64;
 * between them one wait polls again, and an event found by polling brings polling back. Pure, no lock.
 *
 * A thread that may not sleep, because what it waits for makes no event (room in a queue of shared memory), takes naps
 * instead: polling on would keep the peer that is to make the room from a core that both share, for a time slice each.
 *
 * The same idea as adaptive spinning of mutexes (glibc, PTHREAD_MUTEX_ADAPTIVE_NP).
 */
#ifndef KVCL_BASE_SPIN_H
#define KVCL_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum { KVCL_SPIN_NAP_US = 50 }; /* about as long as a sleeping thread needs to wake */
enum { KVCL_SPIN_TRIES = 2, KVCL_SPIN_LEAST_SKIPPED = 4, KVCL_SPIN_MOST_SKIPPED = 64 };

typedef struct kvcl_spin {
    uint64_t most_ns; /* polling time of a wait; 0: none */
    unsigned in_vain; /* waits in a row whose polling found nothing */
    unsigned skip;    /* waits to come that sleep at once */
    unsigned skipped; /* length of the last such row */
    unsigned refused; /* sleeps in a row that were not allowed */
    bool     polled;  /* this wait */
} kvcl_spin_t;

/* Poll on, waited_ns after the last event? If not, sleep, and call kvcl_spin_slept. */
static inline bool kvcl_spin_more(kvcl_spin_t *spin, uint64_t waited_ns)
{
    if ((spin->skip != 0) || (waited_ns >= spin->most_ns)) {
        return false;
    }
    spin->polled = true;
    return true;
}

/* An event ends the wait. */
static inline void kvcl_spin_found(kvcl_spin_t *spin)
{
    spin->refused = 0;
    if (spin->polled) {
        spin->polled  = false;
        spin->in_vain = 0;
        spin->skipped /= 2;
    }
}

/* The wait ends in a sleep. */
static inline void kvcl_spin_slept(kvcl_spin_t *spin)
{
    spin->refused = 0;
    if (spin->skip != 0) {
        --spin->skip;
    } else if (spin->polled && (++spin->in_vain >= KVCL_SPIN_TRIES)) {
        spin->skip = 2 * spin->skipped;
        spin->skip = (spin->skip < KVCL_SPIN_LEAST_SKIPPED) ? KVCL_SPIN_LEAST_SKIPPED : spin->skip;
        spin->skip = (spin->skip > KVCL_SPIN_MOST_SKIPPED) ? KVCL_SPIN_MOST_SKIPPED : spin->skip;
        spin->skipped = spin->skip;
    }
    spin->polled = false;
}

/* A sleep was due and not allowed: take a nap, or poll once more? An event may have come just before. */
static inline bool kvcl_spin_naps(kvcl_spin_t *spin)
{
    return ++spin->refused > 1;
}

#endif
