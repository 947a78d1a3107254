/*
 * Reads of another process's memory where it lies, without a registration (near/near_ops.h): the bytes, absent pages,
 * addresses that do not exist, a destination that is not writable.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "xport_far.h"

static kvcl_status_t near_now(side_t *side, const glue_process_t *process, uint64_t addr, void *buf, size_t len)
{
    waited_t      waited   = waited_new();
    uint64_t      deadline = kvcl_deadline_after(50 * KVCL_NS_PER_SEC);
    kvcl_status_t status   = side->ops->near->get(side->ep, process, addr, buf, len, &waited.send);

    while ((status == KVCL_INPROGRESS) && !waited.done) {
        (void)side->ops->progress(side->xport);
        ck_assert(!kvcl_deadline_passed(deadline));
    }
    return (status == KVCL_INPROGRESS) ? waited.status : status;
}

/* Of any of its memory: an address that it does not have is an error of the one read, another process ends all. */
START_TEST(a_sleeping_process_is_read)
{
    glue_process_t process = {0};
    char           *buf    = malloc(FAR_SIZE);
    side_t         side;
    far_t          far;

    far_start(&far, PAIR_SHM);
    far_connect(&side, &far, PAIR_SHM);
    memcpy(&process, far.info.self, sizeof(process));
    if (!may_read(&far)) {
        printf("SKIP: this process may not read another one of its user (Yama, or a container)\n");
        ck_assert_int_lt(near_now(&side, &process, far.info.mem, buf, FAR_SIZE), 0);
    } else {
        ck_assert(side.ops->near->reaches(side.ep));
        ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf, FAR_SIZE), KVCL_OK);
        ck_assert(filled(buf, FAR_SIZE, 11));
        ck_assert_int_eq(near_now(&side, &process, 4096, buf, FAR_SIZE), KVCL_ERR_ACCESS);
        ck_assert(side.ops->near->reaches(side.ep));
        process.cookie[1] ^= 1;
        memset(buf, 0, FAR_SIZE);
        ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf, 16), KVCL_ERR_RANK_FAILED);
    }
    ck_assert(!side.ops->near->reaches(side.ep));
    process.cookie[1] ^= 1;
    ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf, 16), KVCL_ERR_UNSUPPORTED);
    close(far.to);
    (void)waitpid(far.pid, NULL, 0);
    side_close(&side);
    free(buf);
}
END_TEST

/* Only present pages are copied, whichever way the kernel says which are. */
START_TEST(absent_pages_are_not_read)
{
    const size_t   page    = (size_t)sysconf(_SC_PAGESIZE);
    glue_process_t process = {0};
    char           *buf    = malloc(FAR_SIZE);
    uint64_t       hole;
    side_t         side;
    glue_ep_t      *ep;
    far_t          far;
    int            scans;

    far_start(&far, PAIR_SHM);
    far_connect(&side, &far, PAIR_SHM);
    ep   = kvcl_container_of(side.ep, glue_ep_t, super);
    hole = far.info.holed + FAR_SIZE / 2;
    memcpy(&process, far.info.self, sizeof(process));
    if (!may_read(&far)) {
        printf("SKIP: this process may not read another one of its user (Yama, or a container)\n");
    }
    for (scans = 1; (scans >= 0) && may_read(&far); --scans) {
        ck_assert_int_eq(near_now(&side, &process, far.info.holed, buf, page), KVCL_OK);
        ck_assert_ptr_nonnull(ep->look);
        if (ep->look->fd < 0) {
            printf("SKIP: this process has no page map of another one\n");
            break;
        }
        printf("%s\n", ep->look->scans ? "by PAGEMAP_SCAN" : "by the pages' entries");
        ck_assert(scans || !ep->look->scans);
        ck_assert_int_eq(near_now(&side, &process, far.info.holed, buf, FAR_SIZE), KVCL_ERR_BUSY);
        ck_assert_int_eq(near_now(&side, &process, hole, buf, page), KVCL_ERR_BUSY);
        ck_assert_int_eq(near_now(&side, &process, hole + page - 1, buf, page), KVCL_ERR_BUSY);
        ck_assert_int_eq(near_now(&side, &process, hole + page, buf, FAR_SIZE / 2 - page), KVCL_OK);
        ck_assert(filled(buf, FAR_SIZE / 2 - page, 11));
        ck_assert_int_eq(near_now(&side, &process, far.info.holed, buf, FAR_SIZE / 2), KVCL_OK);
        ck_assert_int_eq(near_now(&side, &process, far.info.holed, buf, FAR_SIZE / 2), KVCL_OK); /* seen before */
        ck_assert_int_eq(near_now(&side, &process, far.info.holed, buf, FAR_SIZE / 2 + 1), KVCL_ERR_BUSY);
        ck_assert_int_lt(near_now(&side, &process, UINT64_MAX - page, buf, page), 0);
        ck_assert_int_lt(near_now(&side, &process, UINT64_MAX - page, buf, 4 * page), 0);
        ck_assert(side.ops->near->reaches(side.ep));
        ep->look->scans = false;
    }
    close(far.to);
    (void)waitpid(far.pid, NULL, 0);
    side_close(&side);
    free(buf);
}
END_TEST

START_TEST(a_destination_that_is_not_writable_is_told_apart)
{
    glue_process_t process = {0};
    char           *buf    = mmap(NULL, FAR_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    side_t         side;
    far_t          far;

    ck_assert_ptr_ne(buf, MAP_FAILED);
    far_start(&far, PAIR_SHM);
    far_connect(&side, &far, PAIR_SHM);
    memcpy(&process, far.info.self, sizeof(process));
    if (!may_read(&far)) {
        printf("SKIP: this process may not read another one of its user (Yama, or a container)\n");
    } else {
        ck_assert_int_eq(mprotect(buf + FAR_SIZE / 2, FAR_SIZE / 2, PROT_READ), 0);
        ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf, FAR_SIZE), KVCL_ERR_INVALID_PARAM);
        ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf + FAR_SIZE / 2, FAR_SIZE / 2),
                         KVCL_ERR_INVALID_PARAM);
        ck_assert_int_eq(near_now(&side, &process, far.info.mem, buf, FAR_SIZE / 2), KVCL_OK);
        ck_assert(filled(buf, FAR_SIZE / 2, 11));
    }
    close(far.to);
    (void)waitpid(far.pid, NULL, 0);
    side_close(&side);
    munmap(buf, FAR_SIZE);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("near");
    TCase   *tcase  = tcase_create("near");
    SRunner *runner = srunner_create(suite);
    int     failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_sleeping_process_is_read);
    tcase_add_test(tcase, absent_pages_are_not_read);
    tcase_add_test(tcase, a_destination_that_is_not_writable_is_told_apart);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
