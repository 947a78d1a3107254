/*
 * Model files (kvcl_sched_model.h): lines of a word and its values. The text is hostile: lengths are checked before
 * contents, numbers must be finite and not negative, and nothing of a text with an error is kept. A reader_t owns what
 * it has read until the model takes it. Pure.
 */
#include "config.h"
#include "sched/predict/model.h"
#include "sched/predict/text.h"
#include "base/error.h"
#include "handle/handle.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 256, ROWS_MAX = 4096, TEXT_MAX = 1024 };

typedef struct reader {
    struct kvcl_sched_model model;
    double                  roof[R_ALL];
    unsigned                n_roof;
    const char              *file;
    const char              *line;  /* the current line, its length without comment */
    size_t                  len;
    size_t                  at;     /* next byte of it */
    size_t                  number; /* of the line, from 1 */
    double                  value[VALUES_MAX];
    size_t                  n;
    uint64_t                seen;   /* words that may occur once, by index */
} reader_t;

typedef struct word {
    const char    *name;
    size_t        least, most; /* values; 0, 0: the rest of the line is text */
    kvcl_status_t (*read)(reader_t *reader, size_t arg);
    size_t        arg;
    bool          many;
} word_t;

static kvcl_status_t wrong(const reader_t *reader, size_t column, const char *what, const char *hint)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "%s:%zu:%zu: %s%s", reader->file, reader->number, column + 1, what, hint);
}

/* ---- words ---- */

static kvcl_status_t read_text(reader_t *reader, size_t arg)
{
    char   **to  = (char **)(void *)((char *)&reader->model + arg);
    size_t len   = reader->len - reader->at;

    if (len == 0) {
        return wrong(reader, reader->at, "a text is missing", "");
    }
    if (len > TEXT_MAX) {
        return wrong(reader, reader->at, "the text has more than 1024 bytes", "");
    }
    *to = strndup(reader->line + reader->at, len);
    return (*to == NULL) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a model's text") : KVCL_OK;
}

static kvcl_status_t read_version(reader_t *reader, size_t arg)
{
    (void)arg;
    return (reader->value[0] == 1) ? KVCL_OK :
           wrong(reader, 0, "this library reads version 1 of model files only", "");
}

static kvcl_status_t read_info(reader_t *reader, size_t arg)
{
    memcpy((char *)&reader->model.info + arg, &reader->value[0], sizeof(double));
    return KVCL_OK;
}

/* Counted in 64 bits; a fraction would become 0, "not stated". arg 0: max_batch, else the place of tokens. */
static kvcl_status_t read_count(reader_t *reader, size_t arg)
{
    const double value = reader->value[0];

    if ((value > ((arg == 0) ? 1e9 : 1e15)) || ((double)(uint64_t)value != value)) {
        return wrong(reader, 0, "a whole number is needed, at most ", (arg == 0) ? "1e9 requests" : "1e15 tokens");
    }
    reader->model.info.max_batch = (arg == 0) ? (uint64_t)value : reader->model.info.max_batch;
    return (arg == 0) ? KVCL_OK : read_info(reader, arg);
}

static kvcl_status_t read_roof(reader_t *reader, size_t arg)
{
    if (reader->value[0] <= 0) {
        return wrong(reader, 0, "a number of a roofline must be above 0", "");
    }
    reader->roof[arg] = reader->value[0];
    ++reader->n_roof;
    return KVCL_OK;
}

static kvcl_status_t read_prefill(reader_t *reader, size_t arg)
{
    struct kvcl_sched_model *model = &reader->model;

    (void)arg;
    model->a           = reader->value[0];
    model->b           = reader->value[1];
    model->c           = reader->value[2];
    model->d           = reader->value[3];
    model->has_prefill = true;
    return KVCL_OK;
}

static bool takes_no_time(const kvcl_model_piece_t *piece)
{
    return !(piece->base + piece->batch + piece->context > 0);
}

/* arg 0: decode; 1: decode_from, whose first value is the batch */
static kvcl_status_t read_decode(reader_t *reader, size_t arg)
{
    struct kvcl_sched_model *model = &reader->model;
    kvcl_model_piece_t      *piece = &model->piece[model->n_pieces];
    const double            from   = (arg == 1) ? reader->value[0] : 0;

    if (model->n_pieces == KVCL_MODEL_PIECES) {
        return wrong(reader, 0, "more than 8 lines decode and decode_from", "");
    }
    if ((arg == 1) && ((model->n_pieces == 0) || (from <= piece[-1].from))) {
        return wrong(reader, 0, "decode_from needs a line decode before it, and a rising batch", "");
    }
    piece->from    = from;
    piece->base    = reader->value[arg];
    piece->batch   = reader->value[arg + 1];
    piece->context = reader->value[arg + 2];
    ++model->n_pieces;
    return takes_no_time(piece) ? wrong(reader, 0, "a decode step must take time: one of its constants is above 0", "")
                                : KVCL_OK;
}

static kvcl_status_t read_columns(reader_t *reader, size_t arg)
{
    kvcl_model_table_t *table = (kvcl_model_table_t *)(void *)((char *)&reader->model + arg);
    size_t             i;

    for (i = 1; i < reader->n; ++i) {
        if (reader->value[i] <= reader->value[i - 1]) {
            return wrong(reader, 0, "the columns of a table must rise", "");
        }
    }
    table->col  = malloc(reader->n * sizeof(*table->col));
    table->row  = malloc(ROWS_MAX * sizeof(*table->row));
    table->cell = malloc(ROWS_MAX * reader->n * sizeof(*table->cell));
    if ((table->col == NULL) || (table->row == NULL) || (table->cell == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a model's table of %zu columns", reader->n);
    }
    memcpy(table->col, reader->value, reader->n * sizeof(*table->col));
    table->cols = reader->n;
    return KVCL_OK;
}

static kvcl_status_t read_row(reader_t *reader, size_t arg)
{
    kvcl_model_table_t *table = (kvcl_model_table_t *)(void *)((char *)&reader->model + arg);

    if (table->cols == 0) {
        return wrong(reader, 0, "a row comes before the line of its table's columns", "");
    }
    if (reader->n != table->cols + 1) {
        return wrong(reader, 0, "a row has its first number and one of each column", "");
    }
    if (table->rows == ROWS_MAX) {
        return wrong(reader, 0, "a table has more than 4096 rows", "");
    }
    if ((table->rows > 0) && (reader->value[0] <= table->row[table->rows - 1])) {
        return wrong(reader, 0, "the rows of a table must rise", "");
    }
    table->row[table->rows] = reader->value[0];
    memcpy(&table->cell[table->rows * table->cols], &reader->value[1], table->cols * sizeof(double));
    ++table->rows;
    return KVCL_OK;
}

/* Sums over the steps of a batch need seconds that do not fall as its context grows. */
static kvcl_status_t read_decode_row(reader_t *reader, size_t arg)
{
    size_t i;

    for (i = 1; i < reader->n; ++i) {
        if (reader->value[i] <= 0) {
            return wrong(reader, 0, "a decode step must take time: its seconds are above 0", "");
        }
        if ((i > 1) && (reader->value[i] < reader->value[i - 1])) {
            return wrong(reader, 0, "the seconds of a decode_row must not fall with the context; "
                         "where measured ones do, repeat the largest before", "");
        }
    }
    return read_row(reader, arg);
}

#define INFO_BY(_read, _name, _field) {_name, 1, 1, _read, offsetof(kvcl_sched_model_info_t, _field), false}
#define INFO(_name, _field)           INFO_BY(read_info, _name, _field)
#define MODEL(_field)                 offsetof(struct kvcl_sched_model, _field)

static const word_t words[] = {
    {"kvcl-model", 1, 1, read_version, 0, false},
    {"name", 0, 0, read_text, MODEL(name), false},
    {"source", 0, 0, read_text, MODEL(source), false},
    {"prefill", 4, 4, read_prefill, 0, false},
    INFO("prefill_error", prefill_error),
    {"decode", 3, 3, read_decode, 0, false},
    {"decode_from", 4, 4, read_decode, 1, true},
    INFO("decode_error", decode_error),
    INFO("transfer_error", transfer_error),
    {"prefill_prefix", 1, VALUES_MAX - 1, read_columns, MODEL(prefill_table), false},
    {"prefill_row", 2, VALUES_MAX, read_row, MODEL(prefill_table), true},
    {"decode_context", 1, VALUES_MAX - 1, read_columns, MODEL(decode_table), false},
    {"decode_row", 2, VALUES_MAX, read_decode_row, MODEL(decode_table), true},
    INFO("kv_bytes", kv_bytes),
    INFO_BY(read_count, "kv_tokens", kv_tokens),
    INFO_BY(read_count, "pool_tokens", pool_tokens),
    INFO("nic", nic_bytes_s),
    INFO("load", load_bytes_s),
    INFO("schedule", schedule_s),
    INFO("stall", stall),
    INFO("start", stage_s),
    {"max_batch", 1, 1, read_count, 0, false},
    {"layers", 1, 1, read_roof, R_LAYERS, false},
    {"width", 1, 1, read_roof, R_WIDTH, false},
    {"attention", 1, 1, read_roof, R_ATTENTION, false},
    {"linear", 1, 1, read_roof, R_LINEAR, false},
    {"weight_bytes", 1, 1, read_roof, R_WEIGHTS, false},
    {"flops", 1, 1, read_roof, R_FLOPS, false},
    {"memory", 1, 1, read_roof, R_MEMORY, false},
    {"eff_attention", 1, 1, read_roof, R_EFF_ATT, false},
    {"eff_linear", 1, 1, read_roof, R_EFF_LIN, false},
    {"eff_memory", 1, 1, read_roof, R_EFF_MEM, false}};

enum { WORDS = sizeof(words) / sizeof(words[0]) };

/* ---- lines ---- */

static void skip_blanks(reader_t *reader)
{
    while ((reader->at < reader->len) && ((reader->line[reader->at] == ' ') || (reader->line[reader->at] == '\t'))) {
        ++reader->at;
    }
}

static size_t next_word(reader_t *reader)
{
    const size_t from = reader->at;

    while ((reader->at < reader->len) && (reader->line[reader->at] != ' ') && (reader->line[reader->at] != '\t')) {
        ++reader->at;
    }
    return from;
}

static kvcl_status_t read_values(reader_t *reader, const word_t *word)
{
    size_t from;

    for (reader->n = 0; reader->at < reader->len; ++reader->n, skip_blanks(reader)) {
        from = next_word(reader);
        if (reader->n == word->most) {
            return wrong(reader, from, "too many numbers for ", word->name);
        }
        if (!kvcl_sched_number(reader->line + from, reader->at - from, &reader->value[reader->n])) {
            return wrong(reader, from, "this is no number of 0 or more", "");
        }
    }
    return (reader->n < word->least) ? wrong(reader, reader->at, "too few numbers for ", word->name) : KVCL_OK;
}

static kvcl_status_t read_line(reader_t *reader)
{
    char         hint[96];
    kvcl_status_t status;
    size_t       i, from;

    skip_blanks(reader);
    if (reader->at == reader->len) {
        return KVCL_OK;
    }
    from = next_word(reader);
    for (i = 0; i < WORDS; ++i) {
        if ((strlen(words[i].name) == reader->at - from) &&
            (memcmp(words[i].name, reader->line + from, reader->at - from) == 0)) {
            break;
        }
    }
    if (i == WORDS) {
        return wrong(reader, from, "unknown word",
                     kvcl_sched_hint(hint, sizeof(hint), reader->line + from, reader->at - from, &words[0].name,
                                     sizeof(words[0]), WORDS));
    }
    if (((reader->seen & 1) == 0) && (i != 0)) {
        return wrong(reader, from, "the first line must be: kvcl-model 1", "");
    }
    if (!words[i].many && (((reader->seen >> i) & 1) != 0)) {
        return wrong(reader, from, "a second line of ", words[i].name);
    }
    reader->seen |= UINT64_C(1) << i;
    skip_blanks(reader);
    status = (words[i].most == 0) ? KVCL_OK : read_values(reader, &words[i]);
    return (status == KVCL_OK) ? words[i].read(reader, words[i].arg) : status;
}

static kvcl_status_t read_lines(reader_t *reader, const char *text, size_t len)
{
    kvcl_status_t status = KVCL_OK;
    const char    *end, *comment;
    size_t        at;

    for (at = 0; (status == KVCL_OK) && (at < len); at += (size_t)(end - reader->line) + 1) {
        reader->line = text + at;
        end          = memchr(reader->line, '\n', len - at);
        end          = (end == NULL) ? text + len : end;
        comment      = memchr(reader->line, '#', (size_t)(end - reader->line));
        reader->len  = (size_t)(((comment == NULL) ? end : comment) - reader->line);
        reader->at   = 0;
        ++reader->number;
        while ((reader->len > 0) && (strchr(" \t\r", reader->line[reader->len - 1]) != NULL)) {
            --reader->len;
        }
        if (memchr(reader->line, '\0', reader->len) != NULL) {
            return wrong(reader, 0, "the line has a byte 0: this is no text", "");
        }
        status = read_line(reader);
    }
    return status;
}

/* ---- the whole ---- */

static kvcl_status_t check_whole(reader_t *reader)
{
    struct kvcl_sched_model *model = &reader->model;

    if ((model->name == NULL) || (model->source == NULL)) {
        return wrong(reader, 0, "the text ends without a line name, or source", "");
    }
    if ((reader->n_roof > 0) && ((reader->n_roof < R_ALL) || model->has_prefill || (model->n_pieces > 0) ||
                                 (model->info.kv_bytes <= 0) || (model->info.load_bytes_s <= 0))) {
        return wrong(reader, 0, "a roofline needs all of its ten numbers, kv_bytes and load, and neither prefill nor "
                     "decode", "");
    }
    if (reader->n_roof > 0) {
        kvcl_model_roofline(model, reader->roof);
    }
    if ((reader->n_roof > 0) && takes_no_time(&model->piece[0])) {
        return wrong(reader, 0, "the decode step of this roofline takes no time", "");
    }
    if (!model->has_prefill && (model->prefill_table.rows == 0)) {
        return wrong(reader, 0, "the text ends without prefill, a table of prefills, or a roofline", "");
    }
    if (((model->prefill_table.cols > 0) && (model->prefill_table.rows == 0)) ||
        ((model->decode_table.cols > 0) && (model->decode_table.rows == 0))) {
        return wrong(reader, 0, "the text ends without the rows of a table", "");
    }
    if ((model->prefill_table.cols > 0) && (model->prefill_table.col[0] != 0)) {
        return wrong(reader, 0, "the first of prefill_prefix must be 0", "");
    }
    if (((model->info.nic_bytes_s > 0) && (model->info.nic_bytes_s < 1)) ||
        ((model->info.load_bytes_s > 0) && (model->info.load_bytes_s < 1)) || (model->info.kv_bytes > 1e12)) {
        return wrong(reader, 0, "nic and load are bytes a second, at least 1; kv_bytes is at most 1e12", "");
    }
    return (model->info.stall > 1) ? wrong(reader, 0, "stall is above 1", "") : KVCL_OK;
}

kvcl_status_t kvcl_sched_model_parse(const char *name, const char *text, size_t len, kvcl_sched_model_h *model_p)
{
    struct kvcl_sched_model *model;
    reader_t                *reader;
    kvcl_status_t           status;

    if ((model_p == NULL) || ((text == NULL) && (len > 0))) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "kvcl_sched_model_parse: text or model_p is NULL");
    }
    reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory to read the model %s", (name == NULL) ? "" : name);
    }
    reader->file                       = (name == NULL) ? "model" : name;
    reader->model.info.size            = sizeof(reader->model.info);
    reader->model.info.prefill_error   = -1;
    reader->model.info.decode_error    = -1;
    reader->model.info.transfer_error  = -1;
    status = read_lines(reader, text, len);
    status = (status == KVCL_OK) ? check_whole(reader) : status;
    model  = (status == KVCL_OK) ? kvcl_object_alloc(KVCL_KIND_SCHED_MODEL, sizeof(*model)) : NULL;
    if (model != NULL) {
        *model   = reader->model;
        *model_p = model;
    } else {
        kvcl_model_fini(&reader->model);
        status = (status == KVCL_OK) ? kvcl_fail(KVCL_ERR_NO_MEMORY, "no memory for a model") : status;
    }
    free(reader);
    return status;
}
