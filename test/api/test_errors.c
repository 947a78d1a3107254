/*
 * What public calls refuse (errors.h): initialization, settings, params structs, communicators, queries.
 */
#include "test/api/errors.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <ifaddrs.h>
#include <net/if.h>

/* ---- starting ---- */

START_TEST(init_names_the_bad_parameter)
{
    char                    secret[]  = "/tmp/kvcl-errors-XXXXXX";
    int                     fd;
    static const kvcl_oob_t no_calls = {.size = sizeof(no_calls), .rank = 0, .nranks = 1};
    const struct {
        kvcl_init_params_t p;
        const char        *word;
    } rows[] = {
        {{.flags = 1u << 7, .boot = "self"}, "0x80"},
        {{.flags = KVCL_INIT_RANK, .boot = "self", .rank = 3}, "KVCL_RANK=3 (or params.rank), but"},
        {{.flags = KVCL_INIT_RANK, .boot = "self", .rank = -5}, "-5"},
        {{.boot = "pigeon"}, "pigeon"},
        {{.boot = "self", .path = "tunnel"}, "tunnel"},
        {{.boot = "self", .rank = 1, .nranks = 2}, "params.nranks), but the ranks have no way to meet"},
        {{.boot = "self", .rank = 3, .nranks = 2}, "params.nranks) the ranks are 0 to 1"},
        {{.boot = "self", .rank = -5, .nranks = 1}, "-5"},
        {{.boot = "self", .rank = 0, .nranks = -2}, "-2"},
        {{.boot = "tcp"}, "KVCL_RENDEZVOUS"},
        {{.boot = "oob"}, "callbacks"},
        {{.oob = &no_calls}, "callbacks"},
        {{.rendezvous = "tcp://127.0.0.1:4000"}, "KVCL_SIZE"},
        {{.rendezvous = "nonsense", .nranks = 2, .rank = -1}, "nonsense"},
        {{.rendezvous = "udp://127.0.0.1:4000", .nranks = 2, .rank = -1}, "udp://"},
        {{.rendezvous = "tcp://127.0.0.1", .nranks = 2, .rank = -1}, "port"},
        {{.rendezvous = "tcp://127.0.0.1:", .nranks = 2, .rank = -1}, "port"},
        {{.rendezvous = "tcp://127.0.0.1:0", .nranks = 2, .rank = -1}, "port"},
        {{.rendezvous = "tcp://127.0.0.1:65536", .nranks = 2, .rank = -1}, "65536"},
        {{.rendezvous = "tcp://127.0.0.1:40x", .nranks = 2, .rank = -1}, "40x"},
        {{.rendezvous = "tcp://:4000", .nranks = 2, .rank = -1}, "tcp://:4000"},
    };
    kvcl_init_params_t p = alone();
    size_t             i;

    poison();
    REFUSED(INVALID_PARAM, "ctx_p", kvcl_init(&p, NULL));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        p      = rows[i].p;
        p.size = sizeof(p);
        p.path = (p.path != NULL) ? p.path : "loop";
        REFUSED(INVALID_PARAM, rows[i].word, kvcl_init(&p, &out.ctx));
    }
    /* Beyond loopback, accept and join are refused without a secret, before a packet is sent. */
    p            = alone();
    p.boot       = "tcp";
    p.rendezvous = "tcp://192.0.2.1:4000";
    p.nranks     = 2;
    REFUSED(AUTH, "KVCL_SECRET_FILE", kvcl_init(&p, &out.ctx));
    fd = mkstemp(secret); /* 0600 */
    ck_assert_int_eq(write(fd, "a secret of several hosts", 25), 25);
    close(fd);
    p.secret_file = secret;
    for (i = 0; i < 2; ++i) {
        p.path = (i == 0) ? "auto" : "shm";
        REFUSED(INVALID_PARAM, "set KVCL_NET", kvcl_init(&p, &out.ctx));
    }
    unlink(secret);
}
END_TEST

START_TEST(bad_variables_are_named)
{
    static const char *const rows[][3] = { /* name, value, the text of the refusal if it is not the value */
        {"KVCL_BOOT", "pigeon"},       {"KVCL_RENDEZVOUS", "here"},  {"KVCL_RANK", "first"},
        {"KVCL_RANK", "65536"},        {"KVCL_SIZE", "-3"},          {"KVCL_BOOT_TIMEOUT", "soon"},
        {"KVCL_PATH", "tunnel"},       {"KVCL_TIMEOUT", "10us"},      {"KVCL_TIMEOUT", "1x"},
        {"KVCL_SPIN", "2s"},           {"KVCL_LOG", "loud"},         {"KVCL_KEEPALIVE", "1ms"},
        {"KVCL_COLL_TABLE", "rubble", "too few fields"},
        {"KVCL_NATIVE_TABLE", "rubble", "a row is KIND:FROM-TO:WAY"},
        {"KVCL_COLL_CHUNK", "1"},      {"KVCL_INLINE_COPY", "-1"},
        {"KVCL_FRAME", "1G"},          {"KVCL_WINDOW", "0"},         {"KVCL_WINDOW", "4 or 5"},
        {"KVCL_EAGER", "2M"},
    };
    kvcl_init_params_t p = KVCL_INIT_PARAMS_INIT;
    size_t             i;

    poison();
    p.path = "loop";
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        ck_assert_int_eq(setenv(rows[i][0], rows[i][1], 1), 0);
        REFUSED(INVALID_PARAM, rows[i][0], kvcl_init(&p, &out.ctx));
        REFUSED(INVALID_PARAM, (rows[i][2] != NULL) ? rows[i][2] : rows[i][1], kvcl_init(&p, &out.ctx));
        unsetenv(rows[i][0]);
    }
    p      = alone();
    p.rank = 3;                 /* not read without nranks or KVCL_INIT_RANK */
    TAKEN(kvcl_init(&p, &ctx)); /* none of these settings remains */
    kvcl_finalize(ctx);
}
END_TEST

static void ignore(void *arg, const kvcl_setting_info_t *info)
{
    (void)info;
    ++*(size_t *)arg;
}

static void ignore_memory(void *arg, const kvcl_memory_info_t *info)
{
    (void)info;
    ++*(size_t *)arg;
}

START_TEST(queries_refuse)
{
    char small[1];

    REFUSED(INVALID_PARAM, "cb", kvcl_query_settings(NULL, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_query_colls", kvcl_query_colls((char *)out.bytes, 64, NULL));
    REFUSED(INVALID_PARAM, "kvcl_query_colls", kvcl_query_colls(NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_query_copy", kvcl_query_copy((char *)out.bytes, 64, NULL));
    REFUSED(INVALID_PARAM, "kvcl_query_copy", kvcl_query_copy(NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_query_gpudirect", kvcl_query_gpudirect(NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_query_nccl", kvcl_query_nccl(NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_query_topology", kvcl_query_topology((char *)out.bytes, 64, NULL));
    REFUSED(INVALID_PARAM, "kvcl_query_topology", kvcl_query_topology(NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "buf", kvcl_query_path(world, 0, NULL, 64));
    REFUSED(INVALID_PARAM, "communicator", kvcl_query_path(NULL, 0, (char *)out.bytes, 64));
    REFUSED(INVALID_PARAM, "cb", kvcl_query_memory(world, 0, NULL, &out.n));
    REFUSED(INVALID_PARAM, "communicator", kvcl_query_memory(NULL, 0, ignore_memory, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_context_address", kvcl_context_address(NULL, (char *)out.bytes, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_context_address", kvcl_context_address(ctx, NULL, 64, &out.n));
    REFUSED(INVALID_PARAM, "kvcl_context_address", kvcl_context_address(ctx, (char *)out.bytes, 64, NULL));
    REFUSED(INVALID_PARAM, "fd_p", kvcl_context_eventfd(ctx, NULL));
    REFUSED(INVALID_PARAM, "kvcl_comm_world", kvcl_comm_world(ctx, NULL));
    REFUSED(INVALID_PARAM, "kvcl_comm_world", kvcl_comm_world(NULL, &out.comm));
    /* Too little room: the length needed is returned. */
    ck_assert_int_eq(kvcl_context_address(ctx, small, sizeof(small), &out.n), KVCL_ERR_TRUNCATED);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "room for 1"));
    ck_assert_int_eq(kvcl_query_colls(small, sizeof(small), &out.m), KVCL_ERR_TRUNCATED);
    ck_assert_uint_gt(out.m, 1);
    TAKEN(kvcl_context_address(ctx, (char *)out.bytes, out.n, &out.m));
    ck_assert_uint_eq(out.n, out.m);
    poison();
    setenv("KVCL_WINDOW", "wide", 1);
    REFUSED(INVALID_PARAM, "KVCL_WINDOW=wide", kvcl_query_settings(ignore, &out.n));
    unsetenv("KVCL_WINDOW");
    setenv("KVCL_COLL_TABLE", "rubble", 1);
    REFUSED(INVALID_PARAM, "KVCL_COLL_TABLE", kvcl_query_colls((char *)out.bytes, sizeof(out.bytes), &out.n));
    unsetenv("KVCL_COLL_TABLE");
    setenv("KVCL_COPY", "woven", 1);
    REFUSED(INVALID_PARAM, "KVCL_COPY=woven", kvcl_query_copy((char *)out.bytes, sizeof(out.bytes), &out.n));
    setenv("KVCL_COPY", "weave4", 1);
    ck_assert_int_eq(kvcl_query_copy(small, sizeof(small), &out.m), KVCL_ERR_TRUNCATED);
    ck_assert_uint_gt(out.m, 1);
    unsetenv("KVCL_COPY");
}
END_TEST

START_TEST(misspelt_variables_are_warned_about)
{
    static const char *const rows[][2] = {
        {"KVCL_TIMEOTU", "did you mean KVCL_TIMEOUT?"},   {"KVCL_SPINN", "did you mean KVCL_SPIN?"},
        {"KVCL_COL_TABLE", "did you mean KVCL_COLL_TABLE?"}, {"KVCL_SECRETFILE", "did you mean KVCL_SECRET_FILE?"},
        {"KVCL_QWERTZUIOPASDF", "kvcl_info lists all"},
    };
    kvcl_init_params_t p = alone();
    char               text[4096];
    FILE              *file = tmpfile();
    int                err  = dup(STDERR_FILENO);
    size_t             i, len;

    ck_assert(file != NULL && err >= 0);
    setenv("KVCL_LOG", "warn", 1);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        setenv(rows[i][0], "1", 1);
    }
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    i = (kvcl_init(&p, &ctx) == KVCL_OK); /* a warning, not an error */
    dup2(err, STDERR_FILENO);
    ck_assert_uint_eq(i, 1);
    kvcl_finalize(ctx);
    rewind(file);
    len       = fread(text, 1, sizeof(text) - 1, file);
    text[len] = '\0';
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        const char *line = strstr(text, rows[i][0]);
        ck_assert_msg(line != NULL, "nothing about %s in \"%s\"", rows[i][0], text);
        ck_assert_msg(strncmp(line + strlen(rows[i][0]) + 2, rows[i][1], strlen(rows[i][1])) == 0,
                      "not \"%s\" but \"%s\"", rows[i][1], line);
    }
    ck_assert_ptr_null(strstr(text, "KVCL_LOG"));
    fclose(file);
    close(err);
}
END_TEST

/* Interfaces of KVCL_NET: one that does not exist and, if this host has one, one that is down. */
START_TEST(interfaces_that_carry_nothing_are_refused)
{
    kvcl_init_params_t p = alone();
    struct ifaddrs     *all, *at;

    p.path = "tcp";
    poison();
    setenv("KVCL_NET", "lo,kvclnone0", 1);
    REFUSED(INVALID_PARAM, "kvclnone0", kvcl_init(&p, &out.ctx));
    ck_assert_int_eq(getifaddrs(&all), 0);
    for (at = all; at != NULL; at = at->ifa_next) {
        if ((at->ifa_flags & IFF_UP) == 0) {
            setenv("KVCL_NET", at->ifa_name, 1);
            REFUSED(INVALID_PARAM, at->ifa_name, kvcl_init(&p, &out.ctx));
            REFUSED(INVALID_PARAM, "is down", kvcl_init(&p, &out.ctx));
        }
    }
    freeifaddrs(all);
    setenv("KVCL_NET", " ,,", 1); /* names nothing, as if it were not set */
    REFUSED(INVALID_PARAM, "KVCL_PATH=tcp needs KVCL_NET", kvcl_init(&p, &out.ctx));
    setenv("KVCL_NET",
           "lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo,lo",
           1);
    REFUSED(INVALID_PARAM, "33 interfaces", kvcl_init(&p, &out.ctx));
    setenv("KVCL_NET", "lo", 1);
    TAKEN(kvcl_init(&p, &ctx));
    kvcl_finalize(ctx);
    unsetenv("KVCL_NET");
}
END_TEST

START_TEST(secret_files_that_are_none_are_refused)
{
    static const struct {
        mode_t      mode;
        size_t      len;
        const char *word, *says;
    } rows[] = {{0644, 32, "0644", "chmod 600"}, {0660, 32, "0660", "chmod 600"}, {0602, 32, "0602", "chmod 600"},
                {0600, 15, "15 bytes", "it needs 16 to 65536"}, {0600, 0, "is empty", "write 16 to 65536"}};
    kvcl_init_params_t p = alone();
    char               text[4096];
    size_t             i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        p.secret_file = write_file("secret", rows[i].mode, rows[i].len);
        REFUSED(AUTH, rows[i].word, kvcl_init(&p, &out.ctx));
        REFUSED(AUTH, rows[i].says, kvcl_init(&p, &out.ctx));
        REFUSED(AUTH, "KVCL_SECRET_FILE", kvcl_init(&p, &out.ctx));
        REFUSED(AUTH, p.secret_file, kvcl_init(&p, &out.ctx));
    }
    p.secret_file = write_file("secret", 0600, 32);
    TAKEN(kvcl_init(&p, &ctx));
    TAKEN(kvcl_init(&p, &other)); /* both have the secret, but no context accepts */
    TAKEN(kvcl_comm_world(ctx, &world));
    TAKEN(kvcl_context_address(other, text, sizeof(text), &i));
    REFUSED(TIMED_OUT, "nobody accepted", kvcl_comm_connect(world, text, SECOND / 20, &out.comm));
    kvcl_finalize(other);
    kvcl_finalize(ctx);
    unlink(p.secret_file);
    REFUSED(AUTH, p.secret_file, kvcl_init(&p, &out.ctx));
    REFUSED(AUTH, "head -c 32 /dev/urandom", kvcl_init(&p, &out.ctx));
    p.secret_file = dir;
    REFUSED(AUTH, "is a directory: name a file in it", kvcl_init(&p, &out.ctx));
    p.secret_file = "/dev/null";
    REFUSED(AUTH, "not a regular file", kvcl_init(&p, &out.ctx));
}
END_TEST

/* ---- params structs of other versions ---- */

static kvcl_status_t try_init(const void *params)
{
    kvcl_context_h got;
    kvcl_status_t  status = kvcl_init(params, &got);

    kvcl_finalize((status == KVCL_OK) ? got : NULL);
    return status;
}

static kvcl_status_t try_mem(const void *params)
{
    kvcl_mem_h    got;
    kvcl_status_t status = kvcl_mem_alloc(ctx, 64, params, &got);

    kvcl_mem_free((status == KVCL_OK) ? got : NULL);
    return status;
}

static kvcl_status_t try_store(const void *params)
{
    kvcl_store_h  got;
    kvcl_status_t status = kvcl_store_open(world, params, &got);

    kvcl_store_close((status == KVCL_OK) ? got : NULL);
    return status;
}

static kvcl_status_t try_xfer(const void *params)
{
    return kvcl_barrier(world, params, NULL);
}

static kvcl_status_t try_layout(const void *layout)
{
    size_t bytes;

    return kvcl_layout_block_bytes(layout, &bytes);
}

START_TEST(sizes_of_params_are_checked)
{
    const kvcl_init_params_t  init  = alone();
    const kvcl_mem_params_t   memory = {.size = sizeof(memory)};
    const kvcl_store_params_t store = {.size = sizeof(store), .dir_entries = 64};
    const kvcl_xfer_params_t  xfer  = KVCL_XFER_PARAMS_INIT;
    const struct {
        kvcl_status_t (*call)(const void *params);
        const void *params;
        size_t      size;
        const char *word;
    } rows[] = {{try_init, &init, sizeof(init), "kvcl_init_params_t"},
                {try_mem, &memory, sizeof(memory), "kvcl_mem_params_t"},
                {try_store, &store, sizeof(store), "kvcl_store_params_t"},
                {try_xfer, &xfer, sizeof(xfer), "kvcl_xfer_params_t"},
                {try_layout, &shape, sizeof(shape), "layout"}};
    union {
        size_t   size;
        uint8_t  bytes[256];
        uint64_t words[32];
    } p;
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        memset(&p, 0, sizeof(p));
        memcpy(&p, rows[i].params, rows[i].size);
        TAKEN(rows[i].call(&p));
        p.size = 0;
        REFUSED(INVALID_PARAM, rows[i].word, rows[i].call(&p));
        p.size = sizeof(size_t);
        REFUSED(INVALID_PARAM, rows[i].word, rows[i].call(&p));
        p.size = rows[i].size + 24; /* a later version's size, with no new field set */
        TAKEN(rows[i].call(&p));
        p.bytes[rows[i].size + 23] = 1;
        REFUSED(INVALID_PARAM, rows[i].word, rows[i].call(&p));
        p.size = rows[i].size + 16; /* bytes after the struct are not its own */
        TAKEN(rows[i].call(&p));
    }
}
END_TEST

/* ---- communicators ---- */

START_TEST(communicators_refuse)
{
    static const int me[] = {0}, twice[] = {0, 0}, beyond[] = {0, 1}, before[] = {-1, 0};

    REFUSED(INVALID_PARAM, "kvcl_comm_create", kvcl_comm_create(NULL, me, 1, &out.comm));
    REFUSED(INVALID_PARAM, "kvcl_comm_create", kvcl_comm_create(world, NULL, 1, &out.comm));
    REFUSED(INVALID_PARAM, "kvcl_comm_create", kvcl_comm_create(world, me, 1, NULL));
    REFUSED(INVALID_PARAM, "no ranks", kvcl_comm_create(world, me, 0, &out.comm));
    REFUSED(INVALID_PARAM, "no ranks", kvcl_comm_create(world, me, -1, &out.comm));
    REFUSED(UNKNOWN_RANK, "rank 0 is listed twice", kvcl_comm_create(world, twice, 2, &out.comm));
    REFUSED(UNKNOWN_RANK, "rank 1 (entry 1)", kvcl_comm_create(world, beyond, 2, &out.comm));
    REFUSED(UNKNOWN_RANK, "rank -1 (entry 0)", kvcl_comm_create(world, before, 2, &out.comm));
    REFUSED(INVALID_PARAM, "kvcl_comm_accept", kvcl_comm_accept(NULL, SECOND, &out.comm));
    REFUSED(INVALID_PARAM, "kvcl_comm_accept", kvcl_comm_accept(world, SECOND, NULL));
    REFUSED(TIMED_OUT, "nobody connected", kvcl_comm_accept(world, SECOND / 20, &out.comm));
    REFUSED(TIMED_OUT, "nobody connected", kvcl_comm_accept(world, 0, &out.comm));
    REFUSED(INVALID_PARAM, "KVCL_WAIT_FOREVER", kvcl_comm_accept(world, KVCL_WAIT_FOREVER, &out.comm));
}
END_TEST

START_TEST(addresses_that_are_none_are_refused)
{
    static const char *const rows[] = {"", "hello", "kvcl1", "kvcl2:AAAA", "kvcl1:", "kvcl1:AAAAAAAA", "kvcl1:****",
                                       "kvcl1:AAAA BBBB", "tcp://127.0.0.1:4000"};
    static char              text[4096], huge[65536];
    char                     secret[] = "/tmp/kvcl-errors-XXXXXX"; /* 0600 */
    kvcl_init_params_t       p = alone();
    kvcl_context_h           gone, mate; /* of one job secret */
    kvcl_comm_h              mates;
    size_t                   i, len;
    int                      fd;

    REFUSED(INVALID_PARAM, "kvcl_comm_connect", kvcl_comm_connect(NULL, "kvcl1:", SECOND, &out.comm));
    REFUSED(INVALID_PARAM, "kvcl_comm_connect", kvcl_comm_connect(world, "kvcl1:", SECOND, NULL));
    REFUSED(INVALID_PARAM, "needs the other side's address", kvcl_comm_connect(world, NULL, SECOND, &out.comm));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        REFUSED(INVALID_PARAM, "address", kvcl_comm_connect(world, rows[i], SECOND, &out.comm));
    }
    memset(huge, 'A', sizeof(huge) - 1);
    memcpy(huge, "kvcl1:", 6);
    REFUSED(INVALID_PARAM, "too long", kvcl_comm_connect(world, huge, SECOND, &out.comm));
    fd = mkstemp(secret);
    ck_assert_int_eq((int)write(fd, huge, 64), 64);
    close(fd);
    p.secret_file = secret;
    TAKEN(kvcl_init(&p, &gone));
    TAKEN(kvcl_init(&p, &mate));
    TAKEN(kvcl_comm_world(mate, &mates));
    TAKEN(kvcl_context_address(gone, text, sizeof(text), &len));
    kvcl_finalize(gone);
    REFUSED(AUTH, "KVCL_SECRET_FILE", kvcl_comm_connect(world, text, SECOND, &out.comm));
    REFUSED(UNREACHABLE, "other job", kvcl_comm_connect(mates, text, SECOND, &out.comm));
    kvcl_finalize(mate);
    unlink(secret);
    text[9] = (text[9] == 'z') ? 'y' : 'z'; /* the low bits of the third byte: the wire version */
    REFUSED(VERSION, "wire version", kvcl_comm_connect(world, text, SECOND, &out.comm));
    TAKEN(kvcl_context_address(other, text, sizeof(text), &len));
    for (i = 40; i < len - 1; i += 7) {
        text[i] = '\0';
        REFUSED(INVALID_PARAM, "cut off", kvcl_comm_connect(world, text, SECOND, &out.comm));
        TAKEN(kvcl_context_address(other, text, sizeof(text), &len));
    }
    /* Each context alone has a secret of its own. */
    REFUSED(AUTH, "secret", kvcl_comm_connect(world, text, SECOND, &out.comm));
}
END_TEST

START_TEST(unknown_ranks_are_named)
{
    static const int ranks[] = {-2, 1, KVCL_ANY_SOURCE, INT_MAX, INT_MIN};
    char             word[32];
    uint8_t          desc[1024];
    size_t           i, len = sizeof(desc);

    TAKEN(kvcl_mem_export(mem, KVCL_READ, desc, &len));
    for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); ++i) {
        const int r = ranks[i];
        snprintf(word, sizeof(word), "rank %d ", r);
        REFUSED(UNKNOWN_RANK, word, kvcl_send(world, r, 1, cache, &good, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_send_bytes(world, r, 1, "x", 1, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_get(world, r, cache, &good, &good, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_put(world, r, cache, &good, &good, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_bcast(world, r, cache, &good, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_bcast_bytes(world, r, out.bytes, 8, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_gather(world, r, "x", 1, out.bytes, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_scatter(world, r, "x", 1, out.bytes, NULL, &out.req));
        REFUSED(UNKNOWN_RANK, word, kvcl_rmem_import(world, r, desc, len, &out.rmem));
        REFUSED(UNKNOWN_RANK, word, kvcl_query_path(world, r, (char *)out.bytes, 64));
        REFUSED(UNKNOWN_RANK, word, kvcl_query_memory(world, r, ignore_memory, &out.n));
        if (r != KVCL_ANY_SOURCE) {
            REFUSED(UNKNOWN_RANK, word, kvcl_recv(world, r, 1, cache, &good, NULL, &out.req));
            REFUSED(UNKNOWN_RANK, word, kvcl_recv_bytes(world, r, 1, out.bytes, 8, NULL, &out.req));
        }
    }
}
END_TEST

START_TEST(a_busy_rendezvous_port_is_named)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len  = sizeof(addr);
    kvcl_init_params_t p    = alone();
    int                fd   = socket(AF_INET, SOCK_STREAM, 0);
    char               url[64], home[64];

    /* A foreign server that never sends a byte. */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%u", ntohs(addr.sin_port));
    snprintf(home, sizeof(home), "%s", write_file("secret", 0600, 32));
    setenv("KVCL_BOOT_TIMEOUT", "300ms", 1);
    p.boot        = NULL;
    p.rendezvous  = url;
    p.rank        = 0;
    p.nranks      = 2;
    p.secret_file = home;
    REFUSED(TIMED_OUT, url, kvcl_init(&p, &out.ctx));
    REFUSED(TIMED_OUT, "another program may have the port", kvcl_init(&p, &out.ctx));
    REFUSED(TIMED_OUT, "name another port in KVCL_RENDEZVOUS", kvcl_init(&p, &out.ctx));
    unsetenv("KVCL_BOOT_TIMEOUT");
    close(fd);
    unlink(home);
}
END_TEST

START_TEST(a_boot_that_is_none_is_told_all_there_are)
{
    kvcl_init_params_t p = alone();

    p.boot = "pigeon";
    REFUSED(INVALID_PARAM, "oob", kvcl_init(&p, &out.ctx));
    p.boot = "oob";
    REFUSED(INVALID_PARAM, "params.oob is NULL", kvcl_init(&p, &out.ctx));
}
END_TEST

START_TEST(the_running_version_is_told)
{
    char text[64];
    int  major = -1, minor = -1, patch = -1;

    ck_assert_int_eq(kvcl_version(&major, &minor, &patch), KVCL_VERSION);
    ck_assert_int_eq(KVCL_MAKE_VERSION(major, minor, patch), KVCL_VERSION);
    ck_assert_int_eq(kvcl_version(NULL, NULL, NULL), KVCL_VERSION);
    snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
    ck_assert_ptr_eq(strstr(kvcl_version_string(), text), kvcl_version_string());
}
END_TEST

START_TEST(the_view_does_not_move)
{
    ck_assert_uint_eq(kvcl_comm_view(world), 1);
}
END_TEST

START_TEST(a_tier_is_named_as_it_was_given)
{
    kvcl_store_params_t p = {.size = sizeof(p), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};

    p.nvme = "nowhere";
    REFUSED(INVALID_PARAM, "params.nvme", kvcl_store_open(world, &p, &out.store));
    p.nvme = "/nowhere/at/all:64M";
    forget_error();
    ck_assert_int_lt(kvcl_store_open(world, &p, &out.store), 0);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "params.nvme: "));
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "/nowhere/at/all"));
    ck_assert_ptr_null(strstr(kvcl_last_error(), "KVCL_STORE_NVME"));
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("errors");
    SRunner *runner;
    TCase   *tc;
    int      failed;

    tc = tcase_create("start");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, init_names_the_bad_parameter);
    tcase_add_test(tc, bad_variables_are_named);
    tcase_add_test(tc, misspelt_variables_are_warned_about);
    suite_add_tcase(suite, tc);
    tc = tcase_create("secret");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, make_dir, remove_dir);
    tcase_add_test(tc, interfaces_that_carry_nothing_are_refused);
    tcase_add_test(tc, secret_files_that_are_none_are_refused);
    tcase_add_test(tc, a_busy_rendezvous_port_is_named);
    tcase_add_test(tc, a_boot_that_is_none_is_told_all_there_are);
    suite_add_tcase(suite, tc);
    tc = tcase_create("world");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_world, close_world);
    tcase_add_test(tc, queries_refuse);
    tcase_add_test(tc, sizes_of_params_are_checked);
    tcase_add_test(tc, communicators_refuse);
    tcase_add_test(tc, addresses_that_are_none_are_refused);
    tcase_add_test(tc, unknown_ranks_are_named);
    tcase_add_test(tc, the_running_version_is_told);
    tcase_add_test(tc, the_view_does_not_move);
    tcase_add_test(tc, a_tier_is_named_as_it_was_given);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
