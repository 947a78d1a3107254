/*
 * Topology: queries on machines described by text, mistakes in such a text, hwloc's synthetic machines, and the machine
 * of this process.
 */
#include "config.h"

#include "topo/topo.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char two_sockets[] = "# a server\n"
                                  "node 0 package 0 cpus 0-3 mem 64G\n"
                                  "node 1 package 0 cpus 4-7\n"
                                  "node 2 package 1 cpus 8-11 mem 1.5G\n"
                                  "\n"
                                  "nic eth0 node -1\n"
                                  "nic mlx5_0 node 0 0000:17:00.0\n"
                                  "nic mlx5_1 node 2\n"
                                  "gpu cuda0 node 1   # near\n"
                                  "here 5";

static kvcl_topo_t *topo;

static void open_text(const char *text)
{
    ck_assert_msg(kvcl_topo_open_text(text, &topo) == KVCL_OK, "%s", kvcl_last_error());
}

static void teardown(void)
{
    kvcl_topo_close(topo);
    topo = NULL;
}

START_TEST(a_text_is_counted_and_located)
{
    kvcl_topo_place_t here;

    open_text(two_sockets);
    ck_assert_uint_eq(kvcl_topo_cores(topo), 12);
    ck_assert_uint_eq(topo->nnodes, 3);
    ck_assert_uint_eq(kvcl_topo_packages(topo), 2);
    ck_assert_uint_eq(topo->ndevices, 4);
    here = kvcl_topo_here(topo, 9);
    ck_assert_uint_eq(here.host, 9);
    ck_assert_int_eq(here.package, 0);
    ck_assert_int_eq(here.numa, 1);
    ck_assert_int_eq(here.core, 5);
    ck_assert_int_eq(kvcl_topo_address_numa(topo, &here), 1);
}
END_TEST

START_TEST(distances_go_from_core_to_remote)
{
    kvcl_topo_place_t here, other;

    open_text(two_sockets);
    here = other = kvcl_topo_here(topo, 1);
    ck_assert_int_eq(kvcl_topo_distance(&here, &other), KVCL_TOPO_DISTANCE_CORE);
    other.core = 4;
    ck_assert_int_eq(kvcl_topo_distance(&here, &other), KVCL_TOPO_DISTANCE_NUMA);
    other = kvcl_topo_node_place(topo, 0, 1);
    ck_assert_int_eq(kvcl_topo_distance(&here, &other), KVCL_TOPO_DISTANCE_PACKAGE);
    other = kvcl_topo_node_place(topo, 2, 1);
    ck_assert_int_eq(kvcl_topo_distance(&here, &other), KVCL_TOPO_DISTANCE_HOST);
    other = kvcl_topo_node_place(topo, 7, 1); /* no such node: unknown is never near */
    ck_assert_int_eq(kvcl_topo_distance(&other, &other), KVCL_TOPO_DISTANCE_HOST);
    other      = here;
    other.host = 2;
    ck_assert_int_eq(kvcl_topo_distance(&here, &other), KVCL_TOPO_DISTANCE_REMOTE);
    ck_assert_str_eq(kvcl_topo_distance_name(KVCL_TOPO_DISTANCE_NUMA), "numa");
}
END_TEST

START_TEST(the_nearest_device_is_found)
{
    kvcl_topo_place_t         place;
    const kvcl_topo_device_t *gpu;

    open_text(two_sockets);
    place = kvcl_topo_here(topo, 1);
    ck_assert_str_eq(kvcl_topo_nearest(topo, KVCL_TOPO_NIC, &place)->name, "mlx5_0"); /* same package */
    gpu = kvcl_topo_nearest(topo, KVCL_TOPO_GPU, &place);
    ck_assert_str_eq(gpu->name, "cuda0");
    place = kvcl_topo_node_place(topo, 2, 1);
    ck_assert_str_eq(kvcl_topo_nearest(topo, KVCL_TOPO_NIC, &place)->name, "mlx5_1");
    place = kvcl_topo_device_place(gpu, 1);
    ck_assert_str_eq(kvcl_topo_nearest(topo, KVCL_TOPO_NIC, &place)->name, "mlx5_0");
    teardown();
    open_text("node 0 package 0 cpus 0\nnic lan node -1");
    ck_assert_ptr_null(kvcl_topo_nearest(topo, KVCL_TOPO_GPU, &place));
    ck_assert_str_eq(kvcl_topo_nearest(topo, KVCL_TOPO_NIC, &place)->name, "lan");
}
END_TEST

START_TEST(the_tree_is_printed)
{
    char   text[1024], cut[40];
    size_t len;

    open_text(two_sockets);
    len = kvcl_topo_describe(topo, text, sizeof(text));
    ck_assert_str_eq(text, "2 packages, 3 NUMA nodes, 12 cores, 12 hardware threads (from text)\n"
                           "package 0\n"
                           "  NUMA node 0: cpus 0-3, 64G\n"
                           "    nic mlx5_0 (0000:17:00.0)\n"
                           "  NUMA node 1: cpus 4-7, memory unknown\n"
                           "    gpu cuda0\n"
                           "package 1\n"
                           "  NUMA node 2: cpus 8-11, 1.50G\n"
                           "    nic mlx5_1\n"
                           "NUMA node unknown\n"
                           "    nic eth0\n");
    ck_assert_uint_eq(len, strlen(text));
    ck_assert_uint_eq(kvcl_topo_describe(topo, NULL, 0), len);
    ck_assert_uint_eq(kvcl_topo_describe(topo, cut, sizeof(cut)), len);
    ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);

    kvcl_topo_close(topo);
    open_text("node 0 package 0 cpus 0");
    (void)kvcl_topo_describe(topo, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "1 package, 1 NUMA node, 1 core, 1 hardware thread (from text)\n"));
}
END_TEST

START_TEST(what_a_process_is_bound_to_has_nodes)
{
    kvcl_nodeset_t nodes;

    open_text(two_sockets);
    topo->ops->bound_nodes(topo, &nodes);
    ck_assert_uint_eq(kvcl_nodeset_count(&nodes), 3);
    teardown();
    open_text("node 0 package 0 cpus 0-3\nnode 1 package 0 cpus 4-7\nnode 5 package 1 cpus 8\nbound 6-8");
    topo->ops->bound_nodes(topo, &nodes);
    ck_assert_uint_eq(kvcl_nodeset_count(&nodes), 2);
    ck_assert(kvcl_nodeset_has(&nodes, 1) && kvcl_nodeset_has(&nodes, 5));
}
END_TEST

static const struct {
    const char *text;
    const char *says;
} mistakes[] = {
    {"", "no node"},
    {"nod 0", "line 1: a line begins with"},
    {"\n\nnode 0 package 0", "line 3: a node is"},
    {"node x package 0 cpus 0", "numbers"},
    {"node 0 package -1 cpus 0", "numbers"},
    {"node 0 package 0 cpus 3-1", "cpus is a number"},
    {"node 0 package 0 cpus 0-", "cpus is a number"},
    {"node 0 package 0 cpus 0-9999999", "more cpus"},
    {"node 0 package 0 cpus 99999999999999999999", "cpus is a number"},
    {"node 0 package 0 cpus 0 mem much", "mem is a size"},
    {"node 0 package 0 cpus 0\nnode 0 package 0 cpus 1", "line 2: a node is named twice"},
    {"node 0 package 0 cpus 0\nnode 1 package 0 cpus 0", "line 2: a cpu is named twice"},
    {"nic eth0 node 0\nnode 0 package 0 cpus 0", "line 1: the device's node must stand above it"},
    {"node 0 package 0 cpus 0\ngpu g", "line 2: a device is"},
    {"node 0 package 0 cpus 0\nhere there", "line 2: here"},
    {"node 0 package 0 cpus 0\nbound 3-1", "line 2: bound"},
    {"node 0 package 0 cpus 0\nbound", "line 2: bound"},
    {"node 0 package 0 cpus 0 mem 1G and more words", "too many words"},
};

START_TEST(a_mistake_in_the_text_names_its_line)
{
    ck_assert_int_eq(kvcl_topo_open_text(mistakes[_i].text, &topo), KVCL_ERR_INVALID_PARAM);
    ck_assert_ptr_null(topo);
    ck_assert_msg(strstr(kvcl_last_error(), mistakes[_i].says) != NULL, "it says: %s", kvcl_last_error());
}
END_TEST

START_TEST(hwloc_gives_the_same_model)
{
    kvcl_topo_place_t here;
    char              text[4096];

    ck_assert_msg(kvcl_topo_open_synthetic("pack:2 [numa] core:3 pu:2", &topo) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_uint_eq(kvcl_topo_packages(topo), 2);
    ck_assert_uint_eq(topo->nnodes, 2);
    ck_assert_uint_eq(kvcl_topo_cores(topo), 6);
    ck_assert_uint_eq(topo->ncpus, 12);
    ck_assert_int_eq(topo->cpus[0].core, topo->cpus[1].core);
    ck_assert_int_ne(topo->cpus[1].core, topo->cpus[2].core);
    ck_assert_int_eq(topo->cpus[11].numa, 1);
    ck_assert_int_eq(topo->cpus[11].package, 1);
    ck_assert_int_eq(topo->nodes[1].package, 1);
    here = kvcl_topo_here(topo, 0);
    ck_assert_int_eq(here.core, -1);
    kvcl_topo_describe(topo, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "package 1\n  NUMA node 1: cpus 6-11, "));
}
END_TEST

START_TEST(nodes_inside_and_above_packages_are_told_apart)
{
    ck_assert_int_eq(kvcl_topo_open_synthetic("pack:2 numa:2 core:2 pu:1", &topo), KVCL_OK);
    ck_assert_uint_eq(topo->nnodes, 4);
    ck_assert_int_eq(topo->nodes[2].package, 1);
    teardown();
    ck_assert_int_eq(kvcl_topo_open_synthetic("numa:1 pack:2 core:2 pu:1", &topo), KVCL_OK);
    ck_assert_int_eq(topo->nodes[0].package, -1); /* spans both */
    ck_assert_int_eq(topo->cpus[3].package, 1);
    teardown();
    ck_assert_int_eq(kvcl_topo_open_synthetic("no topology", &topo), KVCL_ERR_INVALID_PARAM);
}
END_TEST

START_TEST(this_machine_is_read)
{
    size_t            len  = 8 * (size_t)sysconf(_SC_PAGESIZE);
    char             *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kvcl_topo_place_t here;
    kvcl_nodeset_t    nodes;
    char              text[16384];
    int               numa;

    ck_assert_ptr_ne(area, MAP_FAILED);
    ck_assert_msg(kvcl_topo_open_hwloc(&topo) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_uint_ge(kvcl_topo_cores(topo), 1);
    ck_assert_uint_ge(topo->nnodes, 1);
    ck_assert_uint_ge(kvcl_topo_packages(topo), 1);
    here = kvcl_topo_here(topo, 1);
    ck_assert_int_ge(here.core, 0);
    topo->ops->bound_nodes(topo, &nodes);
    ck_assert_msg((here.numa < 0) || kvcl_nodeset_has(&nodes, here.numa), "runs on node %d, bound elsewhere",
                  here.numa);
    memset(area, 1, len);
    numa = kvcl_topo_address_numa(topo, area);
    ck_assert_uint_lt(kvcl_topo_describe(topo, text, sizeof(text)), sizeof(text));
    printf("%sbound to %zu nodes, an address on node %d\n", text, kvcl_nodeset_count(&nodes), numa);
    munmap(area, len);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("topo");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed;

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, a_text_is_counted_and_located);
    tcase_add_test(tcase, distances_go_from_core_to_remote);
    tcase_add_test(tcase, the_nearest_device_is_found);
    tcase_add_test(tcase, the_tree_is_printed);
    tcase_add_test(tcase, what_a_process_is_bound_to_has_nodes);
    tcase_add_loop_test(tcase, a_mistake_in_the_text_names_its_line, 0, (int)(sizeof(mistakes) / sizeof(mistakes[0])));
    tcase_add_test(tcase, hwloc_gives_the_same_model);
    tcase_add_test(tcase, nodes_inside_and_above_packages_are_told_apart);
    tcase_add_test(tcase, this_machine_is_read);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
