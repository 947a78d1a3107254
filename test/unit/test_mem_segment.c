/*
 * Segments (mem/segment.h) between two processes: mapped, sealed, read-only; every lie about one is refused without a
 * signal. TEST_SEED repeats the random lies; TEST_RING=night: 10,000 of them.
 */
#include "config.h"
#include "mem/segment.h"

#include "base/error.h"
#include "base/rand.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 40000, AT_PID = 4, AT_FD = 8, AT_FLAGS = 12, AT_PLACE = 16, AT_INODE = 24, AT_BYTES = 32, AT_ID = 40 };

/* A process that has a segment; it sleeps. */
typedef struct far {
    pid_t   pid;
    int     to;   /* closing it ends the process; a byte makes it check that the segment begins with 'w' */
    int     from; /* its reply to that byte */
    uint8_t packed[KVCL_SEGMENT_WIRE_BYTES];
} far_t;

static void far_main(unsigned flags, int from, int to)
{
    uint8_t        packed[KVCL_SEGMENT_WIRE_BYTES];
    kvcl_segment_t seg;
    char           c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ck_assert_int_eq(kvcl_segment_create(&seg, SIZE, flags), KVCL_OK);
    memset(seg.addr, 'o', SIZE);
    ck_assert_uint_eq(kvcl_segment_pack(&seg, packed, sizeof(packed)), sizeof(packed));
    ck_assert_int_eq(write(to, packed, sizeof(packed)), sizeof(packed));
    while (read(from, &c, 1) == 1) {
        ck_assert_int_eq(write(to, seg.addr, 1), 1);
    }
    _exit(0);
}

static void far_start(far_t *far, unsigned flags)
{
    int down[2], up[2];

    ck_assert_int_eq(pipe2(down, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(up, O_CLOEXEC), 0);
    far->pid = fork();
    if (far->pid == 0) {
        close(down[1]);
        far_main(flags, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    far->to   = down[1];
    far->from = up[0];
    ck_assert_int_eq(read(far->from, far->packed, sizeof(far->packed)), sizeof(far->packed));
}

static void far_end(far_t *far)
{
    close(far->to);
    close(far->from);
    (void)waitpid(far->pid, NULL, 0);
}

/* Packs a file of this process as if it were a segment. */
static void claim_file(const far_t *far, int fd, uint64_t bytes, uint8_t *lie)
{
    int32_t     pid = getpid();
    struct stat st;
    uint64_t    inode;

    ck_assert_int_eq(fstat(fd, &st), 0);
    inode = st.st_ino;
    memcpy(lie, far->packed, KVCL_SEGMENT_WIRE_BYTES);
    memcpy(lie + AT_PID, &pid, 4);
    memcpy(lie + AT_FD, &fd, 4);
    memcpy(lie + AT_INODE, &inode, 8);
    memcpy(lie + AT_BYTES, &bytes, 8);
}

static int file_named(const far_t *far, unsigned flags, off_t bytes)
{
    char   name[64] = "kvcl-";
    size_t i;
    int    fd;

    for (i = 0; i < KVCL_SEGMENT_ID_BYTES; ++i) {
        snprintf(name + 5 + (2 * i), 3, "%02x", far->packed[AT_ID + i]);
    }
    fd = memfd_create(name, MFD_CLOEXEC | flags);
    ck_assert_int_eq((fd < 0) ? -1 : ftruncate(fd, bytes), (fd < 0) ? -1 : 0);
    return fd;
}

START_TEST(a_segment_is_read_and_written)
{
    kvcl_segment_view_t view;
    far_t               far;
    char                c = 0;

    far_start(&far, 0);
    ck_assert_int_eq(kvcl_segment_open(far.packed, sizeof(far.packed), SIZE, true, &view), KVCL_OK);
    ck_assert_int_eq(((char *)view.addr)[SIZE - 1], 'o');
    ((char *)view.addr)[0] = 'w';
    ck_assert_int_eq(write(far.to, "?", 1), 1);
    ck_assert_int_eq(read(far.from, &c, 1), 1);
    ck_assert_int_eq(c, 'w');
    far_end(&far); /* the mapping outlives the owner */
    ck_assert_int_eq(((char *)view.addr)[SIZE - 1], 'o');
    kvcl_segment_close(&view);
    ck_assert_ptr_null(view.addr);
    ck_assert_int_eq(kvcl_segment_open(far.packed, sizeof(far.packed), SIZE, false, &view), KVCL_ERR_NOT_FOUND);
}
END_TEST

START_TEST(the_kernel_keeps_a_read_only_segment)
{
    kvcl_segment_view_t view;
    char                path[64];
    int32_t             pid, number;
    far_t               far;
    void                *map;
    int                 fd;

    far_start(&far, KVCL_SEGMENT_READ_ONLY);
    ck_assert_int_eq(kvcl_segment_open(far.packed, sizeof(far.packed), SIZE, false, &view), KVCL_OK);
    ck_assert_int_eq(((char *)view.addr)[0], 'o');
    ck_assert_int_eq(mprotect(view.addr, view.mapped, PROT_READ | PROT_WRITE), -1);
    kvcl_segment_close(&view);
    ck_assert_int_eq(kvcl_segment_open(far.packed, sizeof(far.packed), SIZE, true, &view), KVCL_ERR_PROTOCOL);
    memcpy(&pid, far.packed + AT_PID, 4);
    memcpy(&number, far.packed + AT_FD, 4);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)number);
    fd = open(path, O_RDWR | O_CLOEXEC); /* without the library */
    if (fd >= 0) {
        map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_msg(map == MAP_FAILED, "Linux before 5.1 has no F_SEAL_FUTURE_WRITE: read-only memory is writable");
        ck_assert_int_eq(write(fd, "x", 1), -1);
        close(fd);
    }
    far_end(&far);
}
END_TEST

START_TEST(an_owner_cannot_shrink_it)
{
    kvcl_segment_t seg;

    ck_assert_int_eq(kvcl_segment_create(&seg, SIZE, 0), KVCL_OK);
    ck_assert_int_eq(ftruncate(seg.fd, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(seg.fd, 10 * SIZE), -1);
    kvcl_segment_destroy(&seg);
    kvcl_segment_destroy(&seg);
}
END_TEST

START_TEST(a_file_that_can_shrink_is_refused)
{
    kvcl_segment_view_t view;
    uint8_t             lie[KVCL_SEGMENT_WIRE_BYTES];
    far_t               far;
    int                 fd;

    far_start(&far, 0);
    fd = file_named(&far, MFD_ALLOW_SEALING, SIZE);
    claim_file(&far, fd, SIZE, lie);
    ck_assert_int_eq(kvcl_segment_open(lie, sizeof(lie), SIZE, true, &view), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "not sealed"));
    ck_assert_int_eq(ftruncate(fd, 0), 0); /* truncated before it was sealed: too short */
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    ck_assert_int_eq(kvcl_segment_open(lie, sizeof(lie), SIZE, false, &view), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "the segment has 0"));
    close(fd);
    fd = file_named(&far, MFD_ALLOW_SEALING | MFD_HUGETLB, 4 << 20); /* pages may be missing: SIGBUS */
    if (fd >= 0) {
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        claim_file(&far, fd, 4 << 20, lie);
        ck_assert_int_eq(kvcl_segment_open(lie, sizeof(lie), SIZE, false, &view), KVCL_ERR_PROTOCOL);
        close(fd);
    }
    far_end(&far);
}
END_TEST

/* Files of any length, sealed or not; the description claims more, less or as much. What is mapped has its bytes. */
START_TEST(a_truncated_segment_is_never_mapped)
{
    const char          *ring  = getenv("TEST_RING");
    unsigned            rounds = ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 10000 : 300, mapped = 0, i;
    kvcl_segment_view_t view;
    uint8_t             lie[KVCL_SEGMENT_WIRE_BYTES], sum = 0;
    kvcl_rand_t         rnd;
    far_t               far;

    kvcl_rand_seed(&rnd, 1);
    far_start(&far, 0);
    for (i = 0; i < rounds; ++i) {
        size_t real   = kvcl_rand_below(&rnd, 4) * (SIZE / 2), claimed = (1 + kvcl_rand_below(&rnd, 4)) * (SIZE / 2);
        bool   sealed = kvcl_rand_below(&rnd, 3) > 0, opened;
        int    fd     = file_named(&far, MFD_ALLOW_SEALING, claimed);

        ck_assert_int_eq(ftruncate(fd, (off_t)real), 0);
        if (sealed) {
            ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        }
        claim_file(&far, fd, claimed, lie);
        opened = kvcl_segment_open(lie, sizeof(lie), claimed, kvcl_rand_below(&rnd, 2) == 0, &view) == KVCL_OK;
        ck_assert(!opened || (sealed && (real >= claimed)));
        ck_assert(opened || !sealed || (real != claimed));
        if (opened) {
            sum ^= ((volatile uint8_t *)view.addr)[0] ^ ((volatile uint8_t *)view.addr)[claimed - 1];
            kvcl_segment_close(&view);
            ++mapped;
        }
        close(fd);
    }
    printf("%u files, %u mapped, each with all its bytes (%u)\n", rounds, mapped, sum);
    ck_assert_uint_gt(mapped, 0);
    far_end(&far);
}
END_TEST

START_TEST(only_a_segment_is_opened)
{
    kvcl_segment_view_t view;
    uint8_t             lie[KVCL_SEGMENT_WIRE_BYTES];
    far_t               far;
    int                 fds[2], fd;

    far_start(&far, 0);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0); /* opening a pipe blocks */
    claim_file(&far, fds[0], SIZE, lie);
    ck_assert_int_eq(kvcl_segment_open(lie, sizeof(lie), SIZE, false, &view), KVCL_ERR_NOT_FOUND);
    fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, SIZE), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    claim_file(&far, fd, SIZE, lie);
    ck_assert_int_eq(kvcl_segment_open(lie, sizeof(lie), SIZE, false, &view), KVCL_ERR_NOT_FOUND);
    close(fd);
    close(fds[0]);
    close(fds[1]);
    far_end(&far);
}
END_TEST

/* A random lie: up to three fields, or any bytes, or a length. */
static size_t lie_once(kvcl_rand_t *rnd, const far_t *far, uint8_t *lie, uint64_t *len, bool *write)
{
    static const int at[]    = {0, AT_PID, AT_FD, AT_FLAGS, AT_PLACE, AT_INODE, AT_BYTES, AT_ID};
    static const int width[] = {4, 4, 4, 4, 8, 8, 8, 16};
    unsigned         n       = (unsigned)kvcl_rand_below(rnd, 4), i, f; /* 0: only the length lies */
    uint64_t         value;

    memcpy(lie, far->packed, sizeof(far->packed));
    *len   = (kvcl_rand_below(rnd, 2) == 0) ? SIZE : kvcl_rand_next(rnd) >> kvcl_rand_below(rnd, 64);
    *write = kvcl_rand_below(rnd, 2) == 0;
    for (i = 0; i < n; ++i) {
        f     = (unsigned)kvcl_rand_below(rnd, 8);
        value = kvcl_rand_next(rnd) >> kvcl_rand_below(rnd, 64);
        if (kvcl_rand_below(rnd, 3) == 0) {
            lie[kvcl_rand_below(rnd, sizeof(far->packed))] ^= (uint8_t)(1u << kvcl_rand_below(rnd, 8));
        } else {
            memcpy(lie + at[f], &value, (width[f] < 8) ? 4 : 8);
        }
    }
    return (kvcl_rand_below(rnd, 8) == 0) ? (size_t)kvcl_rand_below(rnd, sizeof(far->packed)) : sizeof(far->packed);
}

START_TEST(lies_are_refused)
{
    const char          *ring = getenv("TEST_RING"), *seed_text = getenv("TEST_SEED");
    unsigned long       lies  = ((ring != NULL) && (strcmp(ring, "night") == 0)) ? 10000 : 600, i, mapped = 0;
    uint64_t            seed  = (seed_text != NULL) ? strtoull(seed_text, NULL, 10) : (uint64_t)getpid(), len;
    kvcl_segment_view_t view;
    uint8_t             lie[KVCL_SEGMENT_WIRE_BYTES], sum = 0;
    kvcl_rand_t         rnd;
    far_t               far;
    size_t              lie_len;
    bool                write;

    printf("TEST_SEED=%llu, %lu lies\n", (unsigned long long)seed, lies);
    fflush(stdout);
    kvcl_rand_seed(&rnd, seed);
    far_start(&far, (_i == 0) ? 0 : KVCL_SEGMENT_READ_ONLY);
    for (i = 0; i < lies; ++i) {
        lie_len = lie_once(&rnd, &far, lie, &len, &write);
        if (kvcl_segment_open(lie, lie_len, len, write, &view) == KVCL_OK) {
            ck_assert_uint_le(len, view.mapped); /* a true length within the file: every byte is there */
            sum    ^= ((volatile uint8_t *)view.addr)[0] ^ ((volatile uint8_t *)view.addr)[len - 1];
            mapped += 1;
            kvcl_segment_close(&view);
        } else {
            ck_assert_ptr_null(view.addr);
            ck_assert_str_ne(kvcl_last_error(), "");
        }
    }
    printf("%lu mapped, all within the segment (%u)\n", mapped, sum);
    far_end(&far);
}
END_TEST

/* A process of another user may not, and reports so: the caller then reaches the bytes by message. */
START_TEST(another_user_is_refused)
{
    kvcl_segment_view_t view;
    kvcl_status_t       status;
    far_t               far;
    pid_t               pid;
    int                 how;

    if (getuid() != 0) {
        printf("SKIP: only root can become another user: that /proc refuses another user's segment\n");
        return;
    }
    far_start(&far, 0);
    pid = fork();
    if (pid == 0) {
        status = ((setgid(65534) == 0) && (setuid(65534) == 0))
                         ? kvcl_segment_open(far.packed, sizeof(far.packed), SIZE, false, &view)
                         : KVCL_OK;
        _exit(((status == KVCL_ERR_ACCESS) && (view.addr == NULL)) ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &how, 0), pid);
    ck_assert(WIFEXITED(how) && (WEXITSTATUS(how) == 0));
    far_end(&far);
}
END_TEST

START_TEST(too_much_memory_is_an_error)
{
    kvcl_segment_t seg;

    ck_assert_uint_gt(kvcl_segment_room(), 0);
    ck_assert_int_eq(kvcl_segment_create(&seg, (size_t)1 << 46, 0), KVCL_ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "free"));
    ck_assert_int_eq(kvcl_segment_create(&seg, 0, 0), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_segment_create(&seg, SIZE_MAX, 0), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_null(seg.addr);
    ck_assert_int_eq(kvcl_segment_create(&seg, SIZE, KVCL_SEGMENT_PRIVATE), KVCL_OK);
    ck_assert_uint_eq(kvcl_segment_pack(&seg, &seg, sizeof(seg)), 0);
    kvcl_segment_destroy(&seg);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("segment");
    TCase   *tcase = tcase_create("segment");
    SRunner *runner;
    int     failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_segment_is_read_and_written);
    tcase_add_test(tcase, the_kernel_keeps_a_read_only_segment);
    tcase_add_test(tcase, an_owner_cannot_shrink_it);
    tcase_add_test(tcase, a_file_that_can_shrink_is_refused);
    tcase_add_test(tcase, a_truncated_segment_is_never_mapped);
    tcase_add_test(tcase, only_a_segment_is_opened);
    tcase_add_loop_test(tcase, lies_are_refused, 0, 2);
    tcase_add_test(tcase, another_user_is_refused);
    tcase_add_test(tcase, too_much_memory_is_an_error);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? 0 : 1;
}
