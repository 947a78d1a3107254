/*
 * kvcl_info --json: the sections as one JSON object on stdout, in one line. Owns the parsing of the library's texts:
 * the build's line into its parts, the collectives into algorithms and the table's rows, the topology's indented lines
 * into a tree.
 */
#include "config.h"
#include "tools/info/info.h"

#include "tools/build_info.h"
#include "tools/json_out.h"

#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 128, WORD_MAX = 32, INDENT = 2 };

static void put_build(json_out_t *json)
{
    const char *text = kvcl_build_string();
    char       part[PART_MAX], *word, *save = NULL;

    json_open(json, "build", '{');
    json_string(json, "version", kvcl_version_string());
    json_count(json, "wire_version", build_part(text, "wire version", part, sizeof(part)) ? strtoull(part, NULL, 10) :
                                     0);
    (void)build_part(text, "ucx", part, sizeof(part));
    json_string(json, "ucx", part);
    (void)build_part(text, "boot", part, sizeof(part));
    json_open(json, "boot", '[');
    for (word = strtok_r(part, ", ", &save); word != NULL; word = strtok_r(NULL, ", ", &save)) {
        json_string(json, NULL, word);
    }
    json_close(json, ']');
    json_bool(json, "debug", strstr(text, "; debug") != NULL);
    if (build_part(text, "device memory", part, sizeof(part))) {
        json_string(json, "device_memory", part);
    } else {
        json_null(json, "device_memory");
    }
    (void)build_part(text, "hardening", part, sizeof(part));
    json_string(json, "hardening", part);
    json_string(json, "text", text);
    json_close(json, '}');
}

/* Opened with the first setting: the query calls back only if all settings are valid. */
typedef struct settings {
    json_out_t *json;
    bool       opened;
} settings_t;

static void put_setting(void *arg, const kvcl_setting_info_t *info)
{
    settings_t *settings = arg;

    if (!settings->opened) {
        json_open(settings->json, "settings", '[');
        settings->opened = true;
    }
    json_open(settings->json, NULL, '{');
    json_string(settings->json, "name", info->name);
    json_string(settings->json, "value", info->value);
    json_string(settings->json, "default", info->deflt);
    json_string(settings->json, "source", info->source);
    json_string(settings->json, "help", info->help);
    json_close(settings->json, '}');
}

static bool put_settings(const job_t *job, json_out_t *json)
{
    settings_t settings = {json, false};
    bool       good     = job_ok(job, kvcl_query_settings(put_setting, &settings), "settings");

    if (settings.opened) {
        json_close(json, ']');
    } else {
        json_null(json, "settings");
    }
    return good;
}

/* "bcast      flat           every rank pulls from the root" */
static void put_algorithm(json_out_t *json, const char *line)
{
    char kind[WORD_MAX], name[WORD_MAX];
    int  at = 0;

    if (sscanf(line, "%31s %31s %n", kind, name, &at) >= 2) {
        json_open(json, NULL, '{');
        json_string(json, "collective", kind);
        json_string(json, "name", name);
        json_string(json, "description", line + at);
        json_close(json, '}');
    }
}

/* Algorithms, then a line "table ...", then the rows of the table. */
static bool put_colls(const job_t *job, json_out_t *json)
{
    char *text = info_text(job, "collectives", kvcl_query_colls), *line, *save = NULL;

    if (text == NULL) {
        json_null(json, "collectives");
        return false;
    }
    json_open(json, "collectives", '{');
    json_open(json, "algorithms", '[');
    line = strtok_r(text, "\n", &save);
    for (; (line != NULL) && (strncmp(line, "table ", 6) != 0); line = strtok_r(NULL, "\n", &save)) {
        put_algorithm(json, line);
    }
    json_close(json, ']');
    json_open(json, "table", '[');
    while ((line != NULL) && ((line = strtok_r(NULL, "\n", &save)) != NULL)) {
        json_string(json, NULL, line);
    }
    json_close(json, ']');
    json_close(json, '}');
    free(text);
    return true;
}

static void close_node(json_out_t *json)
{
    json_close(json, ']');
    json_close(json, '}');
}

/* Each line is a node; the following lines with deeper indentation are its parts. */
static bool put_topology(const job_t *job, json_out_t *json)
{
    char   *text = info_text(job, "topology", kvcl_query_topology), *line, *save = NULL;
    size_t depth, open = 0;

    if (text == NULL) {
        json_null(json, "topology");
        return false;
    }
    json_open(json, "topology", '[');
    for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        depth = strspn(line, " ") / INDENT;
        depth = (depth < open) ? depth : open;
        for (; open > depth; --open) {
            close_node(json);
        }
        json_open(json, NULL, '{');
        json_string(json, "text", line + strspn(line, " "));
        json_open(json, "parts", '[');
        ++open;
    }
    for (; open > 0; --open) {
        close_node(json);
    }
    json_close(json, ']');
    free(text);
    return true;
}

static bool put_copy(const job_t *job, json_out_t *json)
{
    char *text = info_text(job, "copy", kvcl_query_copy), *line, *save = NULL;

    if (text == NULL) {
        json_null(json, "copy");
        return false;
    }
    json_open(json, "copy", '[');
    for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        json_string(json, NULL, line);
    }
    json_close(json, ']');
    free(text);
    return true;
}

static void put_path(void *arg, size_t from, size_t to, const info_path_t *path)
{
    json_out_t *json = arg;

    json_open(json, NULL, '{');
    json_count(json, "from", from);
    json_count(json, "to", to);
    json_string(json, "path", path->path);
    json_string(json, "allocated", path->allocated);
    json_string(json, "registered", path->registered);
    json_close(json, '}');
}

static void put_door(void *arg, const char *kind, const char *where, const char *protection)
{
    json_out_t *json = arg;

    json_open(json, NULL, '{');
    json_string(json, "kind", kind);
    json_string(json, "where", where);
    json_string(json, "protection", protection);
    json_close(json, '}');
}

static bool put_security(const job_t *job, json_out_t *json)
{
    bool good;

    json_open(json, "security", '[');
    good = info_security(job, put_door, json);
    json_close(json, ']');
    return good;
}

static bool put_line(const job_t *job, json_out_t *json, const char *title, const char *name, info_query_t query)
{
    char *text = info_text(job, title, query);

    if (text != NULL) {
        json_string(json, name, text);
    }
    free(text);
    return text != NULL;
}

static bool put_paths(const job_t *job, json_out_t *json)
{
    bool good;

    if (job->rank != 0) {
        return info_paths(job, NULL, NULL);
    }
    good = put_line(job, json, "GPUDirect", "gpudirect", kvcl_query_gpudirect);
    json_open(json, "paths", '[');
    good = info_paths(job, put_path, json) && good;
    json_close(json, ']');
    return good;
}

static void put_proof(void *arg, const char *what, const char *why, const char *use)
{
    json_out_t *json = arg;

    json_open(json, NULL, '{');
    json_string(json, "what", what);
    json_bool(json, "works", why == NULL);
    json_string(json, "why", (why != NULL) ? why : "");
    json_string(json, "use", use);
    json_close(json, '}');
}

static bool put_elastic(const job_t *job, json_out_t *json)
{
    settings_t settings = {json, false};
    bool       good;

    json_open(json, "elastic", '{');
    json_open(json, "proofs", '[');
    info_elastic(put_proof, json);
    json_close(json, ']');
    good = info_elastic_settings(job, put_setting, &settings);
    if (settings.opened) {
        json_close(json, ']');
    } else {
        json_null(json, "settings");
    }
    json_close(json, '}');
    return good;
}

bool info_json(const job_t *job, const info_options_t *opt, bool joined)
{
    bool       good = true;
    json_out_t json;

    if (job->rank != 0) {
        return !joined || !opt->paths || put_paths(job, &json);
    }
    json_begin(&json, stdout);
    if (opt->build) {
        put_build(&json);
    }
    if (opt->settings) {
        good = put_settings(job, &json);
    }
    if (opt->colls) {
        good = put_colls(job, &json) && good;
        good = put_line(job, &json, "NCCL", "nccl", kvcl_query_nccl) && good;
    }
    if (opt->topology) {
        good = put_topology(job, &json) && good;
    }
    if (opt->copy) {
        good = put_copy(job, &json) && good;
    }
    if (opt->elastic) {
        good = put_elastic(job, &json) && good;
    }
    if (joined && opt->security) {
        good = put_security(job, &json) && good;
    } else if (opt->security) {
        json_null(&json, "security");
        good = false;
    }
    if (joined && opt->paths) {
        json_count(&json, "ranks", (uint64_t)job->size);
        good = put_paths(job, &json) && good;
    } else if (opt->paths) {
        json_null(&json, "paths");
        good = false;
    }
    json_end(&json);
    return good;
}
