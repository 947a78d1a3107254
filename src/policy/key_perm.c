/*
 * The permutation of key_perm.h over OpenSSL's AES: a batch of keys takes five calls of the cipher.
 *
 * Owns the contexts of a permutation: spare ones lie in its slots, and a thread takes one out for the time of a call.
 * More threads than slots make further contexts, which are freed after use. Invariant: at least one context exists,
 * in a slot or in the hands of a thread that returns it without waiting for anything. So a thread for which libcrypto
 * has no memory waits for a context, and no call fails. No lock: slots are exchanged atomically.
 */
#include "config.h"
#include "policy/key_perm.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/hkdf.h"
#include "boot/secret_mem.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 16, HALF = 15, TAG = 2, ROUNDS = 4, TAG_ROUNDS = 8, BATCH = 64, SPARES = 8, MASK = 0xff };

struct kvcl_key_perm {
    uint8_t         key[BLOCK];
    uint8_t         tables[TAG_ROUNDS][256];
    _Atomic(void *) spares[SPARES]; /* EVP_CIPHER_CTX */
};
_Static_assert(sizeof(struct kvcl_key_perm) <= 4096, "a page of secret memory");

typedef union block {
    uint8_t  bytes[BLOCK];
    uint64_t words[2];
} block_t;

/* Some keys, between their forms. Byte 15 of a half is 0. */
typedef struct batch {
    size_t   n, n_masks;
    block_t  half[2][BATCH];
    block_t  masks[BATCH]; /* one for each run of equal tags */
    uint8_t  mask_of[BATCH];
    block_t  in[BATCH];
} batch_t;

/* ---- contexts ---- */

/* Without a sentence. NULL in *ctx_p on failure. */
static kvcl_status_t make_ctx(const kvcl_key_perm_t *perm, EVP_CIPHER_CTX **ctx_p)
{
    EVP_CIPHER_CTX *ctx   = EVP_CIPHER_CTX_new();
    kvcl_status_t  status = (ctx != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY;

    (void)ERR_set_mark(); /* the thread may be the application's, which reads the library's queue of errors */
    if ((ctx != NULL) && (!EVP_EncryptInit_ex2(ctx, EVP_aes_128_ecb(), perm->key, NULL, NULL) ||
                          !EVP_CIPHER_CTX_set_padding(ctx, 0))) {
        EVP_CIPHER_CTX_free(ctx);
        ctx    = NULL;
        status = KVCL_ERR_UNSUPPORTED;
    }
    (void)ERR_pop_to_mark();
    *ctx_p = ctx;
    return status;
}

static EVP_CIPHER_CTX *take_spare(kvcl_key_perm_t *perm)
{
    EVP_CIPHER_CTX *ctx = NULL;
    unsigned       i;

    for (i = 0; (i < SPARES) && (ctx == NULL); ++i) {
        if (atomic_load_explicit(&perm->spares[i], memory_order_relaxed) != NULL) {
            ctx = atomic_exchange_explicit(&perm->spares[i], NULL, memory_order_acquire);
        }
    }
    return ctx;
}

static EVP_CIPHER_CTX *take_ctx(kvcl_key_perm_t *perm)
{
    const struct timespec pause = {0, 50000}; /* the time of some thousand keys */
    EVP_CIPHER_CTX        *ctx;

    while (((ctx = take_spare(perm)) == NULL) && (make_ctx(perm, &ctx) != KVCL_OK)) {
        (void)nanosleep(&pause, NULL);
    }
    return ctx;
}

static void return_ctx(kvcl_key_perm_t *perm, EVP_CIPHER_CTX *ctx)
{
    void     *none;
    unsigned i;

    for (i = 0; i < SPARES; ++i) {
        none = NULL;
        if (atomic_compare_exchange_strong_explicit(&perm->spares[i], &none, ctx, memory_order_release,
                                                    memory_order_relaxed)) {
            return;
        }
    }
    EVP_CIPHER_CTX_free(ctx);
}

static void encrypt(EVP_CIPHER_CTX *ctx, block_t *blocks, size_t n)
{
    int len = (int)(n * BLOCK), done = 0;

    kvcl_crypto_must(EVP_EncryptUpdate(ctx, blocks[0].bytes, &done, blocks[0].bytes, len) && (done == len),
                     "AES-128");
}

/* ---- the tag ---- */

static void tag_apply(const kvcl_key_perm_t *perm, const uint8_t *from, uint8_t *to)
{
    uint8_t left = from[0], right = from[1], next;
    int     i;

    for (i = 0; i < TAG_ROUNDS; ++i) {
        next  = left ^ perm->tables[i][right];
        left  = right;
        right = next;
    }
    to[0] = left;
    to[1] = right;
}

static void tag_undo(const kvcl_key_perm_t *perm, const uint8_t *from, uint8_t *to)
{
    uint8_t left = from[0], right = from[1], next;
    int     i;

    for (i = TAG_ROUNDS - 1; i >= 0; --i) {
        next  = right ^ perm->tables[i][left];
        right = left;
        left  = next;
    }
    to[0] = left;
    to[1] = right;
}

/* ---- a batch ---- */

/* tags: those of the caller's keys, before they are renamed. */
static void make_masks(EVP_CIPHER_CTX *ctx, batch_t *batch, const uint8_t (*tags)[TAG])
{
    size_t i;

    batch->n_masks = 0;
    for (i = 0; i < batch->n; ++i) {
        if ((i == 0) || (memcmp(tags[i], tags[i - 1], TAG) != 0)) {
            block_t *mask = &batch->masks[batch->n_masks++];
            memset(mask, 0, sizeof(*mask));
            memcpy(mask->bytes, tags[i], TAG);
            mask->bytes[HALF] = MASK;
        }
        batch->mask_of[i] = (uint8_t)(batch->n_masks - 1);
    }
    encrypt(ctx, batch->masks, batch->n_masks);
}

/* One round changes half `to` by a function of the other one. It is its own inverse. */
static void do_round(EVP_CIPHER_CTX *ctx, batch_t *batch, unsigned number)
{
    block_t *to = batch->half[number & 1], *by = batch->half[1 - (number & 1)];
    size_t  i;

    for (i = 0; i < batch->n; ++i) {
        const block_t *mask = &batch->masks[batch->mask_of[i]];
        batch->in[i].words[0]    = by[i].words[0] ^ mask->words[0];
        batch->in[i].words[1]    = by[i].words[1] ^ mask->words[1];
        batch->in[i].bytes[HALF] = (uint8_t)number;
    }
    encrypt(ctx, batch->in, batch->n);
    for (i = 0; i < batch->n; ++i) {
        to[i].words[0]   ^= batch->in[i].words[0];
        to[i].words[1]   ^= batch->in[i].words[1];
        to[i].bytes[HALF] = 0;
    }
}

/* n keys, at most BATCH. */
static void run(kvcl_key_perm_t *perm, EVP_CIPHER_CTX *ctx, const uint8_t *from, size_t n, uint8_t *to, int undo)
{
    batch_t batch;
    uint8_t tags[BATCH][TAG], images[BATCH][TAG]; /* the caller's, and the renamed ones */
    size_t  i;
    int     round;

    batch.n = n;
    for (i = 0; i < n; ++i) {
        const uint8_t *key = from + (i * KVCL_KEY_PERM_BYTES);
        if ((i != 0) && (memcmp(key, key - KVCL_KEY_PERM_BYTES, TAG) == 0)) {
            memcpy(tags[i], tags[i - 1], TAG);
            memcpy(images[i], images[i - 1], TAG);
        } else if (undo) {
            tag_undo(perm, key, tags[i]);
            memcpy(images[i], key, TAG);
        } else {
            memcpy(tags[i], key, TAG);
            tag_apply(perm, key, images[i]);
        }
        batch.half[0][i].words[1] = batch.half[1][i].words[1] = 0;
        memcpy(batch.half[0][i].bytes, key + TAG, HALF);
        memcpy(batch.half[1][i].bytes, key + TAG + HALF, HALF);
    }
    make_masks(ctx, &batch, (const uint8_t (*)[TAG])tags);
    for (round = 0; round < ROUNDS; ++round) {
        do_round(ctx, &batch, (unsigned)(undo ? ROUNDS - 1 - round : round));
    }
    for (i = 0; i < n; ++i) {
        uint8_t *key = to + (i * KVCL_KEY_PERM_BYTES);
        memcpy(key, undo ? tags[i] : images[i], TAG);
        memcpy(key + TAG, batch.half[0][i].bytes, HALF);
        memcpy(key + TAG + HALF, batch.half[1][i].bytes, HALF);
    }
}

static void run_all(kvcl_key_perm_t *perm, const uint8_t *from, size_t n, uint8_t *to, int undo)
{
    EVP_CIPHER_CTX *ctx = take_ctx(perm);
    size_t         at, some;

    for (at = 0; at < n; at += some) {
        some = (n - at < BATCH) ? n - at : BATCH;
        run(perm, ctx, from + (at * KVCL_KEY_PERM_BYTES), some, to + (at * KVCL_KEY_PERM_BYTES), undo);
    }
    return_ctx(perm, ctx);
}

void kvcl_key_perm_apply(kvcl_key_perm_t *perm, const void *from, size_t n, void *to)
{
    run_all(perm, from, n, to, 0);
}

void kvcl_key_perm_undo(kvcl_key_perm_t *perm, const void *from, size_t n, void *to)
{
    run_all(perm, from, n, to, 1);
}

/* ---- its life ---- */

kvcl_status_t kvcl_key_perm_create(const uint8_t secret[32], kvcl_key_perm_t **perm_p)
{
    static const char label[] = "kvcl key permutation 1";
    kvcl_key_perm_t   *perm   = kvcl_secret_mem_alloc(sizeof(*perm));
    EVP_CIPHER_CTX    *ctx;
    kvcl_status_t     status;

    if (perm == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a permutation of keys");
    }
    kvcl_hkdf_expand(secret, label, sizeof(label), perm, offsetof(kvcl_key_perm_t, spares));
    status = make_ctx(perm, &ctx);
    if (status != KVCL_OK) {
        kvcl_key_perm_destroy(perm);
        return (status == KVCL_ERR_NO_MEMORY)
                   ? kvcl_fail(status, "no memory for a permutation of keys")
                   : kvcl_fail(status, "libcrypto has no AES-128-ECB, which names tenants' keys: use a libcrypto whose "
                               "default provider is loaded");
    }
    return_ctx(perm, ctx);
    *perm_p = perm;
    return KVCL_OK;
}

void kvcl_key_perm_destroy(kvcl_key_perm_t *perm)
{
    unsigned i;

    for (i = 0; (perm != NULL) && (i < SPARES); ++i) {
        EVP_CIPHER_CTX_free(atomic_load(&perm->spares[i]));
    }
    kvcl_secret_mem_free(perm, sizeof(*perm));
}
