/*
 * Strangers at the tcp transport's listener, and a peer that lies after it has proven the secret: garbage, halves, held
 * connections, slow ones, recorded and wrong proofs, changed bytes, frames with false lengths. None is delivered, none
 * is kept beyond its bound, and honest ranks connect meanwhile. HOSTILE_STRANGERS sets the number of strangers for each
 * wire (default 1,500); TEST_RING=night: 10,000. test_tcp_proofs.c has more wrong proofs.
 */
#include "config.h"
#include "tcp_strangers.h"
#include "base/rand.h"
#include "base/sanitizers.h"
#include "tcp/tcp.h"
#include "test_base.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HELD = 150, AT_ONCE = 4, PROXY = 4096 };

_Static_assert(sizeof(tcp_conn_t) + sizeof(kvcl_sock_hs_t) < 4096, "a stranger costs less than 4 KiB");

/* ---- strangers ---- */

typedef struct attack {
    side_t      *victim;
    kvcl_rand_t rng;
    int         held[HELD];
    uint8_t     dripped[HELD]; /* bytes that a slow one has sent; 0: it is not slow */
    uint8_t     drip[96];      /* what slow ones send: HELLO */
    unsigned    next;
    uint64_t    made;
    uint8_t     recorded[136]; /* HELLO and PROOF of a handshake that succeeded */
} attack_t;

static void client_side(kvcl_sock_side_t *side, bool knows)
{
    static uint8_t wrong[32] = {9};

    memset(side, 0, sizeof(*side));
    side->secret = knows ? pair_secret : wrong;
    side->wire   = KVCL_SOCK_PLAIN;
    side->cipher = KVCL_AEAD_CHACHA20_POLY1305;
    ck_assert_int_eq(kvcl_random_bytes(side->id, sizeof(side->id)), KVCL_OK);
    ck_assert_int_eq(kvcl_random_bytes(side->random, sizeof(side->random)), KVCL_OK);
}

static size_t hello(attack_t *attack, uint8_t *out)
{
    tcp_addr_t       addr = address_of(attack->victim);
    kvcl_sock_side_t side;
    kvcl_sock_hs_t   hs;
    const void       *bytes;
    size_t           len;

    client_side(&side, false);
    ck_assert_int_eq(kvcl_sock_hs_connect(&hs, &side, addr.id, KVCL_SOCK_MESSAGES), KVCL_OK);
    bytes = kvcl_sock_hs_out(&hs, &len);
    memcpy(out, bytes, len);
    kvcl_sock_hs_wipe(&hs);
    return len;
}

/* What one stranger sends. */
static size_t words(attack_t *attack, uint8_t out[512])
{
    kvcl_sock_proof_t proof = {.head = {KVCL_SOCK_MAGIC, KVCL_SOCK_VERSION, KVCL_SOCK_PROOF, 0}};
    size_t            len, i;

    switch (kvcl_rand_below(&attack->rng, 8)) {
    case 0: /* nothing: held open */
        return 0;
    case 1: /* garbage */
        len = 1 + kvcl_rand_below(&attack->rng, 500);
        for (i = 0; i < len; ++i) {
            out[i] = (uint8_t)kvcl_rand_next(&attack->rng);
        }
        return len;
    case 2: /* a part of HELLO */
        return kvcl_rand_below(&attack->rng, hello(attack, out));
    case 3: /* HELLO with one bit changed */
        len = hello(attack, out);
        out[kvcl_rand_below(&attack->rng, len)] ^= (uint8_t)(1u << kvcl_rand_below(&attack->rng, 8));
        return len;
    case 4: /* recorded */
        memcpy(out, attack->recorded, sizeof(attack->recorded));
        return sizeof(attack->recorded);
    case 5: /* only HELLO */
        return hello(attack, out);
    case 6: /* HELLO, slowly */
        out[0] = attack->drip[0];
        attack->dripped[attack->next % HELD] = 1;
        return 1;
    default: /* a wrong proof */
        len = hello(attack, out);
        for (i = 0; i < sizeof(proof.mac); ++i) {
            proof.mac[i] = (uint8_t)kvcl_rand_next(&attack->rng);
        }
        memcpy(out + len, &proof, sizeof(proof));
        return len + sizeof(proof);
    }
}

/* One more byte of one slow stranger. */
static void drip(attack_t *attack)
{
    size_t i = kvcl_rand_below(&attack->rng, HELD);

    if ((attack->held[i] >= 0) && (attack->dripped[i] > 0) && (attack->dripped[i] < sizeof(attack->drip)) &&
        (send(attack->held[i], &attack->drip[attack->dripped[i]], 1, MSG_NOSIGNAL) == 1)) {
        ++attack->dripped[i];
    }
}

/* Most go with a reset, which leaves no port behind that is not free for a minute. */
static void leave(attack_t *attack, int fd)
{
    struct linger reset = {.l_onoff = 1};

    if (kvcl_rand_below(&attack->rng, 8) > 0) {
        ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    }
    close(fd);
}

static void attack_once(attack_t *attack)
{
    unsigned i     = attack->next % HELD;
    unsigned bound = tcp_of(attack->victim->xport)->n_strangers;
    uint8_t  out[512];

    ck_assert_uint_le(bound, TCP_STRANGERS);
    if (attack->held[i] >= 0) {
        leave(attack, attack->held[i]);
    }
    attack->dripped[i] = 0;
    attack->held[i]    = knock_as(attack->victim, 1 + attack->next);
    if (attack->held[i] >= 0) {
        (void)!send(attack->held[i], out, words(attack, out), MSG_NOSIGNAL);
        ++attack->made;
    }
    ++attack->next;
    drip(attack);
    (void)attack->victim->ops->progress(attack->victim->xport);
}

/* Record the handshake of a rank that knows the secret. */
static void record(attack_t *attack)
{
    tcp_addr_t       addr = address_of(attack->victim);
    int              fd   = knock(attack->victim);
    uint64_t         deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    kvcl_sock_side_t side;
    kvcl_sock_hs_t   hs;
    const void       *out;
    size_t           len, at = 0;
    ssize_t          n;
    void             *in;

    client_side(&side, true);
    ck_assert_int_eq(kvcl_sock_hs_connect(&hs, &side, addr.id, KVCL_SOCK_MESSAGES), KVCL_OK);
    while (kvcl_sock_hs_state(&hs) == KVCL_SOCK_HS_GOING) {
        out = kvcl_sock_hs_out(&hs, &len);
        if (len > 0) {
            ck_assert_uint_le(at + len, sizeof(attack->recorded));
            memcpy(attack->recorded + at, out, len);
            at += len;
            ck_assert_int_eq(send(fd, out, len, 0), (ssize_t)len);
            kvcl_sock_hs_sent(&hs, len);
        }
        (void)attack->victim->ops->progress(attack->victim->xport);
        in = kvcl_sock_hs_in(&hs, &len);
        n  = recv(fd, in, len, MSG_DONTWAIT);
        if (n > 0) {
            ck_assert_int_eq(kvcl_sock_hs_took(&hs, (size_t)n), KVCL_OK);
        }
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_int_eq(kvcl_sock_hs_state(&hs), KVCL_SOCK_HS_DONE);
    ck_assert_uint_eq(at, sizeof(attack->recorded));
    kvcl_sock_hs_wipe(&hs);
    close(fd);
}

/* An honest rank connects and sends a message, while others keep connecting. Returns how long it took. */
static uint64_t honest(attack_t *attack, pair_kind_t kind)
{
    uint64_t hdr = 7, began = kvcl_now_ns(), before = attack->victim->received;
    side_t   rank;
    int      i;

    side_open(&rank, kind);
    side_connect(&rank, attack->victim);
    ck_assert_int_eq(rank.ops->am_send(rank.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    while (attack->victim->received == before) {
        (void)rank.ops->progress(rank.xport);
        for (i = 0; i < AT_ONCE; ++i) {
            attack_once(attack);
        }
        ck_assert_uint_eq(rank.failures, 0);
        ck_assert_msg(kvcl_now_ns() - began < 100 * KVCL_NS_PER_SEC, "no connection within 100 s");
    }
    began = kvcl_now_ns() - began;
    side_close(&rank);
    return began;
}

static uint64_t strangers(void)
{
    const char *env = getenv("HOSTILE_STRANGERS"), *ring = getenv("TEST_RING");

    return (env != NULL) ? strtoull(env, NULL, 0) : ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 10000 : 1500;
}

START_TEST(strangers_are_kept_out_and_honest_ranks_connect)
{
    uint64_t      count = strangers(), slowest = 0, took, ranks = 0;
    unsigned long early = 0, late;
    unsigned      before, i;
    attack_t      attack = {.next = 0};
    side_t        victim;

    test_seed(&attack.rng);
    side_open(&victim, (pair_kind_t)_i);
    attack.victim = &victim;
    for (i = 0; i < HELD; ++i) {
        attack.held[i] = -1;
    }
    record(&attack);
    (void)hello(&attack, attack.drip);
    before = descriptors();
    while (attack.made < count) {
        for (i = 0; i < 75; ++i) {
            attack_once(&attack);
        }
        took    = honest(&attack, (pair_kind_t)_i);
        slowest = (took > slowest) ? took : slowest;
        early   = (++ranks == 10) ? rss_kib() : early;
    }
    late = rss_kib();
#if !KVCL_ASAN && !KVCL_TSAN
    ck_assert_uint_ge(ranks, 10);
    ck_assert_msg(late < early + STRANGERS_RSS_KIB, "%lu KiB, %lu KiB at first", late, early);
#endif
    ck_assert_uint_eq(victim.received, ranks); /* and nothing of a stranger */
    ck_assert_uint_eq(victim.failures, 0);
    for (i = 0; i < HELD; ++i) {
        close(attack.held[i]);
    }
    while ((tcp_of(victim.xport)->n_strangers > 0) || (descriptors() > before)) {
        (void)victim.ops->progress(victim.xport); /* until the test's time is over */
    }
    printf("%llu strangers, %llu honest ranks, the slowest after %.1f ms; %lu KiB, %lu KiB at first\n",
           (unsigned long long)attack.made, (unsigned long long)ranks, (double)slowest * 1e-6, late, early);
    side_close(&victim);
}
END_TEST

/* Without a free descriptor, connections wait in the kernel; the transport sleeps, and accepts when there is one. */
START_TEST(without_descriptors_it_sleeps)
{
    struct rlimit limit, low;
    side_t        victim;
    int           fds[40], i, n;
    uint64_t      deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);

    side_open(&victim, (pair_kind_t)_i);
    for (n = 0; n < 40; ++n) {
        fds[n] = knock(&victim);
        ck_assert_int_ge(fds[n], 0);
    }
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low          = limit;
    low.rlim_cur = (rlim_t)fds[39] + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (!tcp_of(victim.xport)->full) {
        (void)victim.ops->progress(victim.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    for (i = 0; (i < 100) && (victim.ops->arm(victim.xport) != KVCL_OK); ++i) {
        (void)victim.ops->progress(victim.xport);
    }
    ck_assert_int_lt(i, 100);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (tcp_of(victim.xport)->n_strangers < 40) {
        (void)victim.ops->progress(victim.xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    for (i = 0; i < n; ++i) {
        close(fds[i]);
    }
    side_close(&victim);
}
END_TEST

/* Silent strangers hold the last descriptors, until a rank needs one. */
START_TEST(silent_strangers_leave_a_descriptor)
{
    enum { KNOCKS = 20, FREE = 4 };
    struct rlimit limit, low;
    side_t        victim, rank;
    int           fds[KNOCKS], i, end;
    uint64_t      deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);

    side_open(&victim, (pair_kind_t)_i);
    side_open(&rank, (pair_kind_t)_i);
    for (i = 0; i < KNOCKS; ++i) {
        fds[i] = knock(&victim);
        ck_assert_int_ge(fds[i], 0);
    }
    side_connect(&rank, &victim);
    end = dup(0); /* the lowest that is free: each below is used */
    ck_assert_int_ge(end, 0);
    close(end);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low          = limit;
    low.rlim_cur = (rlim_t)end + FREE;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (kvcl_container_of(rank.ep, tcp_ep_t, super)->out->stream.state != KVCL_SOCK_OPEN) {
        (void)rank.ops->progress(rank.xport);
        (void)victim.ops->progress(victim.xport);
        ck_assert(!tcp_of(victim.xport)->full);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (i = 0; i < KNOCKS; ++i) {
        close(fds[i]);
    }
    side_close(&rank);
    side_close(&victim);
}
END_TEST

/* ---- a relay between two ranks, which changes bytes ---- */

typedef struct relay {
    int      listener, fd[2]; /* fd[0]: of the side that connects */
    uint64_t passed[2];
    uint64_t flip_at;         /* of what the connecting side sends; 0: none */
    uint64_t cut_at;
    bool     single;          /* bytes pass one at a time */
} relay_t;

static uint16_t relay_open(relay_t *relay)
{
    struct sockaddr_in sa  = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t          len = sizeof(sa);

    memset(relay, 0, sizeof(*relay));
    relay->fd[0] = relay->fd[1] = -1;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(relay->listener, (const struct sockaddr *)&sa, len), 0);
    ck_assert_int_eq(listen(relay->listener, 1), 0);
    ck_assert_int_eq(getsockname(relay->listener, (struct sockaddr *)&sa, &len), 0);
    return ntohs(sa.sin_port);
}

static void relay_close(relay_t *relay)
{
    int i;

    for (i = 0; i < 2; ++i) {
        if (relay->fd[i] >= 0) {
            close(relay->fd[i]);
        }
        relay->fd[i] = -1;
    }
}

static void relay_turn(relay_t *relay, const side_t *to)
{
    uint8_t bytes[PROXY];
    ssize_t n;
    int     i;

    if ((relay->fd[0] < 0) && ((relay->fd[0] = accept4(relay->listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)) {
        relay->fd[1] = knock(to);
        for (i = 0; (i < 2) && relay->single; ++i) {
            ck_assert_int_eq(setsockopt(relay->fd[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
        }
    }
    for (i = 0; (i < 2) && (relay->fd[0] >= 0); ++i) {
        n = recv(relay->fd[i], bytes, relay->single ? 1 : sizeof(bytes), MSG_DONTWAIT);
        if (n <= 0) {
            continue;
        }
        if ((i == 0) && (relay->cut_at != 0) && (relay->passed[0] + (uint64_t)n >= relay->cut_at)) {
            (void)!send(relay->fd[1], bytes, (size_t)(relay->cut_at - relay->passed[0]), MSG_NOSIGNAL);
            relay_close(relay);
            return;
        }
        if ((i == 0) && (relay->flip_at != 0) && (relay->flip_at >= relay->passed[0]) &&
            (relay->flip_at < relay->passed[0] + (uint64_t)n)) {
            bytes[relay->flip_at - relay->passed[0]] ^= 0x10;
        }
        relay->passed[i] += (uint64_t)n;
        (void)!send(relay->fd[!i], bytes, (size_t)n, MSG_NOSIGNAL);
    }
}

static void check_count(side_t *side, const void *hdr, size_t hdr_len, const void *data, size_t len,
                        kvcl_xport_reply_t *reply)
{
    uint64_t seq = 0;

    (void)reply;
    memcpy(&seq, hdr, (hdr_len == sizeof(seq)) ? sizeof(seq) : 0);
    side->wrong += (hdr_len != sizeof(seq)) || (seq != side->received) || (len != 500) || !filled(data, len, seq);
}

/* a reaches b through the relay only. */
static void relay_connect(side_t *a, const side_t *b, uint16_t port)
{
    tcp_addr_t addr = address_of(b);
    uint8_t    packed[TCP_ADDR_BYTES];

    addr.at[0].port = port;
    ck_assert_int_eq(a->ops->ep_create(a->xport, packed, kvcl_tcp_addr_pack(&addr, packed), &a->ep), KVCL_OK);
}

static void send_numbered(side_t *side, uint64_t n)
{
    char       data[500];
    kvcl_iov_t iov = {data, sizeof(data)};

    fill(data, sizeof(data), n);
    ck_assert_int_ge(side->ops->am_send(side->ep, &n, sizeof(n), &iov, 1, 0, NULL), -100);
}

/* Bytes 0 to 135 are HELLO and PROOF. Later ones are records, in which one bit is changed, or which are cut off. */
START_TEST(a_changed_byte_is_seen)
{
    enum { MESSAGES = 20 };
    uint64_t deadline, n;
    relay_t  relay;
    pair_t   pair;
    unsigned turns;
    ssize_t  got;
    uint8_t  byte;

    side_open(&pair.a, PAIR_AEAD);
    side_open(&pair.b, PAIR_AEAD);
    pair.b.on_recv = check_count;
    relay_connect(&pair.a, &pair.b, relay_open(&relay));
    relay.flip_at = 136 + 1 + (uint64_t)_i * 97;
    relay.cut_at  = (_i % 5 == 4) ? relay.flip_at : 0;
    relay.flip_at = (relay.cut_at != 0) ? 0 : relay.flip_at;
    for (n = 0; n < MESSAGES; ++n) {
        send_numbered(&pair.a, n);
    }
    deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    for (turns = 1; pair.a.failures == 0; ++turns) {
        if ((turns % 100 == 0) && (n < 20 * MESSAGES)) { /* a changed length is seen when its bytes are there */
            send_numbered(&pair.a, n++);
        }
        (void)pair_progress(&pair);
        relay_turn(&relay, &pair.b);
        if ((relay.fd[0] >= 0) && ((got = recv(relay.fd[1], &byte, 1, MSG_PEEK | MSG_DONTWAIT)) <= 0) &&
            ((got == 0) || (errno != EAGAIN))) {
            relay_close(&relay); /* b has closed it */
        }
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_uint_eq(pair.b.wrong, 0);
    ck_assert_uint_lt(pair.b.received, n);
    ck_assert_uint_eq(pair.a.failures, 1);
    relay_close(&relay);
    close(relay.listener);
    pair_close(&pair);
}
END_TEST

/* Each byte of the handshake and of the records is read alone. */
START_TEST(single_bytes_are_put_together)
{
    enum { MESSAGES = 10 };
    uint64_t n, deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    relay_t  relay;
    pair_t   pair;

    side_open(&pair.a, (pair_kind_t)_i);
    side_open(&pair.b, (pair_kind_t)_i);
    pair.b.on_recv = check_count;
    relay_connect(&pair.a, &pair.b, relay_open(&relay));
    relay.single = true;
    for (n = 0; n < MESSAGES; ++n) {
        send_numbered(&pair.a, n);
    }
    while (pair.b.received < MESSAGES) {
        (void)pair_progress(&pair);
        relay_turn(&relay, &pair.b);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    ck_assert_uint_eq(pair.b.wrong, 0);
    ck_assert_uint_eq(pair.a.failures + pair.b.failures, 0);
    relay_close(&relay);
    close(relay.listener);
    pair_close(&pair);
}
END_TEST

/* ---- a rank that has proven the secret, and lies ---- */

START_TEST(false_frames_end_their_connection)
{
    static const tcp_frame_t frames[] = {
        {TCP_FRAME_MAGIC + 1, 0, 8, 0, 8},
        {TCP_FRAME_MAGIC, 1, 8, 0, 8}, /* out of sequence */
        {TCP_FRAME_MAGIC, 0, TCP_MAX_HDR + 1, 0, 8},
        {TCP_FRAME_MAGIC, 0, 8, 2, 8},
        {TCP_FRAME_MAGIC, 0, 8, 0, TCP_MSG_MAX + 1},
        {TCP_FRAME_MAGIC, 0, 8, 0, UINT32_MAX},
    };
    tcp_conn_t  *conn;
    tcp_frame_t large = {TCP_FRAME_MAGIC, 0, 8, 0, TCP_MSG_MAX};
    uint64_t    deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    pair_t      pair;

    side_open(&pair.a, (pair_kind_t)PAIR_PLAIN);
    side_open(&pair.b, (pair_kind_t)PAIR_PLAIN);
    side_connect(&pair.a, &pair.b);
    PAIR_UNTIL(&pair, kvcl_container_of(pair.a.ep, tcp_ep_t, super)->out->stream.state == KVCL_SOCK_OPEN);
    side_connect(&pair.b, &pair.a); /* it takes over the connection */
    conn = kvcl_container_of(pair.a.ep, tcp_ep_t, super)->out;
    if (_i < (int)(sizeof(frames) / sizeof(frames[0]))) {
        ck_assert_int_eq(send(conn->stream.fd, &frames[_i], sizeof(frames[_i]), 0), (ssize_t)sizeof(frames[_i]));
        PAIR_UNTIL(&pair, pair.a.failures == 1); /* b has closed the connection */
        ck_assert_uint_eq(pair.b.received, 0);
    } else { /* a length alone takes no memory */
        ck_assert_int_eq(send(conn->stream.fd, &large, sizeof(large), 0), (ssize_t)sizeof(large));
        do {
            (void)pair.b.ops->progress(pair.b.xport);
            conn = kvcl_list_is_empty(&tcp_of(pair.b.xport)->conns)
                       ? NULL : kvcl_list_head(&tcp_of(pair.b.xport)->conns, tcp_conn_t, link);
            ck_assert(!kvcl_deadline_passed(deadline));
        } while ((conn == NULL) || (conn->in_len == 0));
        ck_assert_uint_le(conn->in_cap, 8192);
    }
    pair_close(&pair);
}
END_TEST

/* ---- two honest ranks that connect at once ---- */

static unsigned open_conns(const side_t *side)
{
    tcp_t      *tcp = tcp_of(side->xport);
    tcp_conn_t *conn;
    unsigned   n = 0;

    kvcl_list_foreach (conn, &tcp->conns, tcp_conn_t, link) {
        n += (conn->stream.state == KVCL_SOCK_OPEN);
    }
    return n;
}

START_TEST(both_directions_share_one_connection)
{
    uint64_t hdr = 3;
    pair_t   pair;
    int      i;

    pair_open(&pair, (pair_kind_t)_i);
    ck_assert_int_eq(pair.a.ops->am_send(pair.a.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    ck_assert_int_eq(pair.b.ops->am_send(pair.b.ep, &hdr, sizeof(hdr), NULL, 0, 0, NULL), KVCL_OK);
    PAIR_UNTIL(&pair, (pair.a.received == 1) && (pair.b.received == 1));
    for (i = 0; i < 1000; ++i) {
        (void)pair_progress(&pair);
    }
    ck_assert_uint_eq(open_conns(&pair.a), 1);
    ck_assert_uint_eq(open_conns(&pair.b), 1);
    ck_assert_uint_eq(pair.a.failures + pair.b.failures, 0);
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tcp_hostile");
    TCase *tc    = tcase_create("tcp_hostile"), *many = tcase_create("strangers");

    tcase_set_timeout(tc, 120);
    tcase_set_timeout(many, 3600);
    tcase_add_loop_test(tc, both_directions_share_one_connection, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(many, strangers_are_kept_out_and_honest_ranks_connect, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, without_descriptors_it_sleeps, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, silent_strangers_leave_a_descriptor, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, a_changed_byte_is_seen, 0, 20);
    tcase_add_loop_test(tc, single_bytes_are_put_together, PAIR_PLAIN, PAIR_ALL_KINDS);
    tcase_add_loop_test(tc, false_frames_end_their_connection, 0, 7);
    suite_add_tcase(suite, tc);
    suite_add_tcase(suite, many);
    return test_run(suite);
}
