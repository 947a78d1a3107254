/*
 * A router in front of model instances that are groups of ranks.
 *
 *   mpirun -n 4 groups      (2 ranks or more)
 *
 * Rank 0 routes. Every two further ranks are an instance, made by kvcl_comm_split, and compute each prompt together,
 * with an all-reduce in their group. The first rank of an instance knows neither the number nor the length of its next
 * prompt: it probes for a message with any tag, and allocates room for what it finds. The router keeps DEPTH prompts at
 * each instance. One kvcl_req_wait_some collects all answers that have arrived; each is followed by another prompt, so
 * that the faster instance gets more of them. A message without tokens ends an instance.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>

enum { WAYS = 2, PROMPTS = 60, TOKENS_MAX = 3000, DEPTH = 4, TERMS = 64 };

static const uint64_t second = 1000000000;

/* The router's: a prompt, and room for the answer to a prompt of the same instance. */
typedef struct place {
    uint32_t         prompt[TOKENS_MAX], answer[TOKENS_MAX];
    kvcl_recv_info_t info;
    kvcl_req_h       sent;
    unsigned         instance;
} place_t;

static place_t    places[PROMPTS];
static kvcl_req_h answers[PROMPTS]; /* the requests of the recvs */

static void end(kvcl_req_h req)
{
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
}

static size_t tokens_of(uint64_t number)
{
    return 1 + (size_t)((number * 1237) % TOKENS_MAX);
}

static uint32_t token(uint64_t number, size_t i)
{
    return (uint32_t)((number * 7919) + (i * 31));
}

/* Stands for the model: a word of the answer is a sum, of which each rank of a group computes its own terms. */
static uint32_t word(uint32_t token, int rank, int ranks)
{
    uint32_t sum = 0;

    for (; rank < TERMS; rank += ranks) {
        sum += (token + (uint32_t)rank) * (2654435761u >> (rank % 16));
    }
    return sum;
}

/* An instance: answer prompts until there are no more. */
static void serve(kvcl_comm_h world, kvcl_comm_h group)
{
    kvcl_recv_info_t next = KVCL_RECV_INFO_INIT;
    int              rank = kvcl_comm_rank(group);
    uint32_t         *words;
    kvcl_req_h       req;
    size_t           n, i;

    do {
        if (rank == 0) {
            KVCL_TRY(kvcl_probe(world, 0, KVCL_ANY_TAG, 60 * second, &next));
        }
        KVCL_TRY(kvcl_bcast_bytes(group, 0, &next, sizeof(next), NULL, &req));
        end(req);
        n     = (size_t)next.bytes / sizeof(*words);
        words = calloc(n + 1, sizeof(*words));
        if (words == NULL) {
            exit(1);
        }
        if (rank == 0) {
            KVCL_TRY(kvcl_recv_bytes(world, 0, next.tag, words, next.bytes, NULL, &req));
            end(req);
        }
        KVCL_TRY(kvcl_bcast_bytes(group, 0, words, next.bytes, NULL, &req));
        end(req);
        for (i = 0; i < n; ++i) {
            words[i] = word(words[i], rank, kvcl_comm_size(group));
        }
        KVCL_TRY(kvcl_allreduce(group, words, words, n, KVCL_DTYPE_U32, KVCL_REDUCE_SUM, NULL, &req));
        end(req);
        if ((rank == 0) && (n > 0)) {
            KVCL_TRY(kvcl_send_bytes(world, 0, next.tag, words, next.bytes, NULL, &req));
            end(req);
        }
        free(words);
    } while (n > 0);
}

/* The router: give a prompt to an instance. The recv takes any of its answers. */
static void give(kvcl_comm_h world, unsigned number, unsigned instance)
{
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    place_t            *place = &places[number];
    int                to     = 1 + ((int)instance * WAYS);
    size_t             n      = tokens_of(number), i;

    for (i = 0; i < n; ++i) {
        place->prompt[i] = token(number, i);
    }
    place->instance  = instance;
    place->info.size = sizeof(place->info);
    params.info      = &place->info;
    KVCL_TRY(kvcl_recv_bytes(world, to, KVCL_ANY_TAG, place->answer, sizeof(place->answer), &params, &answers[number]));
    KVCL_TRY(kvcl_send_bytes(world, to, number, place->prompt, n * sizeof(uint32_t), NULL, &place->sent));
}

/* The router: end a prompt whose answer is here. @return its wrong words. */
static size_t take(place_t *place)
{
    size_t n = tokens_of(place->info.tag), wrong = (place->info.bytes != n * sizeof(uint32_t)), i;

    end(place->sent);
    for (i = 0; i < n; ++i) {
        wrong += place->answer[i] != word(token(place->info.tag, i), 0, 1);
    }
    return wrong;
}

/* The router. @return wrong words. */
static size_t route(kvcl_comm_h world)
{
    unsigned   instances = (unsigned)(kvcl_comm_size(world) - 2 + WAYS) / WAYS, given, answered, i;
    size_t     which[PROMPTS], wrong = 0, n, k;
    kvcl_req_h req;

    for (given = 0; (given < PROMPTS) && (given < instances * DEPTH); ++given) {
        give(world, given, given % instances);
    }
    for (answered = 0; answered < PROMPTS; answered += (unsigned)n) {
        KVCL_TRY(kvcl_req_wait_some(answers, PROMPTS, 60 * second, which, NULL, &n));
        for (k = 0; k < n; ++k) {
            wrong += take(&places[which[k]]);
            if (given < PROMPTS) {
                give(world, given++, places[which[k]].instance);
            }
        }
    }
    for (i = 0; i < instances; ++i) {
        KVCL_TRY(kvcl_send_bytes(world, 1 + ((int)i * WAYS), PROMPTS, NULL, 0, NULL, &req));
        end(req);
    }
    printf("%u prompts answered by %u instances, %zu words wrong\n", answered, instances, wrong);
    return wrong;
}

int main(void)
{
    kvcl_comm_h    world, group;
    size_t         wrong = 0;
    kvcl_context_h ctx;
    int            rank;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_comm_world(ctx, &world));
    rank = kvcl_comm_rank(world);
    if (kvcl_comm_size(world) < 2) {
        fprintf(stderr, "groups needs 2 ranks or more: mpirun -n 4 groups\n");
        kvcl_finalize(ctx);
        return 1;
    }
    KVCL_TRY(kvcl_comm_split(world, (rank == 0) ? KVCL_COLOR_NONE : (rank - 1) / WAYS, rank, 60 * second, &group));
    if (rank == 0) {
        wrong = route(world);
    } else {
        serve(world, group);
    }
    kvcl_comm_free(group); /* NULL at the router */
    kvcl_finalize(ctx);
    return (wrong == 0) ? 0 : 1;
}
