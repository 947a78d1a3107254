/* Whether a port of RDMA reaches a GPU's memory, over a tree like that of a machine. */
#include "config.h"
#include "test_base.h"
#include "topo/gpudirect.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "test_gpudirect.XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512], *at;
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; ++at) {
        *at = '\0';
        (void)mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fprintf(file, "%s\n", text), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void set_up(void)
{
    strcpy(root, "test_gpudirect.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void tear_down(void)
{
    (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void is(const char *ucx, bool can, const char *text)
{
    char buf[256];

    ck_assert_int_eq(kvcl_gpudirect(root, ucx, buf, sizeof(buf)), can);
    ck_assert_msg(strstr(buf, text) == buf, "\"%s\", not \"%s\"", buf, text);
}

#define PROPRIETARY "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
#define OPEN "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build"

START_TEST(no_driver)
{
    put("sys/module/nvidia_peermem/version", "550");
    is("1.18.0", false, "no: no NVIDIA driver");
}
END_TEST

START_TEST(old_ucx)
{
    put("dev/nvidiactl", "");
    put("sys/module/nvidia_peermem/version", "550");
    is("1.13.1", false, "no: UCX 1.13.1 ");
    is("1.15.0", false, "no: UCX 1.15.0 ");
    is("", false, "no: UCX ");
    is("1.16.0", true, "yes (peermem)");
    is("2.0.0", true, "yes (peermem)");
}
END_TEST

START_TEST(peermem)
{
    put("dev/nvidiactl", "");
    put("sys/kernel/mm/memory_peers/nv_mem/version", "1");
    is("1.18.0", true, "yes (peermem)");
}
END_TEST

START_TEST(dmabuf)
{
    put("dev/nvidiactl", "");
    is("1.18.0", false, "no: nvidia_peermem is not loaded, and only");
    put("proc/driver/nvidia/version", PROPRIETARY);
    put("proc/sys/kernel/osrelease", "6.1.0-56-amd64");
    is("1.18.0", false, "no: nvidia_peermem is not loaded, and only");
    put("proc/driver/nvidia/version", OPEN);
    is("1.18.0", true, "yes (dmabuf");
    put("proc/sys/kernel/osrelease", "5.4.0-1");
    is("1.18.0", false, "no: nvidia_peermem is not loaded, and dmabuf takes Linux 5.12");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("gpudirect");
    Suite *suite = suite_create("gpudirect");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, no_driver);
    tcase_add_test(tcase, old_ucx);
    tcase_add_test(tcase, peermem);
    tcase_add_test(tcase, dmabuf);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
