/*
 * Owns the arrays of the work, the reading of JSON lines (by kvcl_replay's reader), sessions and arrivals.
 */
#include "config.h"
#include "tools/sim/work/work.h"

#include "base/rand.h"
#include "tools/replay/generate.h"
#include "tools/replay/idmap.h"
#include "tools/replay/trace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void work_init(work_t *work)
{
    memset(work, 0, sizeof(*work));
}

void work_free(work_t *work)
{
    free(work->requests);
    free(work->blocks);
    work_init(work);
}

static bool reserve(void **array_p, size_t *cap_p, size_t need, size_t size)
{
    size_t cap = (*cap_p != 0) ? *cap_p : 1024;
    void   *array;

    if (need <= *cap_p) {
        return true;
    }
    while (cap < need) {
        cap *= 2;
    }
    array = realloc(*array_p, cap * size);
    if (array == NULL) {
        return false;
    }
    *array_p = array;
    *cap_p   = cap;
    return true;
}

bool work_add(work_t *work, const work_request_t *request, const uint32_t *blocks)
{
    work_request_t *added;
    uint32_t       i;

    if (!reserve((void **)&work->requests, &work->cap, work->n + 1, sizeof(*work->requests)) ||
        !reserve((void **)&work->blocks, &work->cap_blocks, work->n_blocks + request->n, sizeof(*work->blocks))) {
        return false;
    }
    added        = &work->requests[work->n++];
    *added       = *request;
    added->first = work->n_blocks;
    added->next  = WORK_NONE;
    for (i = 0; i < request->n; ++i) {
        work->blocks[work->n_blocks++] = blocks[i];
        work->distinct                 = (blocks[i] >= work->distinct) ? blocks[i] + 1 : work->distinct;
    }
    return true;
}

/* A length of a trace within what is simulated; a request without input or output counts as one token. */
static uint32_t tokens_of(uint64_t length)
{
    return (length == 0) ? 1 : (length > WORK_INPUT_MAX) ? WORK_INPUT_MAX : (uint32_t)length;
}

/* A request of a trace; numbers: its blocks' dense numbers, room for TRACE_IDS_MAX. */
static bool add_traced(work_t *work, const trace_t *trace, size_t r, idmap_t *map, uint32_t *numbers)
{
    const trace_request_t *from   = &trace->requests[r];
    work_request_t        request = {.arrival = (double)from->timestamp_ms / 1000,
                                     .input   = tokens_of(from->input_length), .output = tokens_of(from->output_length),
                                     .session = WORK_NONE};
    const uint32_t        most    = (request.input + WORK_BLOCK_TOKENS - 1) / WORK_BLOCK_TOKENS;
    bool                  fresh;
    uint32_t              i;

    request.n = (from->n < most) ? from->n : most;
    for (i = 0; i < request.n; ++i) {
        numbers[i] = idmap_number(map, trace->ids[from->first + i], 0, &fresh);
        if (numbers[i] == IDMAP_NONE) {
            return false;
        }
    }
    return work_add(work, &request, numbers);
}

static bool take_trace(work_t *work, const trace_t *trace, size_t most)
{
    uint32_t *numbers = malloc(TRACE_IDS_MAX * sizeof(*numbers));
    bool     good     = (numbers != NULL);
    idmap_t  map;
    size_t   r;

    idmap_init(&map);
    for (r = 0; good && (r < trace->n_requests) && ((most == 0) || (r < most)); ++r) {
        good = add_traced(work, trace, r, &map, numbers);
    }
    idmap_free(&map);
    free(numbers);
    return good;
}

/* A stable order by arrival: equal times keep the trace's order, which the first block's place tells. */
static int by_arrival(const void *a, const void *b)
{
    const work_request_t *x = a, *y = b;

    if (x->arrival != y->arrival) {
        return (x->arrival < y->arrival) ? -1 : 1;
    }
    return (x->first < y->first) ? -1 : (x->first > y->first);
}

static void sort_arrivals(work_t *work)
{
    const double start = (work->n != 0) ? work->requests[0].arrival : 0;
    double       first = start;
    bool         sorted = true;
    size_t       i;

    for (i = 1; i < work->n; ++i) {
        sorted = sorted && (work->requests[i].arrival >= work->requests[i - 1].arrival);
        first  = (work->requests[i].arrival < first) ? work->requests[i].arrival : first;
    }
    if (!sorted) {
        qsort(work->requests, work->n, sizeof(*work->requests), by_arrival);
    }
    for (i = 0; i < work->n; ++i) {
        work->requests[i].arrival -= first;
    }
}

static bool load_json(work_t *work, const char *path, size_t most)
{
    trace_t trace;
    bool    good;

    trace_init(&trace);
    good = trace_load(&trace, path, true, stderr);
    if (good && !take_trace(work, &trace, most)) {
        fprintf(stderr, "%s: out of memory\n", path);
        good = false;
    }
    trace_free(&trace);
    return good;
}

static bool load_csv(work_t *work, FILE *file, const char *path, size_t most)
{
    char error[WORK_ERROR_MAX];

    if (work_read_csv(work, file, path, most, error)) {
        return true;
    }
    fprintf(stderr, "%s\n", error);
    return false;
}

bool work_load(work_t *work, const char *path, size_t most)
{
    FILE *file = fopen(path, "r");
    int  byte  = EOF;
    bool good;

    while ((file != NULL) && ((byte = getc(file)) != EOF) && strchr(" \t\r\n", byte)) {
    }
    if ((file == NULL) || (ferror(file) != 0)) {
        fprintf(stderr, "kvcl_sim: --trace %s: %s\n", path, strerror(errno));
        good = false;
    } else if (byte == '{') {
        good = load_json(work, path, most);
    } else {
        rewind(file);
        good = load_csv(work, file, path, most);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (!good) {
        work_free(work);
        return false;
    }
    sort_arrivals(work);
    return true;
}

static bool generate_requests(work_t *work, const trace_t *chats, bool agent, size_t n, kvcl_rand_t *random)
{
    static const uint32_t tool_blocks = 12, agent_blocks = 5; /* 6,144 and 2,560 tokens that all of them share */
    uint32_t              *numbers    = malloc(TRACE_IDS_MAX * sizeof(*numbers));
    uint32_t              fresh       = 0, kind, shared, i;
    work_request_t        request     = {.session = WORK_NONE};
    size_t                chat        = 0;
    bool                  good        = (numbers != NULL);

    for (i = 0; i < chats->n_ids; ++i) {
        fresh = (chats->ids[i] + 64 > fresh) ? (uint32_t)chats->ids[i] + 64 : fresh;
    }
    while (good && (work->n < n)) {
        kind = agent ? (uint32_t)kvcl_rand_below(random, 100) : 0;
        if ((kind < 38) && (chat < chats->n_requests)) {
            request.klass  = 0;
            request.n      = chats->requests[chat].n;
            request.input  = (uint32_t)chats->requests[chat].input_length;
            request.output = (uint32_t)chats->requests[chat].output_length;
            for (i = 0; i < request.n; ++i) {
                numbers[i] = (uint32_t)chats->ids[chats->requests[chat].first + i] + 32;
            }
            ++chat;
        } else {
            request.klass  = (kind < 88) ? 1 : 2;
            shared         = (request.klass == 1) ? tool_blocks : agent_blocks;
            request.n      = shared + 1 + (uint32_t)kvcl_rand_below(random, 4);
            request.input  = (request.n * WORK_BLOCK_TOKENS) - (uint32_t)kvcl_rand_below(random, WORK_BLOCK_TOKENS);
            request.output = (request.klass == 1) ? 3 + (uint32_t)kvcl_rand_below(random, 78)
                                                  : 16 + (uint32_t)kvcl_rand_below(random, 9);
            for (i = 0; i < request.n; ++i) {
                numbers[i] = (i >= shared) ? fresh++ : i + ((request.klass == 1) ? 0 : tool_blocks);
            }
        }
        request.arrival = agent ? 3.05 * (double)(work->n / 20) : request.arrival;
        if (!agent && (chat > 0)) {
            request.arrival = (double)chats->requests[chat - 1].timestamp_ms / 1000;
        }
        good = work_add(work, &request, numbers);
    }
    free(numbers);
    return good;
}

bool work_generate(work_t *work, bool agent, size_t n, uint64_t seed)
{
    kvcl_rand_t random;
    trace_t     chats;
    bool        good;

    trace_init(&chats);
    kvcl_rand_seed(&random, seed);
    good = trace_generate(&chats, n, seed) && generate_requests(work, &chats, agent, n, &random);
    trace_free(&chats);
    if (!good) {
        work_free(work);
    }
    return good;
}
