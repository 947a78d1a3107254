/*
 * The limit of locked memory (ucx_glue/glue_locked.c), compared with what the kernel does in the same process: with its
 * capabilities, without the capability IPC_LOCK, and with all capabilities in a user namespace of its own, as in a
 * rootless container.
 */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "ucx_glue/glue.h"

#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIMIT = 64 << 10, MORE = 1 << 20 };

static void limit_to(size_t bytes)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* The system call: the sanitizers' own mlock() does nothing. */
static bool kernel_locks(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool locked;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    locked = (syscall(SYS_mlock, memory, bytes) == 0);
    ck_assert_int_eq(munmap(memory, bytes), 0);
    return locked;
}

/* @return whether more than the limit may be locked. */
static bool agrees_with_the_kernel(void)
{
    bool more = kernel_locks(MORE);
    int  i;

    for (i = 0; i < 2; ++i) {
        ck_assert_int_eq(kvcl_glue_lock_bytes(MORE), more ? KVCL_OK : KVCL_ERR_NO_MEMORY);
        ck_assert(more || (strstr(kvcl_last_error(), "at most 64 KiB may be locked here") != NULL));
        ck_assert_int_eq(kvcl_glue_lock_bytes(LIMIT / 2), KVCL_OK);
        kvcl_glue_unlock_bytes(LIMIT / 2 + (more ? MORE : 0));
    }
    return more;
}

START_TEST(this_process)
{
    limit_to(LIMIT);
    printf("this process may %slock more than the limit\n", agrees_with_the_kernel() ? "" : "not ");
}
END_TEST

START_TEST(without_the_capability)
{
    struct __user_cap_header_struct header  = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct   caps[2] = {{0, 0, 0}};

    limit_to(LIMIT);
    (void)agrees_with_the_kernel(); /* with it, perhaps: the same limit, and another answer */
    ck_assert_int_eq(syscall(SYS_capget, &header, caps), 0);
    caps[0].effective &= ~(1u << CAP_IPC_LOCK);
    ck_assert_int_eq(syscall(SYS_capset, &header, caps), 0);
    ck_assert(!agrees_with_the_kernel());
}
END_TEST

START_TEST(with_the_capability_in_another_namespace)
{
    struct __user_cap_header_struct header  = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct   caps[2] = {{0, 0, 0}};

    limit_to(LIMIT);
    if (unshare(CLONE_NEWUSER) != 0) {
        printf("SKIP: this process may not make a user namespace (%m)\n");
        return;
    }
    ck_assert_int_eq(syscall(SYS_capget, &header, caps), 0);
    ck_assert((caps[0].effective & (1u << CAP_IPC_LOCK)) != 0);
    ck_assert(!agrees_with_the_kernel());
}
END_TEST

START_TEST(a_limit_that_changes)
{
    struct rlimit limit;

    limit_to(LIMIT);
    (void)agrees_with_the_kernel();
    ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_max >= 2 * (rlim_t)MORE) {
        limit_to(2 * (size_t)MORE);
        ck_assert_int_eq(kvcl_glue_lock_bytes(MORE), KVCL_OK);
        kvcl_glue_unlock_bytes(MORE);
        limit_to(LIMIT);
    }
    (void)agrees_with_the_kernel();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("locked");
    TCase *tc    = tcase_create("locked");

    tcase_add_test(tc, this_process);
    tcase_add_test(tc, without_the_capability);
    tcase_add_test(tc, with_the_capability_in_another_namespace);
    tcase_add_test(tc, a_limit_that_changes);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
