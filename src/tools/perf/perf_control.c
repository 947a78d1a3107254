/*
 * Owns the synchronisation of initiator and target: small messages, sent only between measured phases. The target
 * answers each with its CPU time and its count of wrong blocks. During a phase the target waits in a receive (or, for
 * send, does its receives).
 */
#include "config.h"
#include "tools/perf/perf.h"

enum {
    ASK_TAG    = 0x61736b,
    ANSWER_TAG = 0x616e73
};

enum {
    ASK_RENEW = 1, /* prepare iteration number arg */
    ASK_CHECK = 2,
    ASK_BEGIN = 3, /* arg iterations follow */
    ASK_END   = 4,
    ASK_FLOOR = 5,
    ASK_QUIT  = 6
};

typedef struct question {
    uint64_t what;
    uint64_t arg;
} question_t;

typedef struct answer {
    uint64_t good;
    uint64_t cpu_ns;
    uint64_t wrong;
} answer_t;

/* The target's part of a request before its answer. */
static void prepare(perf_t *perf, const question_t *question, answer_t *answer)
{
    answer->good  = 1;
    answer->wrong = 0;
    switch (question->what) {
    case ASK_RENEW:
        perf->iter   = question->arg;
        answer->good = ((perf->test->renew == NULL) || perf->test->renew(perf)) ? 1 : 0;
        break;
    case ASK_CHECK:
        answer->wrong = (perf->test->check_far != NULL) ? perf->test->check_far(perf) : 0;
        break;
    default:
        break;
    }
    answer->cpu_ns = clock_cpu_ns();
}

/* The target's part of a request after its answer. */
static bool follow(perf_t *perf, const question_t *question)
{
    uint64_t i;

    if (question->what == ASK_FLOOR) {
        return kvcl_floor_serve(perf->floor, PERF_TIMEOUT_NS);
    }
    if ((question->what == ASK_BEGIN) && (perf->test->target_op != NULL)) {
        for (i = 0; i < question->arg; ++i) {
            if (!perf->test->target_op(perf)) {
                return false;
            }
        }
    }
    return true;
}

bool perf_target(perf_t *perf)
{
    question_t question;
    answer_t   answer;

    do {
        if (!job_recv(perf->job, 0, ASK_TAG, &question, sizeof(question), PERF_TIMEOUT_NS)) {
            return false;
        }
        prepare(perf, &question, &answer);
        if (!job_send(perf->job, 0, ANSWER_TAG, &answer, sizeof(answer), PERF_TIMEOUT_NS) || (answer.good == 0) ||
            !follow(perf, &question)) {
            return false;
        }
    } while (question.what != ASK_QUIT);
    return true;
}

static bool request(perf_t *perf, uint64_t what, uint64_t arg, answer_t *answer)
{
    const question_t question = {what, arg};

    if (perf->self) {
        prepare(perf, &question, answer);
        answer->cpu_ns = 0; /* one process: the initiator's own time is all of it */
    } else if (!job_send(perf->job, perf->peer, ASK_TAG, &question, sizeof(question), PERF_TIMEOUT_NS) ||
               !job_recv(perf->job, perf->peer, ANSWER_TAG, answer, sizeof(*answer), PERF_TIMEOUT_NS)) {
        return false;
    }
    return answer->good == 1;
}

bool perf_query_renew(perf_t *perf)
{
    answer_t answer;

    if (!request(perf, ASK_RENEW, perf->iter + 1, &answer)) {
        return false;
    }
    if (perf->self) {
        return true;
    }
    ++perf->iter;
    return (perf->test->renew == NULL) || perf->test->renew(perf);
}

bool perf_query_check(perf_t *perf)
{
    answer_t answer;

    if (!request(perf, ASK_CHECK, 0, &answer)) {
        return false;
    }
    perf->result.wrong += answer.wrong;
    perf->result.wrong += (perf->test->check_near != NULL) ? perf->test->check_near(perf) : 0;
    return true;
}

/* cpu_p: the target's CPU time at its answer. */
static bool query_cpu(perf_t *perf, uint64_t what, uint64_t arg, uint64_t *cpu_p)
{
    answer_t answer = {0, 0, 0};

    if (!request(perf, what, arg, &answer)) {
        return false;
    }
    *cpu_p = answer.cpu_ns;
    return true;
}

bool perf_query_begin(perf_t *perf, uint64_t iters, uint64_t *cpu_p)
{
    return query_cpu(perf, ASK_BEGIN, iters, cpu_p);
}

bool perf_query_end(perf_t *perf, uint64_t *cpu_p)
{
    return query_cpu(perf, ASK_END, 0, cpu_p);
}

bool perf_query_floor(perf_t *perf, uint64_t *cpu_p)
{
    return query_cpu(perf, ASK_FLOOR, 0, cpu_p);
}

bool perf_query_quit(perf_t *perf)
{
    answer_t answer;

    return request(perf, ASK_QUIT, 0, &answer);
}
