/*
 * A lane's out side into a socket that is read in random pieces. The output is frames, each with the bytes of its
 * pieces, in order, with notes between them. An abandoned frame keeps its length and ends with zeros.
 */
#include "config.h"
#include "base/rand.h"
#include "lane/lane_impl.h"
#include "stream_pair.h"
#include "test_base.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRAMES = 300, MEM = 1 << 20 };

typedef struct sent_frame {
    uint64_t op;
    uint32_t kind, len;
    uint64_t sum;      /* checksum of the bytes, unless abandoned */
    bool     whole;
} sent_frame_t;

typedef struct scene {
    kvcl_context_h   ctx;
    kvcl_peer_t      peer;
    kvcl_lane_t      *lane;
    fake_stream_t    stream;
    int              fd;
    kvcl_rand_t      rng;
    unsigned char    *mem;
    sent_frame_t     frames[FRAMES];
    unsigned         n, n_sent;
    unsigned char    *out;
    size_t           got;
} scene_t;

static uint64_t sum_of(const unsigned char *bytes, size_t len, uint64_t sum)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        sum = (sum * 31) + bytes[i] + 1;
    }
    return sum;
}

static void on_sent(void *arg)
{
    ++((scene_t *)arg)->n_sent;
}

static void read_some(scene_t *s, size_t most)
{
    ssize_t n = recv(s->fd, s->out + s->got, most, MSG_DONTWAIT);

    s->got += (n > 0) ? (size_t)n : 0;
    s->stream.super.writable = true; /* as an event would do */
    kvcl_lane_set_ready(s->lane, true);
    (void)kvcl_lane_push(s->lane);
}

static void send_frame(scene_t *s)
{
    struct iovec *iov = kvcl_lane_pieces(s->lane);
    int          n    = 1 + (int)kvcl_rand_below(&s->rng, 40), i;
    sent_frame_t *f   = &s->frames[s->n++];

    f->op    = s->n;
    f->kind  = KVCL_LANE_DATA;
    f->whole = true;
    for (i = 0; i < n; ++i) {
        size_t len = 1 + kvcl_rand_below(&s->rng, 3000);
        iov[i]     = (struct iovec){s->mem + kvcl_rand_below(&s->rng, MEM - len), len};
        f->sum     = sum_of(iov[i].iov_base, len, f->sum);
        f->len    += (uint32_t)len;
    }
    kvcl_lane_send(s->lane, f->op, f->op * 3, f->len, n, on_sent, s);
}

static void note(scene_t *s)
{
    sent_frame_t *f = &s->frames[s->n++];

    f->op    = s->n;
    f->kind  = KVCL_LANE_END;
    f->len   = (uint32_t)kvcl_rand_below(&s->rng, 5000);
    f->sum   = sum_of(s->mem, f->len, 0);
    f->whole = true;
    ck_assert_int_eq(kvcl_lane_tell(s->lane, f->op, KVCL_OK, s->mem, f->len), KVCL_OK);
}

/* Abandon the last frame, if it is in flight. */
static void abandon(scene_t *s)
{
    unsigned sent = s->n_sent;
    unsigned i    = s->n;

    if (!kvcl_lane_abandon(s->lane, s)) {
        return;
    }
    ck_assert_uint_eq(s->n_sent, sent);
    ck_assert(!kvcl_lane_abandon(s->lane, s));
    while (s->frames[--i].kind != KVCL_LANE_DATA) {
    }
    s->frames[i].whole = false;
}

static void check(const scene_t *s)
{
    const unsigned char *at  = s->out;
    const unsigned char *end = s->out + s->got;
    unsigned            i;

    for (i = 0; i < s->n; ++i) {
        kvcl_lane_frame_t frame;
        ck_assert_uint_ge((size_t)(end - at), sizeof(frame));
        memcpy(&frame, at, sizeof(frame));
        at += sizeof(frame);
        ck_assert_uint_eq(frame.magic, KVCL_LANE_MAGIC);
        ck_assert_uint_eq(frame.op, s->frames[i].op);
        ck_assert_uint_eq(frame.kind, s->frames[i].kind);
        ck_assert_uint_eq(frame.len, s->frames[i].len);
        ck_assert_uint_ge((size_t)(end - at), frame.len);
        ck_assert(!s->frames[i].whole || (sum_of(at, frame.len, 0) == s->frames[i].sum));
        ck_assert(s->frames[i].whole || (at[frame.len - 1] == 0)); /* memory has no zeros */
        at += frame.len;
    }
    ck_assert_ptr_eq(at, end);
}

static void churn(scene_t *s)
{
    while ((s->n < FRAMES) || !kvcl_lane_idle(s->lane)) {
        uint64_t dice = kvcl_rand_below(&s->rng, 16);
        if ((s->n < FRAMES) && (dice < 6) && kvcl_lane_idle(s->lane)) {
            send_frame(s);
        } else if ((s->n < FRAMES) && (dice == 6)) {
            note(s);
        } else if (dice == 7) {
            abandon(s);
        } else {
            read_some(s, 1 + kvcl_rand_below(&s->rng, 20000));
        }
    }
}

START_TEST(frames_notes_and_the_end)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    scene_t            s      = {.mem = malloc(MEM), .out = malloc((size_t)FRAMES * 130000)};
    unsigned           whole  = 0, data = 0, i;
    int                fds[2], small = 4096;

    test_seed(&s.rng);
    for (i = 0; i < MEM; ++i) {
        s.mem[i] = (unsigned char)(1 + kvcl_rand_below(&s.rng, 255));
    }
    params.boot  = "self";
    params.path  = "loop";
    params.flags = KVCL_INIT_NO_THREAD;
    ck_assert_int_eq(kvcl_init(&params, &s.ctx), KVCL_OK);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ck_assert_int_eq(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    s.fd       = fds[1];
    s.peer.ctx = s.ctx;
    kvcl_lock(s.ctx);
    s.stream = fake_stream(fds[0]);
    s.lane   = kvcl_lane_new(&s.peer, KVCL_LANE_OUT, &s.stream.super);
    ck_assert_ptr_nonnull(s.lane);
    s.lane->state = KVCL_LANE_OPEN;
    kvcl_lane_set_ready(s.lane, true);
    churn(&s);
    for (i = 0; i < 100000; ++i) { /* bytes still in the socket */
        read_some(&s, 65536);
    }
    check(&s);
    for (i = 0; i < s.n; ++i) {
        data  += (s.frames[i].kind == KVCL_LANE_DATA);
        whole += (s.frames[i].kind == KVCL_LANE_DATA) && s.frames[i].whole;
    }
    ck_assert_uint_eq(s.n_sent, whole);
    ck_assert_uint_lt(whole, data); /* some were abandoned */
    s.n = 0;
    while (kvcl_lane_idle(s.lane)) { /* until the socket is full */
        send_frame(&s);
    }
    note(&s);
    note(&s);
    close(s.fd); /* the reader is closed: the notes' memory is not accessed any more */
    s.stream.super.writable = true;
    kvcl_lane_set_ready(s.lane, true);
    (void)kvcl_lane_push(s.lane);
    ck_assert_int_eq(s.lane->state, KVCL_LANE_LOST);
    kvcl_lane_bury(kvcl_lane_room(s.ctx));
    kvcl_unlock(s.ctx);
    kvcl_finalize(s.ctx);
    free(s.mem);
    free(s.out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lane_out");
    TCase *tc    = tcase_create("lane_out");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, frames_notes_and_the_end);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
