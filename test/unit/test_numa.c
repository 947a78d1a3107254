/*
 * NUMA placement: the choice on machines from text and of hwloc, then its execution. A pool's pages have the chosen
 * policy, and the thread that allocated them has its own policy again. Where a container's filter refuses the calls,
 * the memory is allocated all the same and a log line reports it.
 */
#include "config.h"

#include "base/log.h"
#include "mem/mem_numa.h"
#include "mem/region.h"
#include "store/pool/pool.h"
#include <kvcl/kvcl.h>

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POOL = 8 << 20, BLOCK = 64 << 10 };

static const char *const paths[] = {"shm", "tcp", "loop"};
enum { PATHS = 3 };

/* ---- the choice ---- */

#define SERVER                                                                                                         \
    "node 0 package 0 cpus 0-3\nnode 1 package 0 cpus 4-7\n"                                                           \
    "node 2 package 1 cpus 8-11\nnode 3 package 1 cpus 12-15\n"

/* allowed: one bit per node. */
static const struct {
    const char       *text;
    kvcl_numa_mode_t mode;
    unsigned long    allowed;
    const char       *says; /* NULL: nothing is chosen */
    const char       *why;
} choices[] = {
    {SERVER "bound 5-6", KVCL_NUMA_AUTO, 0xf, "on NUMA node 1", "bound to cpus of one node"},
    {SERVER "bound 8", KVCL_NUMA_AUTO, 0xf, "on NUMA node 2", "bound to cpus of one node"},
    {SERVER "", KVCL_NUMA_AUTO, 0xf, "interleaved over NUMA nodes 0-3", "several nodes"},
    {SERVER "bound 8-15", KVCL_NUMA_AUTO, 0xf, "interleaved over NUMA nodes 2-3", "several nodes"},
    {SERVER "", KVCL_NUMA_AUTO, 0xb, "interleaved over NUMA nodes 0-1,3", "several nodes"},
    {SERVER "", KVCL_NUMA_AUTO, 0x1ff, "interleaved over NUMA nodes 0-3", "several nodes"}, /* 4-8 have no cpus */
    {SERVER "", KVCL_NUMA_AUTO, 0x4, "on NUMA node 2", "one node"},
    {SERVER "bound 5-6", KVCL_NUMA_AUTO, 0xd, NULL, "no memory may be had"},
    {SERVER "bound 99", KVCL_NUMA_AUTO, 0xf, NULL, "no memory may be had"},
    {SERVER "bound 5-6\nhere 9", KVCL_NUMA_LOCAL, 0xf, "on NUMA node 1", "bound to cpus of one node"},
    {SERVER "here 9", KVCL_NUMA_LOCAL, 0xf, "on NUMA node 2", "as KVCL_NUMA asks"},
    {SERVER "here 9", KVCL_NUMA_LOCAL, 0x3, "on NUMA node 0", "as KVCL_NUMA asks"},
    {SERVER "bound 0-7", KVCL_NUMA_INTERLEAVE, 0xf, "interleaved over NUMA nodes 0-1", "as KVCL_NUMA asks"},
    {SERVER "bound 5-6", KVCL_NUMA_INTERLEAVE, 0xf, "interleaved over NUMA nodes 0-3", "as KVCL_NUMA asks"},
    {SERVER "bound 5-6", KVCL_NUMA_INTERLEAVE, 0xff, "interleaved over NUMA nodes 0-3", "as KVCL_NUMA asks"},
    {"node 7 package 0 cpus 0-3", KVCL_NUMA_INTERLEAVE, 0x80, "interleaved over NUMA node 7", "as KVCL_NUMA asks"},
};

static kvcl_nodeset_t nodes(unsigned long bits)
{
    kvcl_nodeset_t set = {{bits}};

    return set;
}

static void compare(const kvcl_mempolicy_t *policy, const char *says)
{
    char text[160];

    ck_assert_str_eq(kvcl_mempolicy_text(policy, text, sizeof(text)), says);
}

START_TEST(nodes_are_chosen_by_what_the_process_is_bound_to)
{
    kvcl_nodeset_t   allowed = nodes(choices[_i].allowed);
    kvcl_topo_t      *topo;
    kvcl_mempolicy_t policy;
    const char       *why = "";
    bool             chosen;

    ck_assert_msg(kvcl_topo_open_text(choices[_i].text, &topo) == KVCL_OK, "%s", kvcl_last_error());
    chosen = kvcl_numa_choose(choices[_i].mode, topo, &allowed, &policy, &why);
    kvcl_topo_close(topo);
    ck_assert_msg(chosen == (choices[_i].says != NULL), "row %d: %s", _i, why);
    if (chosen) {
        compare(&policy, choices[_i].says);
    }
    ck_assert_msg(strstr(why, choices[_i].why) != NULL, "row %d says: %s", _i, why);
}
END_TEST

START_TEST(machines_of_hwloc_are_chosen_from_alike)
{
    kvcl_nodeset_t   allowed = nodes(3);
    kvcl_topo_t      *topo;
    kvcl_mempolicy_t policy;
    const char       *why;

    ck_assert_msg(kvcl_topo_open_synthetic("pack:2 [numa] core:3 pu:2", &topo) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert(kvcl_numa_choose(KVCL_NUMA_AUTO, topo, &allowed, &policy, &why));
    compare(&policy, "interleaved over NUMA nodes 0-1");
    kvcl_topo_close(topo);
}
END_TEST

START_TEST(there_may_be_nothing_to_choose)
{
    const kvcl_mempolicy_t none = {KVCL_MEMPOLICY_DEFAULT, {{0}}}, own = {KVCL_MEMPOLICY_INTERLEAVE, {{3}}};
    const kvcl_nodeset_t   one = nodes(4), two = nodes(6);
    const char             *why = "";

    ck_assert(kvcl_numa_applies(KVCL_NUMA_AUTO, &two, &none, &why));
    ck_assert(!kvcl_numa_applies(KVCL_NUMA_AUTO, &one, &none, &why));
    ck_assert_ptr_nonnull(strstr(why, "one NUMA node"));
    ck_assert(!kvcl_numa_applies(KVCL_NUMA_AUTO, &two, &own, &why));
    ck_assert_ptr_nonnull(strstr(why, "policy of its own"));
    ck_assert(!kvcl_numa_applies(KVCL_NUMA_OFF, &two, &none, &why));
    ck_assert_ptr_nonnull(strstr(why, "off"));
    ck_assert(kvcl_numa_applies(KVCL_NUMA_LOCAL, &one, &own, &why));
    ck_assert(kvcl_numa_applies(KVCL_NUMA_INTERLEAVE, &one, &own, &why));
}
END_TEST

START_TEST(sets_of_nodes_hold_numbers_that_nodes_can_have)
{
    kvcl_mempolicy_t policy = {KVCL_MEMPOLICY_INTERLEAVE, {{0}}};
    char             cut[24];
    int              node;

    ck_assert_int_eq(kvcl_nodeset_first(&policy.nodes), -1);
    kvcl_nodeset_add(&policy.nodes, -1);
    kvcl_nodeset_add(&policy.nodes, KVCL_NODES_MAX);
    ck_assert_uint_eq(kvcl_nodeset_count(&policy.nodes), 0);
    ck_assert(!kvcl_nodeset_has(&policy.nodes, -1) && !kvcl_nodeset_has(&policy.nodes, KVCL_NODES_MAX));
    compare(&policy, "interleaved over NUMA nodes ");
    kvcl_nodeset_add(&policy.nodes, KVCL_NODES_MAX - 1);
    kvcl_nodeset_add(&policy.nodes, 64);
    kvcl_nodeset_add(&policy.nodes, 63);
    ck_assert_int_eq(kvcl_nodeset_first(&policy.nodes), 63);
    compare(&policy, "interleaved over NUMA nodes 63-64,1023");
    for (node = 0; node < KVCL_NODES_MAX; node += 2) {
        kvcl_nodeset_add(&policy.nodes, node);
    }
    memset(cut, 'x', sizeof(cut));
    ck_assert_str_eq(kvcl_mempolicy_text(&policy, cut, sizeof(cut) - 1), "interleaved over NUMA "); /* cut */
    ck_assert_int_eq(cut[sizeof(cut) - 1], 'x');
}
END_TEST

/* ---- execution ---- */

typedef struct scene {
    kvcl_context_h ctx;
    kvcl_store_h   store;
    void           *pool; /* its memory */
} scene_t;

static char said[4096];

static void keep(void *arg, kvcl_log_level_t level, const char *text)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    size_t                   len = strlen(said);

    (void)arg;
    if (strstr(text, "memory") != NULL) {
        snprintf(said + len, sizeof(said) - len, "%s: %s\n", names[level], text);
    }
}

/* A store with a pool, on a path, under KVCL_NUMA=mode (NULL: not set). */
static void open_pool(scene_t *scene, const char *path, const char *mode)
{
    kvcl_init_params_t  init   = KVCL_INIT_PARAMS_INIT;
    kvcl_store_params_t params = KVCL_STORE_PARAMS_INIT;
    kvcl_comm_h         world;

    said[0] = '\0';
    ck_assert_int_eq(setenv("KVCL_LOG", "debug", 1), 0);
    ck_assert_int_eq(setenv("KVCL_NET", "lo", 1), 0);
    ck_assert_int_eq((mode != NULL) ? setenv("KVCL_NUMA", mode, 1) : unsetenv("KVCL_NUMA"), 0);
    kvcl_log_set_handler(keep, NULL);
    init.boot          = "self";
    init.path          = path;
    params.dram_bytes  = POOL;
    params.block_bytes = BLOCK;
    params.dir_entries = 1024;
    ck_assert_msg(kvcl_init(&init, &scene->ctx) == KVCL_OK, "%s", kvcl_last_error());
    ck_assert_int_eq(kvcl_comm_world(scene->ctx, &world), KVCL_OK);
    ck_assert_msg(kvcl_store_open(world, &params, &scene->store) == KVCL_OK, "%s", kvcl_last_error());
    scene->pool = scene->store->pool->caches[0]->regions[0]->addr;
    memset(scene->pool, 0x5a, POOL);
}

static void close_pool(scene_t *scene)
{
    kvcl_store_close(scene->store);
    kvcl_finalize(scene->ctx);
    kvcl_log_set_handler(NULL, NULL);
}

static void says(const char *text)
{
    ck_assert_msg(strstr(said, text) != NULL, "no \"%s\" in:\n%s", text, said);
}

/* False, with a message: this system does not permit it. */
static bool system_can(kvcl_mempolicy_t *own, kvcl_nodeset_t *allowed)
{
    if ((kvcl_mempolicy_get(own) == KVCL_OK) && (kvcl_mempolicy_allowed(allowed) == KVCL_OK) &&
        (kvcl_mempolicy_set(own) == KVCL_OK)) {
        return true;
    }
    printf("SKIP: no memory policies on this system: %s\n", kvcl_last_error());
    return false;
}

static void same(const kvcl_mempolicy_t *a, const kvcl_mempolicy_t *b)
{
    ck_assert_int_eq(a->mode, b->mode);
    ck_assert_mem_eq(&a->nodes, &b->nodes, sizeof(a->nodes));
}

static void has_policy(const void *addr, const kvcl_mempolicy_t *policy)
{
    kvcl_mempolicy_t there;

    ck_assert_int_eq(kvcl_mempolicy_at(addr, &there), KVCL_OK);
    same(&there, policy);
}

/* On several nodes: whether the pages are placed on them. Those of shared memory were touched before the range had a
 * policy. */
static void lies_there(const kvcl_topo_t *topo, const char *pool, const kvcl_mempolicy_t *policy)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = POOL / page, i, at[KVCL_NODES_MAX] = {0}, known = 0;
    int    node;

    for (i = 0; i < n; ++i) {
        node = kvcl_topo_address_numa(topo, pool + (i * page));
        if (node >= 0) {
            ++at[node];
            ++known;
        }
    }
    for (node = 0; node < KVCL_NODES_MAX; ++node) {
        if (kvcl_nodeset_has(&policy->nodes, node)) { /* huge pages are placed whole: there are 4 */
            ck_assert_msg(at[node] >= known / kvcl_nodeset_count(&policy->nodes) / 4, "%zu of %zu pages on node %d",
                          at[node], known, node);
        }
    }
}

/* The kernel's count of pages interleaved over nodes; -1: it does not count. */
static long long interleaved(void)
{
    long long hits = -1, n;
    char      name[64], line[64];
    FILE      *file;
    int       node;

    for (node = 0; node < KVCL_NODES_MAX; ++node) {
        snprintf(name, sizeof(name), "/sys/devices/system/node/node%d/numastat", node);
        file = fopen(name, "re");
        while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
            if (sscanf(line, "interleave_hit %lld", &n) == 1) {
                hits = ((hits < 0) ? 0 : hits) + n;
            }
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    return hits;
}

/* False: the counts do not change though they must. */
static bool it_counts(const kvcl_nodeset_t *allowed)
{
    const size_t           len    = 64 * (size_t)sysconf(_SC_PAGESIZE);
    const long long        before = interleaved();
    const kvcl_mempolicy_t policy = {KVCL_MEMPOLICY_INTERLEAVE, *allowed};
    void                   *area  = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool                   moved;

    ck_assert_ptr_ne(area, MAP_FAILED);
    ck_assert_msg(kvcl_mempolicy_range(area, len, &policy) == KVCL_OK, "%s", kvcl_last_error());
    memset(area, 1, len);
    moved = (before >= 0) && (interleaved() > before);
    munmap(area, len);
    return moved;
}

/* UCX touches all of its shared memory before it returns it: the thread must have the policy by then. */
START_TEST(shared_memory_is_touched_under_the_policy)
{
    const long long  pages = POOL / sysconf(_SC_PAGESIZE);
    kvcl_mempolicy_t own;
    kvcl_nodeset_t   allowed;
    scene_t          scene;
    long long        before, hits;

    if (!system_can(&own, &allowed)) {
        return;
    }
    if (!it_counts(&allowed)) {
        printf("SKIP: this kernel does not count interleaved pages\n");
        return;
    }
    before = interleaved();
    open_pool(&scene, "shm", "interleave");
    hits = interleaved() - before;
    ck_assert_msg(hits >= pages / 512, "%lld hits for %lld pages", hits, pages); /* or fewer, huge ones */
    close_pool(&scene);
}
END_TEST

START_TEST(a_pool_lies_where_it_was_decided)
{
    static const kvcl_numa_mode_t modes[] = {KVCL_NUMA_LOCAL, KVCL_NUMA_INTERLEAVE, KVCL_NUMA_AUTO};
    const char                    *path   = paths[_i % PATHS];
    kvcl_numa_mode_t              mode    = modes[_i / PATHS];
    kvcl_mempolicy_t              own, after, policy = {KVCL_MEMPOLICY_DEFAULT, {{0}}};
    kvcl_nodeset_t                allowed;
    const char                    *why;
    char                          text[160];
    kvcl_topo_t                   *topo;
    scene_t                       scene;
    bool                          chosen;

    if (!system_can(&own, &allowed)) {
        return;
    }
    ck_assert_msg(kvcl_topo_open_hwloc(&topo) == KVCL_OK, "%s", kvcl_last_error());
    chosen = kvcl_numa_applies(mode, &allowed, &own, &why) && kvcl_numa_choose(mode, topo, &allowed, &policy, &why);
    ck_assert(chosen || (mode == KVCL_NUMA_AUTO));
    open_pool(&scene, path, (mode == KVCL_NUMA_AUTO) ? NULL : kvcl_numa_mode_names[mode]);
    has_policy(scene.pool, &policy);
    has_policy((char *)scene.pool + POOL - 1, &policy);
    ck_assert_int_eq(kvcl_mempolicy_get(&after), KVCL_OK);
    same(&after, &own);
    if (chosen) {
        says("info: 8M of memory ");
        says(kvcl_mempolicy_text(&policy, text, sizeof(text)));
    } else {
        says("debug: memory by first touch: ");
    }
    says(why);
    if (kvcl_nodeset_count(&allowed) > 1) {
        lies_there(topo, scene.pool, &policy);
    } else {
        printf("SKIP: one NUMA node: that pages lie where their policy says (%s, %s)\n", path,
               kvcl_numa_mode_names[mode]);
    }
    close_pool(&scene);
    kvcl_topo_close(topo);
}
END_TEST

START_TEST(it_can_be_left_to_first_touch)
{
    const kvcl_mempolicy_t none = {KVCL_MEMPOLICY_DEFAULT, {{0}}};
    kvcl_mempolicy_t       own;
    kvcl_nodeset_t         allowed;
    scene_t                scene;

    if (!system_can(&own, &allowed)) {
        return;
    }
    open_pool(&scene, paths[_i], "off");
    has_policy(scene.pool, &none);
    ck_assert_str_eq(said, "");
    close_pool(&scene);
}
END_TEST

/* A policy as set by numactl --interleave. */
START_TEST(a_policy_that_the_process_was_given_stays)
{
    kvcl_mempolicy_t own, given, after;
    kvcl_nodeset_t   allowed;
    scene_t          scene;

    if (!system_can(&own, &allowed)) {
        return;
    }
    given = (kvcl_mempolicy_t){KVCL_MEMPOLICY_INTERLEAVE, allowed};
    ck_assert_msg(kvcl_mempolicy_set(&given) == KVCL_OK, "%s", kvcl_last_error());
    open_pool(&scene, paths[_i % PATHS], (_i < PATHS) ? "auto" : "local");
    ck_assert_int_eq(kvcl_mempolicy_get(&after), KVCL_OK);
    same(&after, &given);
    ck_assert_int_eq(kvcl_mempolicy_set(&own), KVCL_OK); /* the range's own policy becomes visible */
    ck_assert_int_eq(kvcl_mempolicy_at(scene.pool, &after), KVCL_OK);
    ck_assert_int_eq(after.mode, (_i < PATHS) ? KVCL_MEMPOLICY_DEFAULT : KVCL_MEMPOLICY_PREFERRED);
    close_pool(&scene);
}
END_TEST

START_TEST(memory_lies_on_the_node_that_is_named)
{
    kvcl_mem_params_t params = {.size = sizeof(params), .flags = KVCL_MEM_NUMA};
    kvcl_mempolicy_t  own, after, policy = {KVCL_MEMPOLICY_PREFERRED, {{0}}};
    const int         none[] = {-1, KVCL_NODES_MAX, 1 << 30, KVCL_NODES_MAX - 1};
    kvcl_nodeset_t    allowed;
    scene_t           scene;
    kvcl_mem_h        mem;
    size_t            i;

    if (!system_can(&own, &allowed)) {
        return;
    }
    open_pool(&scene, paths[_i], "off");
    params.numa_node = kvcl_nodeset_first(&allowed);
    kvcl_nodeset_add(&policy.nodes, params.numa_node);
    ck_assert_int_eq(kvcl_mem_alloc(scene.ctx, 3 * BLOCK, &params, &mem), KVCL_OK);
    has_policy(kvcl_mem_addr(mem), &policy);
    says("info: 192K of memory on NUMA node ");
    kvcl_mem_free(mem);
    policy = (kvcl_mempolicy_t){KVCL_MEMPOLICY_DEFAULT, {{0}}};
    for (i = 0; i < sizeof(none) / sizeof(none[0]); ++i) {
        params.numa_node = none[i];
        said[0]          = '\0';
        ck_assert_int_eq(kvcl_mem_alloc(scene.ctx, BLOCK, &params, &mem), KVCL_OK);
        memset(kvcl_mem_addr(mem), 1, BLOCK);
        has_policy(kvcl_mem_addr(mem), &policy);
        says("info: memory is not placed on NUMA nodes: there is no NUMA node ");
        kvcl_mem_free(mem);
    }
    ck_assert_int_eq(kvcl_mempolicy_get(&after), KVCL_OK);
    same(&after, &own);
    close_pool(&scene);
}
END_TEST

/* Like a container's filter: these calls fail with this error from now on. False: this system has no filters. */
static bool refuse(const int calls[3], int error)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[0], 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[1], 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[2], 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) && (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

#define NOT_PLACED "memory is not placed on NUMA nodes: "

static const struct {
    int        calls[3];
    int        error;
    const char *mode;
    const char *says;
} refusals[] = {
    {{SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind}, EPERM, "local", "warn: " NOT_PLACED "get_mempolicy: Operation"},
    {{SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind}, ENOSYS, "auto", "debug: " NOT_PLACED "get_mempolicy: Function"},
    {{SYS_set_mempolicy, SYS_mbind, SYS_mbind}, EPERM, "interleave", "warn: " NOT_PLACED "set_mempolicy: Operation"},
    {{SYS_mbind, SYS_mbind, SYS_mbind}, EPERM, "interleave", "warn: " NOT_PLACED "mbind: Operation"},
};

START_TEST(a_container_that_refuses_costs_a_line)
{
    kvcl_mempolicy_t own, after;
    kvcl_nodeset_t   allowed;
    scene_t          scene;

    if (!system_can(&own, &allowed)) {
        return;
    }
    if (!refuse(refusals[_i].calls, refusals[_i].error)) {
        printf("SKIP: no filters for system calls here: %s\n", strerror(errno));
        return;
    }
    open_pool(&scene, "shm", refusals[_i].mode);
    says(refusals[_i].says);
    ck_assert_int_eq(*(unsigned char *)scene.pool, 0x5a);
    if (refusals[_i].calls[0] != SYS_get_mempolicy) {
        ck_assert_int_eq(kvcl_mempolicy_get(&after), KVCL_OK);
        same(&after, &own);
    }
    close_pool(&scene);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("numa");
    TCase   *tcase = tcase_create("all");
    SRunner *runner;
    int      failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nodes_are_chosen_by_what_the_process_is_bound_to, 0,
                        (int)(sizeof(choices) / sizeof(choices[0])));
    tcase_add_test(tcase, machines_of_hwloc_are_chosen_from_alike);
    tcase_add_test(tcase, there_may_be_nothing_to_choose);
    tcase_add_test(tcase, sets_of_nodes_hold_numbers_that_nodes_can_have);
    tcase_add_loop_test(tcase, a_pool_lies_where_it_was_decided, 0, 3 * PATHS);
    tcase_add_test(tcase, shared_memory_is_touched_under_the_policy);
    tcase_add_loop_test(tcase, it_can_be_left_to_first_touch, 0, PATHS);
    tcase_add_loop_test(tcase, a_policy_that_the_process_was_given_stays, 0, 2 * PATHS);
    tcase_add_loop_test(tcase, memory_lies_on_the_node_that_is_named, 0, PATHS);
    tcase_add_loop_test(tcase, a_container_that_refuses_costs_a_line, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
