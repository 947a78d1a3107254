/*
 * How the processes of a job meet: each learns its rank, the size, a job name and the job secret,
 * and gives one blob of bytes that every other rank can read. The contract that boot_pmix.c,
 * boot_tcp.c, boot_join.c, boot_self.c and boot_oob.c implement, and the functions that core calls.
 *
 * Invariants: rank, size and job are final once open returned, the secret once exchange returned (under
 * PMIx it travels with rank 0's blob); size never changes. Exchange happens at most once per boot. Every
 * wait has a deadline (params.timeout_ns, 60 s if 0) but those inside the caller's callbacks.
 * Thread: one thread at a time per boot. Several boots may be open in one process, but all ranks must open
 * and exchange them one after the other, in the same order. Nothing here is for the data path.
 */
#ifndef KVCL_BOOT_H
#define KVCL_BOOT_H

#include "base/crypto.h"
#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVCL_BOOT_TIMEOUT_DEFAULT_NS UINT64_C(60000000000)

enum {
    KVCL_BOOT_BLOB_MAX  = 64 * 1024, /* bytes of one rank's blob */
    KVCL_BOOT_RANKS_MAX = 65536,
    KVCL_BOOT_JOB_MAX   = 256 /* bytes of a job name, with its NUL */
};

struct kvcl_oob; /* include/kvcl/kvcl_context.h */

typedef struct kvcl_boot     kvcl_boot_t;
typedef struct kvcl_boot_ops kvcl_boot_ops_t;

typedef struct kvcl_boot_params {
    const char            *which;       /* "auto" or NULL, "pmix", "tcp", "join", "self", "oob" */
    const char            *rendezvous;  /* "tcp://host:port", NULL: none */
    const char            *join;        /* "host:port,...": members of a running job; NULL: none */
    uint32_t               wire_version; /* of this library's messages */
    int                    rank;        /* -1: assigned by the meeting (tcp) or by the launcher */
    int                    size;        /* 0: from the launcher; tcp needs it */
    const char            *secret_file; /* NULL: see secret.h */
    uint64_t               timeout_ns;  /* of every wait; 0: the default */
    const struct kvcl_oob *oob;         /* the caller's callbacks, NULL: none; copied by open */
    const char            *interface;   /* name or address that the tcp meeting listens on, NULL:
                                         * the address that rendezvous names */
    const char            *net;         /* interfaces between the ranks; "": none, all on one host; NULL: not known */
    bool                   user_secret; /* self without secret_file: the user's own secret, not a random one */
} kvcl_boot_params_t;

#define KVCL_BOOT_PARAMS_INIT {.rank = -1}

/* What all kinds share; the kind's own struct starts with it. Owned by the boot until close. */
struct kvcl_boot {
    const kvcl_boot_ops_t *ops;
    int                    rank;
    int                    size;
    int                    local_rank; /* among this job's ranks on this host; -1: not known */
    uint8_t                *secret;    /* KVCL_SHA256_LEN bytes, the same on all ranks; boot.c's, until close */
    char                   job[KVCL_BOOT_JOB_MAX]; /* the same on all ranks; unlike other jobs' */
    uint64_t               timeout_ns;
    const uint64_t         *join_times_ns; /* of the job that this process joins (join_wire.h); NULL: it does not */
    uint64_t               join_until_ns; /* the deadline of all of the join, where join_times_ns is set */
    int                    exchanged; /* kept by boot.c */
};

struct kvcl_boot_ops {
    size_t      size; /* sizeof(*this) */
    const char *name; /* as in params.which */
    /* Would auto choose this kind here? Cheap, no side effect. */
    int (*available)(const kvcl_boot_params_t *params);
    /* May block until the launcher or the meeting gave a rank. On failure keeps nothing. The secret's memory is the
     * process's only copy: the kind keeps the pointer in its boot, and fills it now or in exchange. */
    kvcl_status_t (*open)(const kvcl_boot_params_t *params, uint8_t *secret, kvcl_boot_t **boot_p);
    /* Collective. The blob is copied. */
    kvcl_status_t (*exchange)(kvcl_boot_t *boot, const void *blob, size_t len);
    kvcl_status_t (*get)(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p);
    void          (*close)(kvcl_boot_t *boot);
};

/**
 * Choose a kind and open it: params.which if it names one; the caller's callbacks if given; join if members
 * of a running job are named; tcp if a
 * rendezvous is given; pmix if a PMIx launcher started the process; else self (rank 0 of 1).
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM, KVCL_ERR_UNSUPPORTED (kind not built), KVCL_ERR_TIMED_OUT,
 *         KVCL_ERR_UNREACHABLE, KVCL_ERR_AUTH, KVCL_ERR_VERSION, KVCL_ERR_EXISTS (rank taken),
 *         KVCL_ERR_IO (rank 0 cannot listen, or the user's secret cannot be made); always with a sentence.
 */
kvcl_status_t kvcl_boot_open(const kvcl_boot_params_t *params, kvcl_boot_t **boot_p)
        KVCL_MUST_CHECK;

/**
 * Publish this rank's blob (up to KVCL_BOOT_BLOB_MAX bytes, copied) and wait until every rank has published its blob.
 * Collective, once. O(1) messages to the launcher per rank.
 * @return KVCL_OK, KVCL_ERR_EXISTS (second call), KVCL_ERR_TIMED_OUT (the sentence names the missing ranks where they
 *         are known), KVCL_ERR_RANK_FAILED.
 */
kvcl_status_t kvcl_boot_exchange(kvcl_boot_t *boot, const void *blob, size_t len) KVCL_MUST_CHECK;

/**
 * The blob of a rank, after the exchange; fetched when first needed. It belongs to the boot and is
 * valid until close. @return KVCL_OK, KVCL_ERR_UNKNOWN_RANK, KVCL_ERR_NOT_FOUND (no exchange yet),
 * KVCL_ERR_TIMED_OUT.
 */
kvcl_status_t kvcl_boot_get(kvcl_boot_t *boot, int rank, const void **blob_p, size_t *len_p)
        KVCL_MUST_CHECK;

/** Leave. Not collective, does not wait for other ranks (at most it flushes what it sends). NULL is fine. */
void kvcl_boot_close(kvcl_boot_t *boot);

/** The names that params.which accepts, for help texts: "auto, self, tcp, ...". */
const char *kvcl_boot_kinds(void);

/* ------------------------------------------------------------- for the kinds' own files */

extern const kvcl_boot_ops_t kvcl_boot_pmix_ops;
extern const kvcl_boot_ops_t kvcl_boot_join_ops;
extern const kvcl_boot_ops_t kvcl_boot_tcp_ops;
extern const kvcl_boot_ops_t kvcl_boot_self_ops;
extern const kvcl_boot_ops_t kvcl_boot_oob_ops;

/* params.timeout_ns or the default. */
uint64_t kvcl_boot_timeout(const kvcl_boot_params_t *params);

#endif
