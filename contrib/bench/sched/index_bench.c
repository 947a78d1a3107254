/*
 * Measures the prefix index: index_bench [TRACE [SECONDS [COPIES]]]. TRACE has Mooncake's format (only "hash_ids" is
 * read); without one, or "-", conversations are generated. The trace is taken COPIES times, with blocks of its own each
 * time, over 1,000 instances: the requests of a conversation go to one instance, one of ten to another. With 0 SECONDS
 * the feed is measured alone, in memory that no other index has used.
 *
 *   matches   one thread matches the trace's requests; alone, and while another thread writes. Times of a call are wall
 *             times; matches a second are for a second of the thread's CPU time, so that others' load does not count
 *   events    block events of the writing thread (a request's blocks leave an instance and come again), likewise
 *   feed      block events of messages in vLLM's encoding, with 16 tokens a block: decoding and keys included; 16
 *             messages between two readings of the clock, which takes longer than a block
 *   memory    bytes of the index for a block and holder, of sources by key and of engines
 */
#include <kvcl/kvcl.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INSTANCES = 1000, MAX_KEYS = 400, MAX_REQUESTS = 30000, MAX_TIMES = 4000000, TOKENS = 16, HOLDS = 2048,
       MESSAGES = 16 };

typedef struct request {
    uint64_t *ids;
    uint32_t n;
} request_t;

typedef struct bench {
    request_t          requests[MAX_REQUESTS];
    uint32_t           n, copies;
    double             seconds;
    kvcl_sched_index_h index;
    uint32_t           source[INSTANCES];
    _Atomic int        stop;
    uint64_t           events;
    double             writer_s;
} bench_t;

static bench_t bench;
static float   times[MAX_TIMES];

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- requests ---- */

static void request_add(const uint64_t *ids, uint32_t n)
{
    request_t *r = &bench.requests[bench.n];

    if ((n == 0) || (bench.n == MAX_REQUESTS)) {
        return;
    }
    r->ids = malloc(n * sizeof(*ids));
    if (r->ids == NULL) {
        fprintf(stderr, "index_bench: out of memory\n");
        exit(1);
    }
    memcpy(r->ids, ids, n * sizeof(*ids));
    r->n = n;
    ++bench.n;
}

static void trace_read(const char *path)
{
    static char line[65536];
    uint64_t    ids[MAX_KEYS];
    uint32_t    n;
    char        *p, *end;
    FILE        *f = fopen(path, "r");

    if (f == NULL) {
        perror(path);
        exit(1);
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        p = strstr(line, "\"hash_ids\": [");
        p = (p != NULL) ? strchr(p, '[') + 1 : line;
        for (n = 0; n < MAX_KEYS; ++n) {
            ids[n] = strtoull(p, &end, 10);
            if (end == p) {
                break;
            }
            p = (*end == ',') ? end + 1 : end;
        }
        request_add(ids, n);
    }
    (void)fclose(f);
}

/* Conversations of 1 to 8 turns behind one common block, 3 to 30 blocks more each turn. */
static void trace_generate(void)
{
    uint64_t ids[MAX_KEYS] = {0}, next = 1, seed = 1;
    uint32_t n, turns, more;

    while (bench.n < 12000) {
        turns = 1 + (uint32_t)(mix(++seed) % 8);
        for (n = 1; turns > 0; --turns) {
            for (more = 3 + (uint32_t)(mix(++seed) % 28); (more > 0) && (n < MAX_KEYS); --more) {
                ids[n++] = next++;
            }
            request_add(ids, n);
        }
    }
}

static uint32_t keys_of(uint32_t i, uint32_t copy, kvcl_key_t *keys)
{
    const request_t *r = &bench.requests[i];
    uint64_t        id[4];
    uint32_t        k;

    for (k = 0; k < r->n; ++k) {
        id[0] = mix(r->ids[k] + ((uint64_t)(copy + 1) << 40));
        id[1] = mix(id[0] + 1);
        id[2] = mix(id[0] + 2);
        id[3] = mix(id[0] + 3);
        memcpy(keys[k].bytes, id, sizeof(keys[k].bytes));
    }
    return r->n;
}

/* By the second block, which the requests of a conversation share. */
static uint32_t place_of(uint32_t i, uint32_t copy)
{
    const request_t *r = &bench.requests[i];
    uint64_t        id = r->ids[(r->n > 1) ? 1 : 0];

    return (uint32_t)(mix((i % 10 == 9) ? i + 77 : id * 31 + copy) % INSTANCES);
}

/* ---- the index ---- */

static void index_new(uint32_t feed)
{
    kvcl_sched_source_params_t p = KVCL_SCHED_SOURCE_PARAMS_INIT;
    char                       name[32];
    uint32_t                   i;

    KVCL_TRY(kvcl_sched_index_create(NULL, &bench.index));
    for (i = 0; i < INSTANCES; ++i) {
        (void)snprintf(name, sizeof(name), "%u", i);
        p.name     = name;
        p.instance = i;
        p.feed     = feed;
        KVCL_TRY(kvcl_sched_index_source(bench.index, &p, &bench.source[i]));
    }
}

static void memory(const char *what)
{
    kvcl_sched_index_stats_t stats = KVCL_SCHED_INDEX_STATS_INIT;

    KVCL_TRY(kvcl_sched_index_stats(bench.index, &stats));
    printf("%-28s %10.1f bytes a block and holder  (%llu blocks, %llu holders, %.1f MiB)\n", what,
           (double)stats.bytes / (double)stats.holders, (unsigned long long)stats.blocks,
           (unsigned long long)stats.holders, (double)stats.bytes / 1048576);
}

static void fill(void)
{
    kvcl_key_t keys[MAX_KEYS];
    uint64_t   blocks = 0;
    double     from;
    uint32_t   copy, i, n;

    from = now(CLOCK_THREAD_CPUTIME_ID);
    for (copy = 0; copy < bench.copies; ++copy) {
        for (i = 0; i < bench.n; ++i) {
            n = keys_of(i, copy, keys);
            KVCL_TRY(kvcl_sched_index_add(bench.index, bench.source[place_of(i, copy)], 1, keys, n));
            blocks += n;
        }
    }
    printf("%-28s %10.3f M block events a second\n", "events: filling",
           (double)blocks / (now(CLOCK_THREAD_CPUTIME_ID) - from) * 1e-6);
}

static void *write_all(void *arg)
{
    kvcl_key_t keys[MAX_KEYS];
    uint64_t   seed = 5;
    uint32_t   i, copy, n, source;
    double     from = now(CLOCK_THREAD_CPUTIME_ID);

    (void)arg;
    while (!bench.stop) {
        i      = (uint32_t)(mix(++seed) % bench.n);
        copy   = (uint32_t)(mix(++seed) % bench.copies);
        n      = keys_of(i, copy, keys);
        source = bench.source[place_of(i, copy)];
        KVCL_TRY(kvcl_sched_index_remove(bench.index, source, 1, keys, n));
        KVCL_TRY(kvcl_sched_index_add(bench.index, source, 1, keys, n));
        bench.events += 2 * n;
    }
    bench.writer_s = now(CLOCK_THREAD_CPUTIME_ID) - from;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void match_all(const char *what)
{
    static kvcl_sched_hold_t holds[HOLDS];
    kvcl_key_t               keys[MAX_KEYS];
    double                   until = now(CLOCK_MONOTONIC) + bench.seconds, from, took, cpu = 0;
    uint64_t                 found = 0, blocks = 0;
    uint32_t                 i = 0, copy = 0, n;
    size_t                   got, k = 0;

    while ((now(CLOCK_MONOTONIC) < until) && (k < MAX_TIMES)) {
        n    = keys_of(i, copy, keys);
        cpu -= now(CLOCK_THREAD_CPUTIME_ID);
        from = now(CLOCK_MONOTONIC);
        KVCL_TRY(kvcl_sched_index_match(bench.index, keys, n, 0, 0, holds, HOLDS, &got));
        took = now(CLOCK_MONOTONIC) - from;
        cpu += now(CLOCK_THREAD_CPUTIME_ID);
        times[k++] = (float)(took * 1e6);
        found  += got;
        blocks += n;
        copy   = (i + 1 == bench.n) ? (copy + 1) % bench.copies : copy;
        i      = (i + 1) % bench.n;
    }
    qsort(times, k, sizeof(times[0]), compare);
    printf("%-28s %10.1f k matches a second; p50 %.2f, p99 %.2f, p99.9 %.2f us; %.0f holds, %.0f blocks each\n", what,
           (double)k / cpu * 1e-3, times[k / 2], times[k * 99 / 100], times[k * 999 / 1000], (double)found / (double)k,
           (double)blocks / (double)k);
}

/* ---- vLLM's messages ---- */

static size_t put_u64(uint8_t *out, uint64_t value)
{
    unsigned i;

    out[0] = 0xcf;
    for (i = 0; i < 8; ++i) {
        out[1 + i] = (uint8_t)(value >> (56 - 8 * i));
    }
    return 9;
}

static size_t put_list(uint8_t *out, uint32_t n)
{
    out[0] = 0xdc;
    out[1] = (uint8_t)(n >> 8);
    out[2] = (uint8_t)n;
    return 3;
}

/* [0, [["BlockStored", hashes, nil, tokens, 16, nil, "GPU"]]] of a request; tokens follow from its ids. */
static size_t message_of(uint32_t i, uint32_t copy, uint8_t *out)
{
    static const uint8_t head[] = {0x92, 0, 0x91, 0x97, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd'};
    static const uint8_t tail[] = {TOKENS, 0xc0, 0xa3, 'G', 'P', 'U'};
    const request_t      *r     = &bench.requests[i];
    size_t               len    = sizeof(head);
    uint32_t             k, t, token;

    memcpy(out, head, sizeof(head));
    len += put_list(out + len, r->n);
    for (k = 0; k < r->n; ++k) {
        len += put_u64(out + len, mix(r->ids[k] + ((uint64_t)(copy + 1) << 40)));
    }
    out[len++] = 0xc0;
    len += put_list(out + len, r->n * TOKENS);
    for (k = 0; k < r->n; ++k) {
        for (t = 0; t < TOKENS; ++t) {
            token      = (uint32_t)mix(r->ids[k] * TOKENS + t + ((uint64_t)copy << 40)) % 100000 + 65536;
            out[len++] = 0xce;
            out[len++] = (uint8_t)(token >> 24);
            out[len++] = (uint8_t)(token >> 16);
            out[len++] = (uint8_t)(token >> 8);
            out[len++] = (uint8_t)token;
        }
    }
    memcpy(out + len, tail, sizeof(tail));
    return len + sizeof(tail);
}

typedef struct message {
    uint32_t source;
    uint8_t  number[8];
    uint8_t  payload[MAX_KEYS * (9 + 5 * TOKENS) + 64];
    size_t   len;
} message_t;

/* @return the seconds of the thread's CPU time. */
static double feed(const message_t *messages, uint32_t n)
{
    kvcl_sched_frame_t frames[2];
    double             from = now(CLOCK_THREAD_CPUTIME_ID);
    uint32_t           i;

    for (i = 0; i < n; ++i) {
        frames[0] = (kvcl_sched_frame_t){messages[i].number, 8};
        frames[1] = (kvcl_sched_frame_t){messages[i].payload, messages[i].len};
        KVCL_TRY(kvcl_sched_index_feed(bench.index, messages[i].source, 0, frames, 2, NULL));
    }
    return now(CLOCK_THREAD_CPUTIME_ID) - from;
}

static void feed_all(void)
{
    static message_t messages[MESSAGES];
    static uint64_t  next[INSTANCES];
    message_t        *m;
    uint64_t         blocks = 0;
    uint32_t         i, copy, place, b, n = 0;
    double           cpu = 0;

    for (copy = 0; copy < bench.copies; ++copy) {
        for (i = 0; i < bench.n; ++i) {
            place     = place_of(i, copy);
            m         = &messages[n++];
            m->source = bench.source[place];
            m->len    = message_of(i, copy, m->payload);
            for (b = 0; b < 8; ++b) {
                m->number[b] = (uint8_t)(next[place] >> (56 - 8 * b));
            }
            ++next[place];
            blocks += bench.requests[i].n;
            if ((n == MESSAGES) || ((i + 1 == bench.n) && (copy + 1 == bench.copies))) {
                cpu += feed(messages, n);
                n = 0;
            }
        }
    }
    printf("%-28s %10.3f M block events a second\n", "feed: vLLM, 16 tokens", (double)blocks / cpu * 1e-6);
}

static int keys_all(void)
{
    pthread_t writer;

    index_new(KVCL_SCHED_FEED_KEYS);
    fill();
    memory("memory: by key");
    match_all("matches: alone");
    if (pthread_create(&writer, NULL, write_all, NULL) != 0) {
        return 1;
    }
    match_all("matches: while writing");
    bench.stop = 1;
    pthread_join(writer, NULL);
    printf("%-28s %10.3f M block events a second\n", "events: while matching",
           (double)bench.events / bench.writer_s * 1e-6);
    kvcl_sched_index_destroy(bench.index);
    return 0;
}

int main(int argc, char **argv)
{
    bench.seconds = (argc > 2) ? atof(argv[2]) : 5;
    bench.copies  = (argc > 3) ? (uint32_t)atoi(argv[3]) : 10;
    if ((argc > 1) && (strcmp(argv[1], "-") != 0)) {
        trace_read(argv[1]);
    } else {
        trace_generate();
    }
    if ((bench.n == 0) || (bench.copies == 0)) {
        fprintf(stderr, "index_bench: no requests\n");
        return 1;
    }
    printf("%u requests, %u times; %d instances\n", bench.n, bench.copies, INSTANCES);
    if ((bench.seconds > 0) && (keys_all() != 0)) {
        return 1;
    }
    index_new(KVCL_SCHED_FEED_VLLM);
    feed_all();
    memory("memory: of engines");
    kvcl_sched_index_destroy(bench.index);
    return 0;
}
