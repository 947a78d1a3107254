/*
 * A decision in words. Pure; writes into the caller's buffer only.
 */
#include "config.h"
#include "sched/sched.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct text {
    char   *buf;
    size_t len;
    size_t at;
} text_t;

static void say(text_t *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(text_t *text, const char *fmt, ...)
{
    va_list args;
    int     n;

    if (text->at + 1 >= text->len) {
        return;
    }
    va_start(args, fmt);
    n = vsnprintf(text->buf + text->at, text->len - text->at, fmt, args);
    va_end(args);
    text->at = ((n < 0) || ((size_t)n >= text->len - text->at)) ? text->len - 1 : text->at + (size_t)n;
}

const char *kvcl_sched_verdict_name(uint32_t verdict)
{
    static const char *const names[] = {"UNKNOWN", "GO", "WAIT", "REFUSE"};

    return names[(verdict <= KVCL_SCHED_REFUSE) ? verdict : 0];
}

const char *kvcl_sched_reason_text(uint32_t reason)
{
#define REASON_TEXT(_name, _number, _text) [_number] = (_text),
    static const char *const texts[] = {KVCL_SCHED_REASON_MAP(REASON_TEXT)};
#undef REASON_TEXT

    return (reason < sizeof(texts) / sizeof(texts[0])) ? texts[reason] : "unknown reason";
}

static void say_inst(text_t *text, const char *what, uint32_t id)
{
    if (id == KVCL_SCHED_NONE) {
        say(text, "%snone", what);
    } else {
        say(text, "%s%u", what, (unsigned)id);
    }
}

static void say_times(text_t *text, const kvcl_sched_times_t *t)
{
    if (t->ttft_s < 0) {
        say(text, "TTFT not known");
        return;
    }
    say(text, "TTFT %.3f s = waited %.3f + queue %.3f + fetch %.3f + prefill %.3f + handover %.3f + load %.3f",
        t->ttft_s, t->waited_s, t->queue_s, t->fetch_s, t->prefill_s, t->handover_s, t->load_s);
    if (t->error >= 0) {
        say(text, ", error %.0f%%", 100 * t->error);
    } else {
        say(text, ", error not known");
    }
}

/* The part that the runner-up has more of. */
static const char *why_lost(const kvcl_sched_times_t *won, const kvcl_sched_times_t *lost)
{
    const double more[]             = {lost->queue_s - won->queue_s, lost->fetch_s - won->fetch_s,
                                       lost->prefill_s - won->prefill_s,
                                       (lost->handover_s + lost->load_s) - (won->handover_s + won->load_s)};
    static const char *const parts[] = {"a longer queue", "more to fetch", "more to compute", "a longer handover"};
    size_t                   i, most = 0;

    for (i = 1; i < sizeof(more) / sizeof(more[0]); ++i) {
        most = (more[i] > more[most]) ? i : most;
    }
    return (more[most] > 0) ? parts[most] : "even; less work of late, or the policy's score";
}

static void say_run(text_t *text, const kvcl_sched_run_t *run)
{
    static const char *const plans[] = {"?", "there", "fetch", "compute", "replicate"};
    unsigned                 i;

    say(text, "blocks %u..%u: %s", (unsigned)run->first, (unsigned)(run->first + run->blocks - 1),
        plans[(run->plan <= KVCL_SCHED_REPLICATE) ? run->plan : 0]);
    if (run->from != KVCL_SCHED_NONE) {
        say(text, " from %u%s", (unsigned)run->from, ((run->flags & KVCL_SCHED_KEEP) != 0) ? ", kept" : "");
    }
    for (i = 0; (i < run->n) && (i < KVCL_SCHED_OTHERS); ++i) {
        say(text, "%s%u", (i > 0) ? " " : ((run->plan == KVCL_SCHED_REPLICATE) ? " to " : ", else "),
            (unsigned)run->inst[i]);
    }
    say(text, "\n");
}

const char *kvcl_sched_describe(const kvcl_sched_decision_t *decision, char *buf, size_t len)
{
    text_t   text = {.buf = buf, .len = len};
    uint32_t i;

    if (len == 0) {
        return buf;
    }
    buf[0] = '\0';
    say(&text, "%s: %s", kvcl_sched_verdict_name(decision->verdict), kvcl_sched_reason_text(decision->reason));
    if (decision->verdict != KVCL_SCHED_GO) {
        say(&text, "; retry in %.1f s", decision->retry_s);
    }
    say_inst(&text, "\nprefill ", decision->prefill);
    say_inst(&text, ", decode ", decision->decode);
    say(&text, "\n");
    say_times(&text, &decision->times);
    if (decision->tbt_s >= 0) {
        say(&text, "\nTBT %.1f ms", 1000 * decision->tbt_s);
    }
    if (decision->runner_up != KVCL_SCHED_NONE) {
        say(&text, "\nrunner-up %u: %s; ", (unsigned)decision->runner_up,
            why_lost(&decision->times, &decision->runner_times));
        say_times(&text, &decision->runner_times);
    }
    if (decision->left_out > 0) {
        say(&text, "\nleft out, since their reports contradict themselves: %u", (unsigned)decision->left_out);
    }
    if (decision->stale > 0) {
        say(&text, "\ninstances with an old report: %u", (unsigned)decision->stale);
    }
    say(&text, "\n");
    for (i = 0; (i < decision->n_runs) && (i < KVCL_SCHED_RUNS); ++i) {
        say_run(&text, &decision->runs[i]);
    }
    return buf;
}
