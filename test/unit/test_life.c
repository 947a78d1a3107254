/*
 * Early signs that a process ends (life/life.h).
 */
#include "life/life.h"

#include "test_base.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60000 };

static kvcl_life_t *mine;

static void setup(void)
{
    ck_assert_int_eq(kvcl_life_open(4, &mine), KVCL_OK);
}

static void teardown(void)
{
    kvcl_life_close(mine);
}

/* What a process tells of its page. */
typedef struct page {
    pid_t    pid;
    int      fd; /* opened here */
    uint32_t word;
    int      order; /* a byte to it: it lets go of the page, and answers with another */
    int      answer;
} page_t;

static page_t start_process(void)
{
    page_t           page = {.fd = -1};
    kvcl_life_page_t its;
    int              to[2], from[2];
    char             path[64];

    ck_assert_int_eq(pipe(to), 0);
    ck_assert_int_eq(pipe(from), 0);
    page.pid = fork();
    ck_assert_int_ge(page.pid, 0);
    if (page.pid == 0) {
        char byte;

        if ((kvcl_life_page_open(&its) != KVCL_OK) || (write(from[1], &its, sizeof(its)) != (ssize_t)sizeof(its)) ||
            (read(to[0], &byte, 1) != 1)) {
            _exit(1);
        }
        kvcl_life_page_close(&its);
        (void)!write(from[1], &byte, 1);
        for (;;) {
            pause();
        }
    }
    ck_assert_int_eq(read(from[0], &its, sizeof(its)), sizeof(its));
    close(to[0]);
    close(from[1]);
    snprintf(path, sizeof(path), "/proc/%ld/fd/%d", (long)page.pid, its.fd);
    page.fd     = open(path, O_RDONLY | O_CLOEXEC);
    page.word   = its.word;
    page.order  = to[1];
    page.answer = from[0];
    ck_assert_int_ge(page.fd, 0);
    return page;
}

static void end_process(const page_t *page)
{
    kill(page->pid, SIGKILL);
    ck_assert_int_eq(waitpid(page->pid, NULL, 0), page->pid);
    close(page->fd);
    close(page->order);
    close(page->answer);
}

static uint32_t wait_for_one(kvcl_life_t *life)
{
    struct pollfd fd = {.fd = kvcl_life_fd(life), .events = POLLIN};

    ck_assert_int_eq(poll(&fd, 1, LONG_MS), 1);
    return kvcl_life_take(life);
}

START_TEST(a_killed_process_is_told_once)
{
    page_t page = start_process();

    ck_assert(kvcl_life_watch(mine, 3, page.fd, page.word));
    ck_assert_uint_eq(kvcl_life_take(mine), KVCL_LIFE_NONE);
    ck_assert(!kvcl_life_is_exiting(page.pid));
    kill(page.pid, SIGKILL);
    ck_assert_uint_eq(wait_for_one(mine), 3);
    ck_assert_uint_eq(kvcl_life_take(mine), KVCL_LIFE_NONE);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = kvcl_life_fd(mine), .events = POLLIN}, 1, 0), 0);
    end_process(&page);
}
END_TEST

/* The kernel wakes one of them. */
START_TEST(all_watchers_are_told)
{
    page_t      page = start_process();
    kvcl_life_t *others[8];
    size_t      i;

    for (i = 0; i < 8; ++i) {
        ck_assert_int_eq(kvcl_life_open(1, &others[i]), KVCL_OK);
        ck_assert(kvcl_life_watch(others[i], 0, page.fd, page.word));
    }
    kill(page.pid, SIGKILL);
    for (i = 0; i < 8; ++i) {
        ck_assert_uint_eq(wait_for_one(others[i]), 0);
        kvcl_life_close(others[i]);
    }
    end_process(&page);
}
END_TEST

typedef struct sleeper {
    _Atomic pid_t thread;
    uint32_t      *word, value;
} sleeper_t;

static void *sleep_at(void *arg)
{
    sleeper_t *sleeper = arg;

    atomic_store(&sleeper->thread, (pid_t)syscall(SYS_gettid));
    (void)syscall(SYS_futex, sleeper->word, FUTEX_WAIT, sleeper->value, NULL, NULL, 0);
    return NULL;
}

static bool is_asleep(pid_t thread)
{
    char path[64], line[256] = "", *end;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", (long)thread);
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    fclose(file);
    end = strrchr(line, ')');
    return (end != NULL) && (end[2] == 'S');
}

/* The kernel wakes another sleeper, which wakes nobody, as one that is stopped at that moment. */
START_TEST(a_mark_that_nobody_passes_on)
{
    const size_t size    = (size_t)sysconf(_SC_PAGESIZE);
    page_t       page    = start_process();
    char         *map    = mmap(NULL, size, PROT_READ, MAP_SHARED, page.fd, 0);
    sleeper_t    sleeper = {.word = (uint32_t *)(void *)(map + page.word)};
    pthread_t    thread;

    ck_assert_ptr_ne(map, MAP_FAILED);
    sleeper.value = *sleeper.word;
    ck_assert_int_eq(pthread_create(&thread, NULL, sleep_at, &sleeper), 0);
    while ((atomic_load(&sleeper.thread) == 0) || !is_asleep(atomic_load(&sleeper.thread))) {
        usleep(1000);
    }
    ck_assert(kvcl_life_watch(mine, 2, page.fd, page.word));
    kill(page.pid, SIGKILL);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    kvcl_life_look(mine);
    ck_assert_uint_eq(wait_for_one(mine), 2);
    munmap(map, size);
    end_process(&page);
}
END_TEST

START_TEST(one_that_was_killed_before_is_told)
{
    page_t page = start_process();

    kill(page.pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)page.pid, NULL, WEXITED | WNOWAIT), 0);
    ck_assert(kvcl_life_watch(mine, 1, page.fd, page.word));
    ck_assert_uint_eq(wait_for_one(mine), 1);
    end_process(&page);
}
END_TEST

/* Of two processes one lets go, one is forgotten, a third one is killed: only that is told. */
START_TEST(a_thread_that_lets_go_is_no_sign)
{
    page_t left = start_process(), forgotten = start_process(), killed = start_process();
    char   byte = 0;

    ck_assert(kvcl_life_watch(mine, 0, left.fd, left.word));
    ck_assert(kvcl_life_watch(mine, 1, forgotten.fd, forgotten.word));
    ck_assert(kvcl_life_watch(mine, 2, killed.fd, killed.word));
    ck_assert_int_eq(write(left.order, &byte, 1), 1);
    ck_assert_int_eq(read(left.answer, &byte, 1), 1);
    kvcl_life_forget(mine, 1);
    end_process(&left);
    end_process(&forgotten);
    kill(killed.pid, SIGKILL);
    ck_assert_uint_eq(wait_for_one(mine), 2);
    ck_assert_uint_eq(kvcl_life_take(mine), KVCL_LIFE_NONE);
    end_process(&killed);
}
END_TEST

START_TEST(pages_that_are_none)
{
    const long size = sysconf(_SC_PAGESIZE);
    page_t     page = start_process();
    int        fds[2], memory;

    ck_assert(!kvcl_life_watch(mine, 0, page.fd, (uint32_t)size));
    ck_assert(!kvcl_life_watch(mine, 0, page.fd, UINT32_MAX));
    ck_assert(!kvcl_life_watch(mine, 0, page.fd, page.word + 1));
    ck_assert(!kvcl_life_watch(mine, 0, -1, 0));
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert(!kvcl_life_watch(mine, 0, fds[0], 0));
    memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(memory, size), 0);
    ck_assert(!kvcl_life_watch(mine, 0, memory, 0)); /* it could shrink */
    ck_assert_int_eq(ftruncate(memory, size - 1), 0);
    ck_assert_int_eq(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert(!kvcl_life_watch(mine, 0, memory, 0)); /* too short */
    close(memory);
    close(fds[0]);
    close(fds[1]);
    end_process(&page);
}
END_TEST

/* Nothing of it stays mapped. */
START_TEST(a_huge_page_is_none)
{
    const int memory = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    char      line[512];
    FILE      *maps;

    if ((memory < 0) || (ftruncate(memory, 1 << 30) != 0)) {
        return; /* the kernel has none */
    }
    ck_assert_int_eq(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert(!kvcl_life_watch(mine, 0, memory, 0));
    kvcl_life_forget(mine, 0);
    maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        ck_assert_ptr_null(strstr(line, "memfd:huge"));
    }
    fclose(maps);
    close(memory);
}
END_TEST

/* The word of a page that never stands still is looked at once. */
START_TEST(a_word_that_changes_again_and_again)
{
    const int    memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    page_t       page   = start_process();
    uint32_t     *word;
    unsigned     i;

    ck_assert_int_eq(ftruncate(memory, sysconf(_SC_PAGESIZE)), 0);
    ck_assert_int_eq(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    word = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    ck_assert_ptr_ne(word, MAP_FAILED);
    ck_assert(kvcl_life_watch(mine, 0, memory, 0));
    for (i = 1; i < 1000; ++i) {
        __atomic_store_n(word, i, __ATOMIC_SEQ_CST);
    }
    ck_assert(kvcl_life_watch(mine, 1, page.fd, page.word)); /* the thread looks at all of them */
    kill(page.pid, SIGKILL);
    ck_assert_uint_eq(wait_for_one(mine), 1);
    ck_assert_uint_eq(kvcl_life_take(mine), KVCL_LIFE_NONE);
    munmap(word, (size_t)sysconf(_SC_PAGESIZE));
    close(memory);
    end_process(&page);
}
END_TEST

START_TEST(a_page_cannot_be_written_by_others)
{
    page_t page = start_process();

    ck_assert_ptr_eq(mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, page.fd, 0),
                     MAP_FAILED);
    ck_assert_int_ne(ftruncate(page.fd, 0), 0);
    end_process(&page);
}
END_TEST

static bool exists(const char *folder, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int make_file(const char *folder, const char *name)
{
    char path[128];
    int  fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sysconf(_SC_PAGESIZE)), 0);
    return fd;
}

static void make_old(const char *folder, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (const struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0), 0);
}

/* A process holds one file open, and has only mapped another one. */
static pid_t hold_files(const char *folder)
{
    int   told[2];
    pid_t pid;
    char  byte;

    ck_assert_int_eq(pipe(told), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int mapped = make_file(folder, "ucx_shm_posix_2");

        (void)make_file(folder, "ucx_shm_posix_1");
        if (mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0) == MAP_FAILED) {
            _exit(1);
        }
        close(mapped);
        (void)!write(told[1], "x", 1);
        for (;;) {
            pause();
        }
    }
    ck_assert_int_eq(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    return pid;
}

START_TEST(what_a_killed_process_leaves)
{
    char  folder[] = "/dev/shm/test-life-XXXXXX", path[128];
    pid_t pid;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    pid = hold_files(folder);
    close(make_file(folder, "another"));
    close(make_file(folder, "ucx_shm_posix_new"));
    make_old(folder, "another");
    make_old(folder, "ucx_shm_posix_1");
    make_old(folder, "ucx_shm_posix_2");
    snprintf(path, sizeof(path), "%s/ucx_shm_posix_link", folder);
    ck_assert_int_eq(symlink("another", path), 0);
    ck_assert_uint_eq(kvcl_life_clean(folder), 0);
    ck_assert(exists(folder, "ucx_shm_posix_1") && exists(folder, "ucx_shm_posix_2"));
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_uint_eq(kvcl_life_clean(folder), 2);
    ck_assert(!exists(folder, "ucx_shm_posix_1") && !exists(folder, "ucx_shm_posix_2"));
    ck_assert(exists(folder, "another") && exists(folder, "ucx_shm_posix_link"));
    ck_assert(exists(folder, "ucx_shm_posix_new")); /* its maker may be about to open it */
    make_old(folder, "ucx_shm_posix_new");
    ck_assert_uint_eq(kvcl_life_clean(folder), 1);
    ck_assert_uint_eq(kvcl_life_clean("/nonexistent"), 0);
    unlink(path);
    snprintf(path, sizeof(path), "%s/another", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(who_is_exiting)
{
    page_t page = start_process();
    int    status;

    ck_assert(!kvcl_life_is_exiting(getpid()));
    ck_assert(!kvcl_life_is_exiting(page.pid));
    kill(page.pid, SIGSTOP);
    ck_assert_int_eq(waitpid(page.pid, &status, WUNTRACED), page.pid);
    ck_assert(!kvcl_life_is_exiting(page.pid));
    kill(page.pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)page.pid, NULL, WEXITED | WNOWAIT), 0);
    ck_assert(kvcl_life_is_exiting(page.pid));
    end_process(&page);
    ck_assert(!kvcl_life_is_exiting(page.pid)); /* there is none of that number */
    ck_assert(!kvcl_life_is_exiting(0));
    ck_assert(!kvcl_life_is_exiting(-1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("life");
    TCase *tcase = tcase_create("life");

    if (kvcl_life_open(1, &mine) == KVCL_ERR_UNSUPPORTED) {
        printf("SKIP: this kernel has no futex_waitv\n");
        return 77;
    }
    kvcl_life_close(mine);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * LONG_MS / 1000);
    tcase_add_test(tcase, a_killed_process_is_told_once);
    tcase_add_test(tcase, all_watchers_are_told);
    tcase_add_test(tcase, a_mark_that_nobody_passes_on);
    tcase_add_test(tcase, one_that_was_killed_before_is_told);
    tcase_add_test(tcase, a_thread_that_lets_go_is_no_sign);
    tcase_add_test(tcase, pages_that_are_none);
    tcase_add_test(tcase, a_huge_page_is_none);
    tcase_add_test(tcase, a_word_that_changes_again_and_again);
    tcase_add_test(tcase, a_page_cannot_be_written_by_others);
    tcase_add_test(tcase, what_a_killed_process_leaves);
    tcase_add_test(tcase, who_is_exiting);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
