/*
 * Policy strings: "prefill=global:threshold=2,decode=load,admit=er,queue=fcfs". Errors name the column and the nearest
 * known name. Pure.
 */
#include "config.h"
#include "sched/sched.h"
#include "sched/predict/text.h"
#include "base/error.h"

#include <string.h>

enum { TEXT_MAX = 1024, HINT_MAX = 96 };

typedef struct cursor {
    const char *text; /* the whole */
    const char *at;
} cursor_t;

/* A key of every policy of placement: from which age on a report is old. */
static const kvcl_policy_key_t stale = {"stale", 30, 0.001, 1e9};

static const char *const defaults[KVCL_POLICY_KINDS] = {"kvcl", "load", "all", "fcfs"};

static kvcl_status_t wrong(const cursor_t *cursor, const char *at, const char *what, const char *hint)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "policy, column %zu: %s at \"%.24s\"%s", (size_t)(at - cursor->text) + 1,
                     what, at, hint);
}

static bool same(const char *name, const char *word, size_t len)
{
    return (name != NULL) && (strlen(name) == len) && (memcmp(name, word, len) == 0);
}

/* The bytes up to one of the separators. */
static size_t next(cursor_t *cursor, const char *separators, const char **word_p)
{
    const size_t len = strcspn(cursor->at, separators);

    *word_p     = cursor->at;
    cursor->at += len;
    return len;
}

static const kvcl_policy_t *find(kvcl_policy_kind_t kind, const char *word, size_t len)
{
    size_t i;

    for (i = 0; i < kvcl_n_policies; ++i) {
        if ((kvcl_policies[i]->kind == kind) && same(kvcl_policies[i]->name, word, len)) {
            return kvcl_policies[i];
        }
    }
    return NULL;
}

static void choose(kvcl_choice_t *choice, const kvcl_policy_t *policy)
{
    size_t i;

    choice->policy  = policy;
    choice->stale_s = stale.dflt;
    for (i = 0; i < KVCL_POLICY_KEYS; ++i) {
        choice->arg[i] = policy->keys[i].dflt;
    }
}

static kvcl_status_t unknown_policy(const cursor_t *cursor, kvcl_policy_kind_t kind, const char *word, size_t len)
{
    const char *names[64];
    char       hint[HINT_MAX];
    size_t     i, n = 0;

    for (i = 0; (i < kvcl_n_policies) && (n < sizeof(names) / sizeof(names[0])); ++i) {
        if (kvcl_policies[i]->kind == kind) {
            names[n++] = kvcl_policies[i]->name;
        }
    }
    return wrong(cursor, word, "no such policy", kvcl_sched_hint(hint, sizeof(hint), word, len, names, sizeof(names[0]),
                                                                 n));
}

/* ":key=value" */
static kvcl_status_t read_key(cursor_t *cursor, kvcl_choice_t *choice)
{
    const bool              placing = choice->policy->kind == KVCL_POLICY_PREFILL;
    const kvcl_policy_key_t *keys   = choice->policy->keys, *key;
    const char              *word, *number, *names[KVCL_POLICY_KEYS + 1];
    char                    hint[HINT_MAX];
    size_t                  i, len;
    double                  value;

    ++cursor->at;
    len = next(cursor, "=:,", &word);
    for (i = 0; (i < KVCL_POLICY_KEYS) && !same(keys[i].name, word, len); ++i) {
        names[i] = keys[i].name;
    }
    key = (i < KVCL_POLICY_KEYS) ? &keys[i] : &stale;
    if ((i == KVCL_POLICY_KEYS) && (!placing || !same(stale.name, word, len))) {
        names[i] = placing ? stale.name : NULL;
        return wrong(cursor, word, "the policy has no such key",
                     kvcl_sched_hint(hint, sizeof(hint), word, len, names, sizeof(names[0]), KVCL_POLICY_KEYS + 1));
    }
    if (*cursor->at != '=') {
        return wrong(cursor, cursor->at, "a key needs =VALUE", "");
    }
    ++cursor->at;
    len = next(cursor, ":,", &number);
    if (!kvcl_sched_number(number, len, &value)) {
        return wrong(cursor, number, "this is no number of 0 or more", "");
    }
    if ((value < key->min) || (value > key->max)) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "policy, column %zu: %s is from %g to %g",
                         (size_t)(number - cursor->text) + 1, key->name, key->min, key->max);
    }
    if (key == &stale) {
        choice->stale_s = value;
    } else {
        choice->arg[i] = value;
    }
    return KVCL_OK;
}

/* "kind=name:key=value..." */
static kvcl_status_t read_item(cursor_t *cursor, kvcl_choice_t choice[KVCL_POLICY_KINDS], unsigned *seen)
{
    const kvcl_policy_t *policy;
    const char          *word;
    char                hint[HINT_MAX];
    size_t              kind, len = next(cursor, "=:,", &word);
    kvcl_status_t       status = KVCL_OK;

    for (kind = 0; (kind < KVCL_POLICY_KINDS) && !same(kvcl_policy_kinds[kind], word, len); ++kind) {
    }
    if ((kind == KVCL_POLICY_KINDS) || (*cursor->at != '=')) {
        return wrong(cursor, word, "one of prefill=, decode=, admit=, queue= is expected",
                     kvcl_sched_hint(hint, sizeof(hint), word, len, kvcl_policy_kinds, sizeof(char *),
                                     KVCL_POLICY_KINDS));
    }
    if ((*seen & (1u << kind)) != 0) {
        return wrong(cursor, word, "this occurs twice", "");
    }
    *seen |= 1u << kind;
    ++cursor->at;
    len    = next(cursor, ":,", &word);
    policy = find((kvcl_policy_kind_t)kind, word, len);
    if (policy == NULL) {
        return unknown_policy(cursor, (kvcl_policy_kind_t)kind, word, len);
    }
    choose(&choice[kind], policy);
    while ((status == KVCL_OK) && (*cursor->at == ':')) {
        status = read_key(cursor, &choice[kind]);
    }
    return status;
}

kvcl_status_t kvcl_policy_parse(const char *text, kvcl_choice_t choice[KVCL_POLICY_KINDS])
{
    cursor_t      cursor = {.text = text, .at = text};
    kvcl_status_t status = KVCL_OK;
    unsigned      seen   = 0;
    size_t        kind;

    if (strnlen(text, TEXT_MAX) == TEXT_MAX) {
        return kvcl_fail(KVCL_ERR_INVALID_PARAM, "the policy has more than %d bytes", TEXT_MAX - 1);
    }
    for (kind = 0; kind < KVCL_POLICY_KINDS; ++kind) {
        choose(&choice[kind], find((kvcl_policy_kind_t)kind, defaults[kind], strlen(defaults[kind])));
    }
    while ((status == KVCL_OK) && (*cursor.at != '\0')) {
        status = read_item(&cursor, choice, &seen);
        if ((status == KVCL_OK) && (*cursor.at == ',')) {
            ++cursor.at;
            status = (*cursor.at != '\0') ? KVCL_OK : wrong(&cursor, cursor.at, "something must follow the comma", "");
        }
    }
    return status;
}
