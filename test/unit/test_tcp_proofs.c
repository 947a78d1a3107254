/*
 * Wrong proofs of the job's secret, to the tcp transport's listener: random ones, proofs of which one bit is changed,
 * proofs of another connection, and proofs of a HELLO that was changed on the way. Each is read and refused
 * (KVCL_ERR_AUTH), none leaves a byte behind, and honest ranks connect meanwhile. HOSTILE_PROOFS sets their number for
 * each wire (default 1,000); TEST_RING=night: 20,000.
 */
#include "config.h"
#include "tcp_strangers.h"
#include "base/rand.h"
#include "base/sanitizers.h"
#include "sock/sock_keys.h"
#include "test_base.h"

#include <errno.h>

enum { AT_ONCE = 32, ONE_IN = 4, HONEST_EVERY = 500,
       REFUSED = sizeof(kvcl_sock_challenge_t) + sizeof(kvcl_sock_head_t) };

_Static_assert((int)AT_ONCE < (int)TCP_STRANGERS, "no wrong proof is displaced before it is read");

typedef enum { MADE_UP, ONE_BIT, OF_ANOTHER, OF_CHANGED_HELLO, KINDS } proof_kind_t;

typedef struct prover {
    int            fd;   /* -1: none */
    proof_kind_t   kind;
    kvcl_sock_hs_t hs;   /* but of MADE_UP */
    uint8_t        in[REFUSED];
    size_t         in_len;
} prover_t;

typedef struct proofs {
    side_t            *victim;
    kvcl_rand_t       rng;
    kvcl_sock_wire_t  wire;
    prover_t          at[AT_ONCE];
    kvcl_sock_hello_t hello;      /* for proofs that are made up */
    kvcl_sock_proof_t another;    /* a right proof, of an earlier connection */
    uint64_t          begun, refused, of_kind[KINDS];
} proofs_t;

static void random_fill(kvcl_rand_t *rng, void *buf, size_t len)
{
    uint8_t *bytes = (uint8_t *)buf;

    while (len-- > 0) {
        *bytes++ = (uint8_t)kvcl_rand_next(rng);
    }
}

static void send_all(const prover_t *prover, const void *bytes, size_t len)
{
    ck_assert_int_eq(send(prover->fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* A rank that knows the secret begins, with an id of its own. */
static void begin_handshake(proofs_t *proofs, kvcl_sock_hs_t *hs)
{
    kvcl_sock_side_t side = {.secret = pair_secret, .wire = proofs->wire, .cipher = kvcl_aead_preferred()};
    tcp_addr_t       addr = address_of(proofs->victim);

    random_fill(&proofs->rng, side.id, sizeof(side.id));
    random_fill(&proofs->rng, side.random, sizeof(side.random));
    ck_assert_int_eq(kvcl_sock_hs_connect(hs, &side, addr.id, KVCL_SOCK_MESSAGES), KVCL_OK);
}

static void begin_made_up(proofs_t *proofs, const prover_t *prover)
{
    struct {
        kvcl_sock_hello_t hello;
        kvcl_sock_proof_t proof;
    } both = {proofs->hello, {.head = {KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_PROOF, 0}}};

    random_fill(&proofs->rng, both.hello.id_a, sizeof(both.hello.id_a));
    random_fill(&proofs->rng, both.hello.nonce, sizeof(both.hello.nonce));
    random_fill(&proofs->rng, both.proof.mac, sizeof(both.proof.mac));
    send_all(prover, &both, sizeof(both));
}

static void begin(proofs_t *proofs, prover_t *prover)
{
    uint8_t    changed[sizeof(kvcl_sock_hello_t)];
    const void *hello;
    size_t     len;

    prover->fd     = knock_as(proofs->victim, 1 + (unsigned)proofs->begun++);
    prover->in_len = 0;
    prover->kind   = MADE_UP;
    if (kvcl_rand_below(&proofs->rng, ONE_IN) == 0) {
        prover->kind = (proof_kind_t)(1 + kvcl_rand_below(&proofs->rng, KINDS - 1));
    }
    ck_assert_msg(prover->fd >= 0, "cannot connect: %s", strerror(errno));
    if (prover->kind == MADE_UP) {
        begin_made_up(proofs, prover);
        return;
    }
    begin_handshake(proofs, &prover->hs);
    hello = kvcl_sock_hs_out(&prover->hs, &len);
    ck_assert_uint_eq(len, sizeof(changed));
    memcpy(changed, hello, len);
    if (prover->kind == OF_CHANGED_HELLO) { /* a nonce is valid whatever its bits are, and the MAC covers it */
        changed[offsetof(kvcl_sock_hello_t, nonce) + kvcl_rand_below(&proofs->rng, 16)] ^= 1;
    }
    send_all(prover, changed, len);
    kvcl_sock_hs_sent(&prover->hs, len);
}

/* CHALLENGE has arrived. */
static void prove_wrongly(proofs_t *proofs, prover_t *prover)
{
    kvcl_sock_proof_t proof = {.head = {KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_PROOF, 0}};
    size_t            len, at = 0, n;
    const void        *out;
    void              *in;

    if (prover->kind == OF_CHANGED_HELLO) { /* right, but for the HELLO that was made */
        memcpy(prover->hs.log + prover->hs.log_len, prover->in, sizeof(kvcl_sock_challenge_t));
        kvcl_sock_mac(prover->hs.pair_key, "A", prover->hs.log,
                      prover->hs.log_len + sizeof(kvcl_sock_challenge_t), &proof.head, sizeof(proof.head), proof.mac);
    } else {
        while (at < sizeof(kvcl_sock_challenge_t)) {
            in = kvcl_sock_hs_in(&prover->hs, &n);
            memcpy(in, prover->in + at, n);
            at += n;
            ck_assert_int_eq(kvcl_sock_hs_took(&prover->hs, n), KVCL_OK);
        }
        out = kvcl_sock_hs_out(&prover->hs, &len);
        ck_assert_uint_eq(len, sizeof(proof));
        memcpy(&proof, out, sizeof(proof));
        if (prover->kind == ONE_BIT) {
            proof.mac[kvcl_rand_below(&proofs->rng, 32)] ^= (uint8_t)(1u << kvcl_rand_below(&proofs->rng, 8));
        } else {
            kvcl_sock_proof_t own = proof;
            proof           = proofs->another;
            proofs->another = own;
        }
    }
    send_all(prover, &proof, sizeof(proof));
}

/* CHALLENGE, then REFUSE for the one reason, and nothing else. */
static void finish(proofs_t *proofs, prover_t *prover)
{
    struct linger    reset = {.l_onoff = 1};
    kvcl_sock_head_t head;

    memcpy(&head, prover->in + sizeof(kvcl_sock_challenge_t), sizeof(head));
    ck_assert_uint_eq(head.type, KVCL_SOCK_REFUSE);
    ck_assert_int_eq(-(int)head.reason, KVCL_ERR_AUTH);
    ++proofs->refused;
    ++proofs->of_kind[prover->kind];
    ck_assert_int_eq(setsockopt(prover->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    close(prover->fd);
    prover->fd = -1;
    kvcl_sock_hs_wipe(&prover->hs);
}

static void step(proofs_t *proofs, prover_t *prover)
{
    size_t  before = prover->in_len;
    size_t  due    = (before < sizeof(kvcl_sock_challenge_t)) && (prover->kind != MADE_UP)
                         ? sizeof(kvcl_sock_challenge_t) : REFUSED;
    ssize_t n      = recv(prover->fd, prover->in + before, due - before, MSG_DONTWAIT);

    ck_assert_msg((n > 0) || ((n < 0) && (errno == EAGAIN)), "closed after %zu of %d bytes", before, (int)REFUSED);
    prover->in_len += (n > 0) ? (size_t)n : 0;
    if ((before < sizeof(kvcl_sock_challenge_t)) && (prover->in_len == sizeof(kvcl_sock_challenge_t)) &&
        (prover->kind != MADE_UP)) {
        prove_wrongly(proofs, prover);
    }
    if (prover->in_len == REFUSED) {
        finish(proofs, prover);
    }
}

static void turn(proofs_t *proofs, uint64_t count)
{
    unsigned i;

    for (i = 0; i < AT_ONCE; ++i) {
        if (proofs->at[i].fd >= 0) {
            step(proofs, &proofs->at[i]);
        } else if (proofs->begun < count) {
            begin(proofs, &proofs->at[i]);
        }
    }
    (void)proofs->victim->ops->progress(proofs->victim->xport);
    ck_assert_uint_le(tcp_of(proofs->victim->xport)->n_strangers, AT_ONCE + 1);
}

/* A rank connects meanwhile, and sends a message. Returns how long it took. */
static uint64_t honest(proofs_t *proofs, pair_kind_t kind, uint64_t count)
{
    uint64_t hdr = 7, began = kvcl_now_ns(), before = proofs->victim->received;
    side_t   rank;

    side_open(&rank, kind);
    side_connect(&rank, proofs->victim);
    ck_assert_int_eq(rank.ops->am_send(rank.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    while (proofs->victim->received == before) {
        (void)rank.ops->progress(rank.xport);
        turn(proofs, count);
        ck_assert_uint_eq(rank.failures, 0);
        ck_assert_msg(kvcl_now_ns() - began < 100 * KVCL_NS_PER_SEC, "no connection within 100 s");
    }
    began = kvcl_now_ns() - began;
    side_close(&rank);
    return began;
}

static uint64_t proofs_of_a_wire(void)
{
    const char *env = getenv("HOSTILE_PROOFS"), *ring = getenv("TEST_RING");

    return (env != NULL) ? strtoull(env, NULL, 0) : ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 20000 : 1000;
}

/* The parts of a HELLO that are the same for all proofs that are made up. */
static void make_hello(proofs_t *proofs)
{
    kvcl_sock_hs_t hs;
    const void     *out;
    size_t         len;

    begin_handshake(proofs, &hs);
    out = kvcl_sock_hs_out(&hs, &len);
    ck_assert_uint_eq(len, sizeof(proofs->hello));
    memcpy(&proofs->hello, out, len);
    kvcl_sock_hs_wipe(&hs);
    proofs->another.head = (kvcl_sock_head_t){KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_PROOF, 0};
    random_fill(&proofs->rng, proofs->another.mac, sizeof(proofs->another.mac));
}

START_TEST(wrong_proofs_are_refused_and_honest_ranks_connect)
{
    static proofs_t proofs;
    uint64_t        count = proofs_of_a_wire(), took, slowest = 0, ranks = 0, next = 0, deadline;
    unsigned long   early = 0, late;
    side_t          victim;
    unsigned        before, i;

    test_seed(&proofs.rng);
    side_open(&victim, (pair_kind_t)_i);
    proofs.victim = &victim;
    proofs.wire   = (_i == PAIR_AEAD) ? KVCL_SOCK_AEAD : KVCL_SOCK_PLAIN;
    make_hello(&proofs);
    for (i = 0; i < AT_ONCE; ++i) {
        proofs.at[i].fd = -1;
    }
    before = descriptors();
    while (proofs.refused < count) {
        turn(&proofs, count);
        if (proofs.refused >= next) {
            took    = honest(&proofs, (pair_kind_t)_i, count);
            slowest = (took > slowest) ? took : slowest;
            early   = (++ranks == 2) ? rss_kib() : early;
            next   += HONEST_EVERY;
        }
    }
    late     = rss_kib();
    deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    while ((tcp_of(victim.xport)->n_strangers > 0) || (descriptors() > before)) {
        (void)victim.ops->progress(victim.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    printf("%llu wrong proofs refused (%llu made up, %llu of one bit, %llu of another connection, %llu of a changed "
           "HELLO), %llu honest ranks, the slowest after %.1f ms; %lu KiB, %lu KiB at first\n",
           (unsigned long long)proofs.refused, (unsigned long long)proofs.of_kind[MADE_UP],
           (unsigned long long)proofs.of_kind[ONE_BIT], (unsigned long long)proofs.of_kind[OF_ANOTHER],
           (unsigned long long)proofs.of_kind[OF_CHANGED_HELLO], (unsigned long long)ranks, (double)slowest * 1e-6,
           late, early);
    ck_assert_uint_eq(proofs.refused, count);
    ck_assert_uint_eq(victim.received, ranks);
    ck_assert_uint_eq(victim.failures, 0);
    for (i = 0; i < KINDS; ++i) {
        ck_assert_uint_gt(proofs.of_kind[i], 0);
    }
#if !KVCL_ASAN && !KVCL_TSAN
    ck_assert_msg(late < early + STRANGERS_RSS_KIB, "%lu KiB, %lu KiB at first", late, early);
#endif
    side_close(&victim);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_proofs");
    TCase *tc    = tcase_create("tcp_proofs");

    tcase_set_timeout(tc, 7200);
    tcase_add_loop_test(tc, wrong_proofs_are_refused_and_honest_ranks_connect, PAIR_PLAIN, PAIR_ALL_KINDS);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
