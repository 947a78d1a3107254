/*
 * Device memory by its copier, on a driver without a device (fake_cuda.h): the memory kind of a pointer, random lists
 * of pieces in every direction against a plain copy, concurrent threads, a device that fails, and no leaks. TEST_SEED
 * repeats a run (the seed is printed).
 */
#include "base/clock.h"
#include "base/rand.h"
#include "device/copier.h"
#include "test/unit/fake_cuda.h"

#include <check.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 8 << 20, CASES = 60, PIECES = 3000 };

static kvcl_rand_t rnd;
static uint64_t    seed;

static void setup(void)
{
    const char *env = getenv("TEST_SEED");

    seed = (env != NULL) ? strtoull(env, NULL, 0) : kvcl_now_ns();
    printf("TEST_SEED=%" PRIu64 "\n", seed);
    kvcl_rand_seed(&rnd, seed);
    fake_cuda_fail(0);
    fake_cuda_slow(0);
    fake_cuda_takes_kernel(true);
    fake_cuda_start();
}

static void nothing_left(void)
{
    fake_cuda_stats_t s;

    fake_cuda_stats(&s);
    ck_assert_uint_eq(s.streams + s.events + s.pinned + s.modules + s.contexts, 0);
}

/* ---------------------------------------------------------------- pointers */

START_TEST(host_memory_is_no_device_memory)
{
    static char   host[64];
    kvcl_copier_t *copier = (kvcl_copier_t *)host;

    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_HOST, host, 64, &copier), KVCL_OK);
    ck_assert_ptr_null(copier);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_AUTO, host, 64, &copier), KVCL_OK);
    ck_assert_ptr_null(copier);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, host, 64, &copier), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_copier_open((kvcl_mem_kind_t)7, host, 64, &copier), KVCL_ERR_UNSUPPORTED);
    ck_assert_int_eq(kvcl_copier_kind(NULL), KVCL_MEM_HOST);
    nothing_left();
}
END_TEST

START_TEST(a_pointer_says_whose_it_is)
{
    char          *first = fake_cuda_malloc(0, 8192), *again = fake_cuda_malloc(0, 8192);
    char          *pool = fake_cuda_malloc(1, 8192);
    kvcl_copier_t *a, *b, *c;

    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, first, 8192, &a), KVCL_OK);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_AUTO, again + 4096, 4096, &b), KVCL_OK);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, pool, 8192, &c), KVCL_OK);
    ck_assert_ptr_eq(a, b); /* one device, one copier */
    ck_assert_ptr_ne(a, c);
    ck_assert_int_eq(kvcl_copier_kind(b), KVCL_MEM_CUDA);
    kvcl_copier_close(a);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, first, 1 << 20, &a), KVCL_ERR_INVALID_PARAM); /* ends outside */
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, first + 4096, 4097, &a), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "4097 bytes"));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "has 4096"));
    kvcl_copier_close(b);
    kvcl_copier_close(c);
    kvcl_copier_close(NULL);
    fake_cuda_free(first);
    fake_cuda_free(again);
    fake_cuda_free(pool);
    nothing_left();
}
END_TEST

START_TEST(without_a_driver_only_host_memory_is_taken)
{
    static char   host[64];
    kvcl_copier_t *copier;

    kvcl_cuda_set_driver(NULL);
    ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_AUTO, host, 64, &copier), KVCL_OK);
    ck_assert_ptr_null(copier);
    /* no driver: unsupported; a real driver: not its memory, or no device */
    ck_assert_int_ne(kvcl_copier_open(KVCL_MEM_CUDA, host, 64, &copier), KVCL_OK);
    ck_assert_ptr_null(copier);
}
END_TEST

/* ---------------------------------------------------------------- copies */

/* One memory of a copy, and the address of its bytes for the test. */
typedef struct place {
    kvcl_copier_t *copier;
    char          *addr;
    char          *bytes;
} place_t;

static place_t place(int device)
{
    place_t p = {0};

    if (device < 0) {
        p.addr = p.bytes = malloc(ROOM);
    } else {
        p.addr  = fake_cuda_malloc(device, ROOM);
        p.bytes = fake_cuda_bytes(p.addr);
        ck_assert_int_eq(kvcl_copier_open(KVCL_MEM_CUDA, p.addr, ROOM, &p.copier), KVCL_OK);
    }
    return p;
}

static void place_end(place_t *p)
{
    if (p->copier != NULL) {
        kvcl_copier_close(p->copier);
        fake_cuda_free(p->addr);
    } else {
        free(p->addr);
    }
}

/* Destinations one after the other with gaps, sources anywhere, lengths of every kind. */
static size_t random_pieces(kvcl_rand_t *r, kvcl_piece_t *pieces, const place_t *dst, const place_t *src)
{
    static const uint32_t upper[] = {3, 64, 700, 5000, 33000, 200000};
    size_t                n       = 1 + kvcl_rand_below(r, PIECES), i;
    uint64_t              at      = kvcl_rand_below(r, 64), len, align, from;
    uint32_t              most    = upper[kvcl_rand_below(r, 6)];

    align = (kvcl_rand_below(r, 2) == 0) ? 1 : 16;
    for (i = 0; i < n; ++i) {
        len  = (kvcl_rand_below(r, most) + align) & ~(align - 1);
        len  = (kvcl_rand_below(r, 50) == 0) ? 0 : len;
        at   = (at + align - 1) & ~(align - 1);
        if (at + len > ROOM) {
            break;
        }
        from      = kvcl_rand_below(r, (uint32_t)(ROOM - len)) & ~(align - 1);
        pieces[i] = (kvcl_piece_t){(uintptr_t)dst->addr + at, (uintptr_t)src->addr + from, len};
        at       += len + kvcl_rand_below(r, 40);
    }
    return i;
}

static void one_case(kvcl_rand_t *r, place_t *dst, place_t *src, char *want)
{
    kvcl_piece_t *pieces = malloc(PIECES * sizeof(*pieces));
    size_t       n = random_pieces(r, pieces, dst, src), i;

    for (i = 0; i < ROOM; i += 8) {
        uint64_t word = kvcl_rand_next(r);
        memcpy(src->bytes + i, &word, 8);
    }
    memset(dst->bytes, 0xa5, ROOM);
    memset(want, 0xa5, ROOM);
    for (i = 0; i < n; ++i) {
        memcpy(want + (pieces[i].dst - (uintptr_t)dst->addr), src->bytes + (pieces[i].src - (uintptr_t)src->addr),
               pieces[i].len);
    }
    ck_assert_int_eq(kvcl_copier_copy(dst->copier, src->copier, pieces, n), KVCL_OK);
    ck_assert_msg(memcmp(dst->bytes, want, ROOM) == 0, "TEST_SEED=%" PRIu64 ": %zu pieces came out wrong", seed, n);
    free(pieces);
}

/* Source and destination: -1 is host memory. */
static const int ways[][2] = {{-1, 0}, {0, -1}, {0, 0}, {0, 1}, {1, 0}, {1, -1}, {-1, -1}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

START_TEST(pieces_arrive_from_anywhere_anywhere)
{
    place_t           src = place(ways[_i][0]), dst = place(ways[_i][1]);
    char              *want = malloc(ROOM);
    fake_cuda_stats_t before, after;
    int               i;

    fake_cuda_stats(&before);
    for (i = 0; i < CASES / 4; ++i) {
        one_case(&rnd, &dst, &src, want);
    }
    fake_cuda_stats(&after);
    if (src.copier != dst.copier) { /* by the kernel, but never across devices */
        bool across = (src.copier != NULL) && (dst.copier != NULL);
        ck_assert((after.launches > before.launches) == !across);
    }
    place_end(&src);
    place_end(&dst);
    free(want);
    nothing_left();
}
END_TEST

START_TEST(without_the_kernel_it_is_the_same)
{
    char    *want = malloc(ROOM);
    place_t src, dst;
    int     i;

    fake_cuda_takes_kernel(false);
    src = place(0);
    dst = place(-1);
    for (i = 0; i < CASES / 10; ++i) {
        one_case(&rnd, &dst, &src, want);
        one_case(&rnd, &src, &dst, want);
    }
    place_end(&src);
    place_end(&dst);
    free(want);
    nothing_left();
}
END_TEST

/* 4,000 pieces of 512 bytes are a few launches and no copy. */
START_TEST(small_pieces_go_many_at_once)
{
    place_t           src = place(0), dst = place(-1);
    kvcl_piece_t      *pieces = malloc(4000 * sizeof(*pieces));
    fake_cuda_stats_t before, after;
    size_t            i;

    for (i = 0; i < 4000; ++i) {
        pieces[i] = (kvcl_piece_t){(uintptr_t)dst.addr + (i * 512), (uintptr_t)src.addr + ((3999 - i) * 1024), 512};
    }
    fake_cuda_stats(&before);
    ck_assert_int_eq(kvcl_copier_copy(NULL, src.copier, pieces, 4000), KVCL_OK);
    fake_cuda_stats(&after);
    ck_assert_uint_eq(after.pieces - before.pieces, 4000);
    ck_assert_uint_le(after.launches - before.launches, 5);
    ck_assert_uint_eq(after.copies, before.copies);
    pieces[0].len = 4 << 20; /* a large one is a copy of its own */
    pieces[0].src = (uintptr_t)src.addr;
    pieces[0].dst = (uintptr_t)dst.addr;
    ck_assert_int_eq(kvcl_copier_copy(NULL, src.copier, pieces, 1), KVCL_OK);
    fake_cuda_stats(&before);
    ck_assert_uint_eq(before.copies, after.copies + 1);
    ck_assert_uint_eq(before.launches, after.launches);
    free(pieces);
    place_end(&src);
    place_end(&dst);
    nothing_left();
}
END_TEST

/* Inside a device the kernel takes large pieces too, in chunks for many blocks of threads; to pages of the host it
 * takes pieces that are copies of their own to pinned memory. */
START_TEST(the_kernel_takes_what_pays_for_each_memory)
{
    enum { N = 16, LEN = 65536 };
    place_t           src = place(0), dst = place(0), pages = place(-1);
    char              *pinned = aligned_alloc(4096, N * LEN);
    kvcl_piece_t      pieces[N];
    fake_cuda_stats_t before, after;
    uint64_t          to[3];
    unsigned          way, i;

    fake_cuda_add(pinned, pinned, N * LEN, -1);
    to[0] = (uintptr_t)dst.addr;
    to[1] = (uintptr_t)pages.addr;
    to[2] = (uintptr_t)pinned;
    for (way = 0; way < 3; ++way) {
        for (i = 0; i < N; ++i) {
            pieces[i] = (kvcl_piece_t){to[way] + (uint64_t)i * LEN, (uintptr_t)src.addr + (uint64_t)(N - 1 - i) * LEN,
                                       LEN};
        }
        fake_cuda_stats(&before);
        ck_assert_int_eq(kvcl_copier_copy((way == 0) ? dst.copier : NULL, src.copier, pieces, N), KVCL_OK);
        fake_cuda_stats(&after);
        ck_assert_uint_eq(after.copies - before.copies, (way == 2) ? N : 0);
        ck_assert_uint_eq(after.pieces - before.pieces, (way == 0) ? N * LEN / (16 * 1024) : (way == 1) ? N : 0);
    }
    fake_cuda_drop(pinned);
    place_end(&src);
    place_end(&dst);
    place_end(&pages);
    nothing_left();
}
END_TEST

/* ---------------------------------------------------------------- threads, failure */

typedef struct worker {
    pthread_t thread;
    uint64_t  seed;
} worker_t;

static void *work(void *arg)
{
    char        *want = malloc(ROOM);
    kvcl_rand_t r;
    place_t     host = place(-1), device = place(0);
    int         i;

    kvcl_rand_seed(&r, ((worker_t *)arg)->seed);
    for (i = 0; i < 3; ++i) {
        one_case(&r, &device, &host, want);
        one_case(&r, &host, &device, want);
    }
    place_end(&host);
    place_end(&device);
    free(want);
    return NULL;
}

START_TEST(more_threads_than_lanes_copy_at_once)
{
    worker_t workers[7];
    unsigned i;

    for (i = 0; i < 7; ++i) {
        workers[i].seed = seed + i;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < 7; ++i) {
        pthread_join(workers[i].thread, NULL);
    }
    nothing_left();
}
END_TEST

/* Whichever call fails, the caller gets the error, and nothing is written afterwards. */
START_TEST(a_failure_is_told_and_nothing_comes_late)
{
    place_t      src = place(0), dst = place(-1);
    kvcl_piece_t pieces[PIECES];
    char         *was = malloc(ROOM);
    unsigned     nth;
    size_t       n, i;

    for (nth = 1; nth <= 8; ++nth) {
        for (n = 0; n < 1200; ++n) { /* both slots in use, large pieces among the small */
            bool   large = (n % 300 == 7);
            size_t at    = large ? ((size_t)5 << 20) + n / 300 * 262144 : n * 4096;

            pieces[n] = (kvcl_piece_t){(uintptr_t)dst.addr + at, (uintptr_t)src.addr + at, large ? 200000 : 2000};
        }
        memset(dst.bytes, 0, ROOM);
        fake_cuda_slow(200);
        fake_cuda_fail(nth);
        if (kvcl_copier_copy(NULL, src.copier, pieces, n) == KVCL_OK) {
            ck_assert_uint_gt(nth, 5); /* the whole copy needed fewer calls than that */
            break;
        }
        memcpy(was, dst.bytes, ROOM);
        usleep(3000);
        ck_assert(memcmp(was, dst.bytes, ROOM) == 0);
        fake_cuda_fail(0);
        fake_cuda_slow(0);
        ck_assert_int_eq(kvcl_copier_copy(NULL, src.copier, pieces, n), KVCL_OK); /* by a lane of its own */
        for (i = 0; i < n; ++i) {
            ck_assert(memcmp((void *)(uintptr_t)pieces[i].dst, fake_cuda_bytes((void *)(uintptr_t)pieces[i].src),
                             pieces[i].len) == 0);
        }
    }
    fake_cuda_fail(0);
    fake_cuda_slow(0);
    free(was);
    place_end(&src);
    place_end(&dst);
    nothing_left();
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("device memory");
    TCase   *tc     = tcase_create("cuda");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, host_memory_is_no_device_memory);
    tcase_add_test(tc, a_pointer_says_whose_it_is);
    tcase_add_test(tc, without_a_driver_only_host_memory_is_taken);
    tcase_add_loop_test(tc, pieces_arrive_from_anywhere_anywhere, 0, WAYS);
    tcase_add_test(tc, without_the_kernel_it_is_the_same);
    tcase_add_test(tc, small_pieces_go_many_at_once);
    tcase_add_test(tc, the_kernel_takes_what_pays_for_each_memory);
    tcase_add_test(tc, more_threads_than_lanes_copy_at_once);
    tcase_add_test(tc, a_failure_is_told_and_nothing_comes_late);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
