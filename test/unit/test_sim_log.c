/*
 * The replay of decision logs. One that a scheduler wrote has no different answer. A hostile one is refused with file,
 * line and column, whatever was done to it: lines cut at any byte, numbers that are none or too large, counts that the
 * line does not bear, calls and answers that are missing or unknown, a head of another version.
 */
#include "sched_scene.h"
#include "tools/sim/log/log.h"

#include <stdlib.h>
#include <unistd.h>

enum { INSTS = 3, CALLS = 6, TEXT_MAX = 65536 };

static const char policy[] = "prefill=kvcl,queue=edf:refuse=1";
static char       folder[] = "/tmp/kvcl-log-XXXXXX";
static char       model_path[64], log_path[64], said_path[64];
static char       text[TEXT_MAX];
static size_t     text_len;

static void write_file(const char *path, const char *bytes, size_t len)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
    ck_assert_int_eq(fclose(file), 0);
}

static size_t read_file(const char *path, char *buf, size_t cap)
{
    FILE   *file = fopen(path, "r");
    size_t len;

    ck_assert_ptr_nonnull(file);
    len = fread(buf, 1, cap - 1, file);
    buf[len] = '\0';
    fclose(file);
    return len;
}

static void log_one_request(FILE *file, scene_t *scene, unsigned k)
{
    kvcl_sched_measured_t measured = KVCL_SCHED_MEASURED_INIT;
    kvcl_sched_waiting_t  waiting  = KVCL_SCHED_WAITING_INIT;
    kvcl_sched_decision_t again    = {.size = sizeof(again)};
    size_t                next, late, n_late;
    uint32_t              prefill;

    scene->req.id        = k + 1;
    scene->req.arrival_s = scene->now;
    scene->req.ttft_s    = 5;
    prefill              = scene_decide(scene);
    log_decide(file, scene->now, &scene->req, scene->inst, scene->n, scene->hold, scene->n_holds, &scene->out);
    waiting.id         = scene->req.id;
    waiting.prefill_s  = scene->out.busy_s;
    waiting.deadline_s = scene->now + 5;
    ck_assert_int_eq(kvcl_sched_order(scene->sched, scene->now, &waiting, sizeof(waiting), 1, &next, &late, 1,
                                      &n_late), KVCL_OK);
    log_order(file, scene->now, &waiting, 1, next, &late, n_late);
    measured.id        = scene->req.id;
    measured.prefill   = prefill;
    measured.tokens    = scene->req.tokens;
    measured.prefill_s = scene->out.busy_s * 1.25;
    scene->now        += 2;
    ck_assert_int_eq(kvcl_sched_prefill_done(scene->sched, scene->now, &measured), KVCL_OK);
    log_measured(file, LOG_PREFILL_DONE, scene->now, &measured);
    ck_assert_int_eq(kvcl_sched_decode(scene->sched, scene->now, &scene->req, prefill, scene->out.decode, scene->inst,
                                       sizeof(scene->inst[0]), scene->n, &again), KVCL_OK);
    log_decode(file, scene->now, &scene->req, prefill, scene->out.decode, scene->inst, scene->n, &again);
}

/* A log of some requests, in text: two of each call that has an answer, and an instance that goes. */
static void make_log(void)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    log_head_t          head   = {policy, model_path, &params};
    kvcl_key_t          keys[10];
    scene_t             scene;
    FILE                *file;

    params.seed         = 7; /* as scene_open has it */
    params.max_insts    = 64;
    params.max_requests = 16;
    params.max_holds    = 64;
    write_file(model_path, scene_round, strlen(scene_round));
    scene_open(&scene, policy, INSTS);
    memset(keys, 5, sizeof(keys));
    scene.req.keys = keys;
    scene_hold(&scene, 1, 0, 4);
    file = fopen(log_path, "w");
    ck_assert_ptr_nonnull(file);
    log_begin(file, &head);
    log_one_request(file, &scene, 0);
    log_one_request(file, &scene, 1);
    ck_assert_int_eq(kvcl_sched_gone(scene.sched, scene.now, 2), KVCL_OK);
    log_gone(file, scene.now, 2);
    ck_assert_int_eq(fclose(file), 0);
    scene_close(&scene);
    text_len = read_file(log_path, text, sizeof(text));
    ck_assert_uint_lt(text_len, sizeof(text) - 1);
}

static void before(void)
{
    snprintf(folder, sizeof(folder), "/tmp/kvcl-log-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(model_path, sizeof(model_path), "%s/round.model", folder);
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    snprintf(said_path, sizeof(said_path), "%s/said", folder);
    make_log();
}

static void after(void)
{
    (void)unlink(model_path);
    (void)unlink(log_path);
    (void)unlink(said_path);
    (void)rmdir(folder);
}

/* Replay these bytes; what was said to stderr is in said. */
static bool replay(const char *bytes, size_t len, log_result_t *result, char *said, size_t cap)
{
    int  old = dup(STDERR_FILENO);
    bool good;

    write_file(log_path, bytes, len);
    ck_assert_ptr_nonnull(freopen(said_path, "w", stderr));
    good = log_replay(log_path, result);
    fflush(stderr);
    ck_assert_int_ge(dup2(old, STDERR_FILENO), 0);
    close(old);
    (void)read_file(said_path, said, cap);
    return good;
}

/* The place and the words of a refusal: "PATH:LINE:COLUMN: WORDS". 0: there was none. */
static unsigned long refused(const char *bytes, size_t len, const char **words_p)
{
    static char   said[1024];
    log_result_t  result;
    unsigned long line, column;
    char          *p;

    if (replay(bytes, len, &result, said, sizeof(said))) {
        ck_assert_str_eq(said, "");
        return 0;
    }
    ck_assert_msg(strncmp(said, log_path, strlen(log_path)) == 0, "no file: %s", said);
    p = said + strlen(log_path);
    ck_assert_msg(*p == ':', "no line: %s", said);
    line = strtoul(p + 1, &p, 10);
    ck_assert_msg((*p == ':') && (line > 0), "no line: %s", said);
    column = strtoul(p + 1, &p, 10);
    ck_assert_msg((column > 0) && (strncmp(p, ": ", 2) == 0) && (strlen(p) > 10), "no column or no words: %s", said);
    ck_assert_msg(strchr(p, '\n') == p + strlen(p) - 1, "more than one line: %s", said);
    *words_p = p + 2;
    return line;
}

static unsigned long lines_in(const char *bytes, size_t len)
{
    unsigned long n = 1;
    size_t        i;

    for (i = 0; i < len; ++i) {
        n += (bytes[i] == '\n') ? 1 : 0;
    }
    return n;
}

START_TEST(what_a_scheduler_wrote_is_answered_the_same)
{
    log_result_t result;
    char         said[1024], *answer;

    ck_assert_msg(replay(text, text_len, &result, said, sizeof(said)), "%s", said);
    ck_assert_uint_eq(result.calls, 9);
    ck_assert_uint_eq(result.answers, CALLS);
    ck_assert_uint_eq(result.different, 0);
    answer    = strstr(text, "\n= ") + 3;
    answer[0] = (answer[0] == '3') ? '1' : '3'; /* REFUSE */
    ck_assert_msg(replay(text, text_len, &result, said, sizeof(said)), "%s", said);
    ck_assert_uint_eq(result.different, 1);
    ck_assert_uint_eq(result.first_line, lines_in(text, (size_t)(answer - text)) - 1);
}
END_TEST

/* May a log end here? Behind a whole line; within an answer, which then differs; or within the last number. */
static bool may_end(size_t cut)
{
    size_t start = cut;

    while ((start > 0) && (text[start - 1] != '\n')) {
        --start;
    }
    return (start == cut) || (text[start] == '=') || (strcspn(text + cut, " ") > strcspn(text + cut, "\n"));
}

START_TEST(a_log_that_is_cut_at_any_byte_is_refused_there)
{
    const char    *words = "";
    unsigned long line, n_refused = 0;
    size_t        cut;

    for (cut = 0; cut < text_len; ++cut) {
        line       = refused(text, cut, &words);
        n_refused += (line != 0) ? 1 : 0;
        if (line == 0) {
            ck_assert_msg(may_end(cut), "cut at byte %zu, in line %lu, is taken", cut, lines_in(text, cut));
        } else { /* in the line that is cut, or the next one is missing */
            ck_assert_msg((line == lines_in(text, cut)) || (line == lines_in(text, cut) + 1),
                          "cut at byte %zu, in line %lu: line %lu, %s", cut, lines_in(text, cut), line, words);
        }
    }
    ck_assert_uint_gt(n_refused, text_len / 2);
}
END_TEST

/* Replace field `field` (0 is the letter) of the first line that begins with `line`. */
static size_t with_field(char *to, const char *line, unsigned field, const char *value)
{
    const char *at = (strncmp(text, line, strlen(line)) == 0) ? text : NULL, *end;
    char       mark[16];
    unsigned   i;
    size_t     before_at;

    snprintf(mark, sizeof(mark), "\n%s", line);
    at = (at != NULL) ? at : strstr(text, mark) + 1;
    for (i = 0; i < field; ++i) {
        at = strchr(at, ' ') + 1;
    }
    end       = at + strcspn(at, " \n");
    before_at = (size_t)(at - text);
    memcpy(to, text, before_at);
    strcpy(to + before_at, value);
    strcat(to, end);
    return strlen(to);
}

typedef struct bad {
    const char *line;
    unsigned   field;
    const char *value;
    unsigned   at;     /* line of the refusal */
    const char *words;
} bad_t;

/* d: now, 15 fields of the request (2 to 16), the number of keys (17), the keys (18 to 27), the number of instances
 * (28), 24 fields of each, the number of holds (101), 5 fields of each. */
static const bad_t bads[] = {
    {"kvcl-log", 1, "1", 1, "the first line must be"},
    {"kvcl-log", 1, "99999999999999999999", 1, "the first line must be"},
    {"policy", 0, "polity", 2, "a line \"policy ...\""},
    {"policy", 1, "prefill=kvlc", 2, "no such policy"},
    {"model", 1, "/no/such/model", 3, "/no/such/model"},
    {"params", 2, "x", 4, "a whole number is missing"},
    {"params", 2, "4294967296", 4, "too large"},
    {"params", 2, "4294967295", 4, "max_insts"},
    {"params", 5, "0 0", 4, "more than the call has"},
    {"d ", 0, "q", 5, "one of the letters"},
    {"d ", 0, "dd", 5, "one of the letters"},
    {"d ", 1, "nan", 5, "not finite"},
    {"d ", 1, "inf", 5, "not finite"},
    {"d ", 1, "soon", 5, "a number is missing"},
    {"d ", 2, "-1", 5, "a whole number is missing"},
    {"d ", 2, "18446744073709551616", 5, "not a whole number"},
    {"d ", 3, "4294967296", 5, "too large"},
    {"d ", 4, "32", 5, "class 32"},
    {"d ", 6, "0", 5, "0 tokens"},
    {"d ", 11, "-0x1p+3", 5, "negative"},
    {"d ", 11, "0x1p+3x", 5, "a number is missing"},
    {"d ", 17, "9", 5, "keys are not as many"},
    {"d ", 17, "1048577", 5, "too many items"},
    {"d ", 17, "1048576", 5, "fewer items than the line says"},
    {"d ", 28, "1000000", 5, "fewer items than the line says"},
    {"d ", 28, "4", 5, "missing"},
    {"d ", 28, "2", 5, "whole number|more than the call has"},
    {"d ", 101, "2", 5, "a whole number is missing"},
    {"d ", 101, "0", 5, "more than the call has"},
    {"d ", 105, "65536", 5, "too large"},
    {"d ", 106, "65537", 5, "too large"},
    {"= ", 0, "==", 0, ""},
    {"o ", 2, "2", 7, "missing"},
    {"o ", 6, "inf", 7, "finite"},
    {"p ", 3, "4294967294", 9, "instance"},
    {"p ", 5, "77", 9, "class"},
    {"p ", 16, "0x0p+0 1", 9, "more than the call has"},
    {"g ", 2, "64", 0, "64"},
    {"g ", 2, "", 0, "a whole number is missing"},
};

static bool one_of(const char *said, const char *words)
{
    char   word[128];
    size_t len;

    for (;; words += len + 1) {
        len = strcspn(words, "|");
        snprintf(word, sizeof(word), "%.*s", (int)len, words);
        if (strstr(said, word) != NULL) {
            return true;
        }
        if (words[len] == '\0') {
            return false;
        }
    }
}

START_TEST(a_bad_field_is_refused_with_its_line)
{
    static char   changed[TEXT_MAX];
    const bad_t   *bad  = &bads[_i];
    const size_t  len   = with_field(changed, bad->line, bad->field, bad->value);
    const char    *words = "";
    unsigned long line   = refused(changed, len, &words);

    if (bad->words[0] == '\0') { /* an answer of any text is only different */
        ck_assert_uint_eq(line, 0);
        return;
    }
    ck_assert_msg(line != 0, "%s field %u as %s was taken", bad->line, bad->field, bad->value);
    ck_assert_msg((bad->at == 0) || (line == bad->at), "line %lu instead of %u: %s", line, bad->at, words);
    ck_assert_msg(one_of(words, bad->words), "field %u of %s as %s: %s", bad->field, bad->line, bad->value, words);
}
END_TEST

START_TEST(a_missing_answer_is_refused)
{
    static char   changed[TEXT_MAX];
    const char    *from = strstr(text, "\n= ") + 1, *to = strchr(from, '\n') + 1, *words = "";
    const size_t  start = (size_t)(from - text);
    unsigned long line;

    memcpy(changed, text, start);
    strcpy(changed + start, to);
    line = refused(changed, strlen(changed), &words);
    ck_assert_uint_eq(line, 6);
    ck_assert_ptr_nonnull(strstr(words, "the answer"));
}
END_TEST

/* A NUL would end the line for the reader, and hide what stands behind it. */
START_TEST(a_byte_of_zero_is_refused_anywhere)
{
    static char   changed[TEXT_MAX];
    const char    *words = "";
    unsigned long line;
    size_t        at;

    memcpy(changed, text, text_len);
    for (at = 0; at < text_len; ++at) {
        changed[at] = '\0';
        line        = refused(changed, text_len, &words);
        ck_assert_msg(line != 0, "a byte of zero at %zu, line %lu, is taken", at, lines_in(text, at));
        changed[at] = text[at];
    }
}
END_TEST

/* Any byte changed: it is refused with a line, or some answer differs, or it has the same answers. It ends. */
START_TEST(changed_bytes_end_with_a_line_or_an_answer)
{
    static char changed[TEXT_MAX];
    kvcl_rand_t random;
    const char  *words = "";
    size_t      at;
    unsigned    round, i;

    test_seed(&random);
    for (round = 0; round < 2000; ++round) {
        memcpy(changed, text, text_len);
        for (i = 0; i <= round % 3; ++i) {
            at          = kvcl_rand_below(&random, text_len);
            changed[at] = " 0123456789-+.xpdeo=\nnaif\377"[kvcl_rand_below(&random, 26)];
        }
        (void)refused(changed, text_len, &words);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decision logs");
    TCase *tcase = tcase_create("replay");

    tcase_add_checked_fixture(tcase, before, after);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, what_a_scheduler_wrote_is_answered_the_same);
    tcase_add_test(tcase, a_log_that_is_cut_at_any_byte_is_refused_there);
    tcase_add_loop_test(tcase, a_bad_field_is_refused_with_its_line, 0, sizeof(bads) / sizeof(bads[0]));
    tcase_add_test(tcase, a_missing_answer_is_refused);
    tcase_add_test(tcase, a_byte_of_zero_is_refused_anywhere);
    tcase_add_test(tcase, changed_bytes_end_with_a_line_or_an_answer);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
