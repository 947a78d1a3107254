/*
 * Owns the replay of a decision log: a scheduler is made as its head says, each call is made again, and its answer, as
 * text, is compared with the line behind the call.
 */
#include "config.h"
#include "tools/sim/log/log.h"
#include "tools/sim/log/log_read.h"

#include <kvcl/kvcl.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct replay {
    const char            *path;
    FILE                  *file;
    uint64_t              line_no;
    char                  *line;     /* getline's */
    size_t                cap;
    char                  *policy;
    kvcl_sched_model_h    model;
    kvcl_sched_h          sched;
    log_call_t            call;
    kvcl_sched_decision_t decision;
    size_t                *late;
    char                  *answer;   /* the scheduler's, as a line */
    size_t                answer_len;
    log_result_t          *result;
} replay_t;

static bool complain(const replay_t *r, size_t column, const char *what)
{
    fprintf(stderr, "%s:%" PRIu64 ":%zu: %s\n", r->path, r->line_no, column, what);
    return false;
}

/* A line with a byte of zero is of no kind, so that all who read it refuse it: it would hide what stands behind it. */
static bool next_line(replay_t *r)
{
    const ssize_t n = getline(&r->line, &r->cap, r->file);

    ++r->line_no;
    if ((n > 0) && (memchr(r->line, '\0', (size_t)n) != NULL)) {
        r->line[0] = '\0';
    }
    return n > 0;
}

/* The text behind a word of the head; NULL after reporting. */
static char *head_text(replay_t *r, const char *word)
{
    const size_t len = strlen(word);
    char         said[64];

    if (!next_line(r) || (strncmp(r->line, word, len) != 0) || (r->line[len] != ' ')) {
        snprintf(said, sizeof(said), "a line \"%s ...\" must be here", word);
        complain(r, 1, said);
        return NULL;
    }
    r->line[strcspn(r->line, "\n")] = '\0';
    return r->line + len + 1;
}

static bool open_sched(replay_t *r)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    log_cursor_t        c;
    const char          *text;

    text = head_text(r, "params");
    if (text == NULL) {
        return false;
    }
    log_cursor(&c, text);
    params.seed         = log_u64(&c);
    params.max_insts    = log_u32(&c);
    params.max_requests = log_u32(&c);
    params.max_blocks   = log_u32(&c);
    params.max_holds    = log_u32(&c);
    if (!log_end(&c)) {
        return complain(r, c.column + strlen("params "), c.error);
    }
    if (kvcl_sched_create(r->policy, &r->model, 1, &params, &r->sched) != KVCL_OK) {
        return complain(r, 1, kvcl_last_error());
    }
    return true;
}

/* Whether a scheduler can be made of the policy at all; if not, its line is at fault, and not that of the params. */
static bool policy_ok(replay_t *r)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    kvcl_sched_h        sched;

    params.max_insts    = 1;
    params.max_requests = 1;
    if (kvcl_sched_create(r->policy, &r->model, 1, &params, &sched) != KVCL_OK) {
        r->line_no = 2;
        return complain(r, strlen("policy ") + 1, kvcl_last_error());
    }
    kvcl_sched_destroy(sched);
    return true;
}

static bool read_head(replay_t *r)
{
    const char *text;

    if (!next_line(r) || (strcmp(r->line, "kvcl-log 2\n") != 0)) {
        return complain(r, 1, "not a decision log: the first line must be \"kvcl-log 2\"");
    }
    text      = head_text(r, "policy");
    r->policy = (text != NULL) ? strdup(text) : NULL;
    if (r->policy == NULL) {
        return false;
    }
    text = head_text(r, "model");
    if (text == NULL) {
        return false;
    }
    if (kvcl_sched_model_load(text, &r->model) != KVCL_OK) {
        return complain(r, 7, kvcl_last_error());
    }
    return policy_ok(r) && open_sched(r);
}

/* The answer of a call, written as log.c writes it, into r->answer. */
static kvcl_status_t ask(replay_t *r, char kind)
{
    log_call_t    *call = &r->call;
    kvcl_status_t status;
    size_t        next = 0, n_late = 0, *late;
    FILE          *text;

    r->decision.size = sizeof(r->decision);
    if (kind == 'd') {
        status = kvcl_sched_decide(r->sched, call->now, &call->req, call->insts, sizeof(*call->insts), call->n_insts,
                                   call->holds, call->n_holds, &r->decision);
    } else if (kind == 'e') {
        status = kvcl_sched_decode(r->sched, call->now, &call->req, call->prefill, call->decode, call->insts,
                                   sizeof(*call->insts), call->n_insts, &r->decision);
    } else {
        late    = realloc(r->late, (call->n_waiting + 1) * sizeof(*late));
        r->late = (late != NULL) ? late : r->late;
        status  = (late == NULL) ? KVCL_ERR_NO_MEMORY
                                 : kvcl_sched_order(r->sched, call->now, call->waiting, sizeof(*call->waiting),
                                                    call->n_waiting, &next, r->late, call->n_waiting, &n_late);
    }
    free(r->answer);
    r->answer = NULL;
    text      = (status == KVCL_OK) ? open_memstream(&r->answer, &r->answer_len) : NULL;
    if (text == NULL) {
        return (status == KVCL_OK) ? KVCL_ERR_NO_MEMORY : status;
    }
    if (kind == 'o') {
        log_put_order(text, next, r->late, n_late);
    } else {
        log_put_answer(text, &r->decision);
    }
    return (fclose(text) == 0) ? KVCL_OK : KVCL_ERR_NO_MEMORY;
}

static kvcl_status_t tell(replay_t *r, char kind)
{
    switch (kind) {
    case LOG_PREFILL_DONE:
        return kvcl_sched_prefill_done(r->sched, r->call.now, &r->call.measured);
    case LOG_FIRST_TOKEN:
        return kvcl_sched_first_token(r->sched, r->call.now, &r->call.measured);
    case LOG_FINISHED:
        return kvcl_sched_finished(r->sched, r->call.now, &r->call.measured);
    default:
        return kvcl_sched_gone(r->sched, r->call.now, r->call.inst);
    }
}

/* The next line is the logged answer. */
static bool compare(replay_t *r)
{
    const uint64_t at = r->line_no;

    if (!next_line(r) || (r->line[0] != '=')) {
        return complain(r, 1, "the answer \"= ...\" of the call before is missing");
    }
    ++r->result->answers;
    if (strcmp(r->line, r->answer) != 0) {
        r->result->first_line = (r->result->different++ == 0) ? at : r->result->first_line;
    }
    return true;
}

static bool replay_call(replay_t *r)
{
    const char    kind = r->line[0];
    log_cursor_t  c;
    const bool    asks = (kind == 'd') || (kind == 'e') || (kind == 'o');
    kvcl_status_t status;

    if ((kind == '\0') || (strchr("deoptfg", kind) == NULL) || (r->line[1] != ' ')) {
        return complain(r, 1, "a call is one of the letters d, e, o, p, t, f, g");
    }
    log_cursor(&c, r->line + 2);
    if (!log_read_call(&c, kind, &r->call)) {
        return complain(r, c.column + 2, c.error);
    }
    ++r->result->calls;
    status = asks ? ask(r, kind) : tell(r, kind);
    if (status != KVCL_OK) {
        return complain(r, 1, (status == KVCL_ERR_NO_MEMORY) ? "out of memory" : kvcl_last_error());
    }
    return !asks || compare(r);
}

bool log_replay(const char *path, log_result_t *result)
{
    replay_t r    = {.path = path, .result = result};
    bool     good = true;

    memset(result, 0, sizeof(*result));
    r.file = fopen(path, "r");
    if (r.file == NULL) {
        fprintf(stderr, "kvcl_sim: --replay-log %s: %s\n", path, strerror(errno));
        return false;
    }
    good = read_head(&r);
    while (good && next_line(&r)) {
        good = replay_call(&r);
    }
    if (r.sched != NULL) {
        kvcl_sched_destroy(r.sched);
    }
    kvcl_sched_model_free(r.model);
    log_free_call(&r.call);
    free(r.policy);
    free(r.late);
    free(r.answer);
    free(r.line);
    fclose(r.file);
    return good;
}
