/*
 * Woven copies: several pieces of a list are copied in turn, 256 bytes of each, past the processor's caches.
 *
 * A copy of one piece after the other waits for one stream of addresses; several streams keep more of the memory system
 * busy. Stores that bypass the caches save the read of the destination's lines. So a woven copy is for lists that are
 * larger than the caches (xfer/copy.h), whose bytes are not read immediately after the copy.
 *
 * Pure: no lock, no allocation, no state; any thread. Needs nothing but the C library: the tools have it too.
 */
#ifndef KVCL_WEAVE_WEAVE_H
#define KVCL_WEAVE_WEAVE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    KVCL_WEAVE_STEP  = 256, /* bytes of one piece before the next piece's turn */
    KVCL_WEAVE_LINE  = 64,
    KVCL_WEAVE_MOST  = 4,   /* pieces side by side */
    KVCL_WEAVE_SHORT = 512  /* shorter pieces are copied by memcpy */
};

typedef struct kvcl_weave_piece {
    void       *dst;
    const void *src;
    size_t     len;
} kvcl_weave_piece_t;

/* Copies bytes of as many pieces as the kernel's function is for; each dst is a multiple of 64, src is any address. */
typedef void (*kvcl_weave_fn_t)(char *const *dst, const char *const *src, size_t bytes);

/* One instruction set. A new one is a row of the table in kernels.c. */
typedef struct kvcl_weave_kernel {
    const char      *name;
    bool            (*supported)(void); /* by this processor */
    kvcl_weave_fn_t one;                /* bytes: a multiple of KVCL_WEAVE_LINE */
    kvcl_weave_fn_t two;                /* bytes: a multiple of KVCL_WEAVE_STEP, as for four */
    kvcl_weave_fn_t four;
    void            (*end)(void);       /* orders the stores before those that follow */
    void            (*flush)(const char *at, size_t bytes); /* from all caches; NULL: the kernel writes through them */
} kvcl_weave_kernel_t;

extern const kvcl_weave_kernel_t kvcl_weave_kernels[]; /* best first; the last one runs on any processor */
extern const size_t              kvcl_weave_n_kernels;

/** The first kernel of the table that this processor supports. */
const kvcl_weave_kernel_t *kvcl_weave_best(void);

/**
 * Copy @a n pieces. A source must not overlap a destination, and destinations must not overlap. Call kernel->end()
 * after the last copy, before the bytes are announced to another thread or process.
 * @param width  1, 2 or 4 pieces side by side; long pieces are cut where fewer are left.
 */
void kvcl_weave_copy(const kvcl_weave_kernel_t *kernel, unsigned width, const kvcl_weave_piece_t *pieces, size_t n);

#endif
