/*
 * kvcl_info: the build, the settings and their sources, the machine, the paths between ranks, what others can reach.
 * Owns the choice of sections and their output as text (as JSON: info_json.c). In a job rank 0 prints for all ranks;
 * each rank contributes the paths to its peers (info_paths.c).
 */
#include "config.h"
#include "tools/info/info.h"

#include "tools/cli.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_START    4096u
#define EXIT_USAGE    2

static cli_result_t parse(info_options_t *opt, int argc, char **argv)
{
    const cli_option_t table[] = {
        {"build", CLI_FLAG, &opt->build, NULL, "the version and the build options", 0, 0},
        {"settings", CLI_FLAG, &opt->settings, NULL, "every KVCL_* variable: value, default, source, help", 0, 0},
        {"colls", CLI_FLAG, &opt->colls, NULL, "the collective algorithms and the table that chooses among them", 0, 0},
        {"topology", CLI_FLAG, &opt->topology, NULL, "this machine as the library detects it", 0, 0},
        {"copy", CLI_FLAG, &opt->copy, NULL, "how large copies are made, and the measured speeds (measures them if "
         "that was not done before)", 0, 0},
        {"paths", CLI_FLAG, &opt->paths, NULL, "the path from each rank to each other and to its memory (under mpirun "
         "or srun)", 0, 0},
        {"security", CLI_FLAG, &opt->security, NULL, "what others can reach of a rank with these settings, and what "
         "protects it", 0, 0},
        {"elastic", CLI_FLAG, &opt->elastic, NULL, "what this host can prove of the end of processes, and the settings "
         "of views", 0, 0},
        {"json", CLI_FLAG, &opt->json, NULL, "print one JSON object, with a member for each section", 0, 0},
    };
    const cli_spec_t spec = {"kvcl_info", "[options]",
                             "Print the version, settings and machine view of KVCL. Without options: all sections.",
                             table, sizeof(table) / sizeof(table[0])};
    cli_result_t     result;
    size_t           n;

    memset(opt, 0, sizeof(*opt));
    result = cli_parse(&spec, argc, argv, NULL, 0, &n);
    if (!opt->build && !opt->settings && !opt->colls && !opt->topology && !opt->copy && !opt->paths &&
        !opt->security && !opt->elastic) {
        opt->build = opt->settings = opt->colls = opt->topology = opt->copy = opt->paths = opt->security = true;
        opt->elastic = true;
    }
    return result;
}

static void print_setting(void *arg, const kvcl_setting_info_t *info)
{
    (void)arg;
    printf("  %-24s %-14s default %-14s from %s\n", info->name, (info->value[0] != '\0') ? info->value : "\"\"",
           (info->deflt[0] != '\0') ? info->deflt : "\"\"", info->source);
    printf("  %24s %s\n", "", info->help);
}

char *info_text(const job_t *job, const char *title, info_query_t query)
{
    size_t        len = 0, cap = TEXT_START;
    char          *text = malloc(cap), *grown;
    kvcl_status_t status = (text != NULL) ? query(text, cap, &len) : KVCL_ERR_NO_MEMORY;

    if (status == KVCL_ERR_TRUNCATED) {
        grown  = realloc(text, len);
        text   = (grown != NULL) ? grown : text;
        status = (grown != NULL) ? query(text, len, &len) : KVCL_ERR_NO_MEMORY;
    }
    if (!job_ok(job, status, title)) {
        free(text);
        return NULL;
    }
    return text;
}

/* Print the result of a query, each line indented. */
static bool print_text(const job_t *job, const char *title, info_query_t query)
{
    char *text = info_text(job, title, query), *line, *save = NULL;

    if (text == NULL) {
        return false;
    }
    printf("%s\n", title);
    for (line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        printf("  %s\n", line);
    }
    free(text);
    return true;
}

static bool print_line(const job_t *job, const char *title, info_query_t query)
{
    char *text = info_text(job, title, query);

    if (text != NULL) {
        printf("%s: %s\n", title, text);
    }
    free(text);
    return text != NULL;
}

static void print_path(void *arg, size_t from, size_t to, const info_path_t *path)
{
    (void)arg;
    printf("  %zu -> %zu  %s\n", from, to, path->path);
    printf("          memory that KVCL allocated: %s\n", path->allocated);
    printf("          memory that is registered:  %s\n", path->registered);
}

static void print_door(void *arg, const char *kind, const char *where, const char *what_protects)
{
    ++*(size_t *)arg;
    printf("  %-7s %s: %s\n", kind, where, what_protects);
}

static void print_proof(void *arg, const char *what, const char *why, const char *use)
{
    (void)arg;
    printf("  %-12s %s: %s\n", what, (why == NULL) ? "yes" : why, use);
}

/* The sections that need no job. */
static bool print_local(const job_t *job, const info_options_t *opt)
{
    bool good = true;

    if (opt->build) {
        printf("KVCL %s\n  %s\n", kvcl_version_string(), kvcl_build_string());
    }
    if (opt->settings) {
        printf("settings\n");
        good = job_ok(job, kvcl_query_settings(print_setting, NULL), "settings") && good;
    }
    if (opt->colls) {
        good = print_text(job, "collectives", kvcl_query_colls) && good;
        good = print_line(job, "NCCL", kvcl_query_nccl) && good;
    }
    if (opt->topology) {
        good = print_text(job, "topology", kvcl_query_topology) && good;
    }
    if (opt->copy) {
        good = print_text(job, "copy", kvcl_query_copy) && good;
    }
    if (opt->elastic) {
        printf("elastic: what this host can prove\n");
        info_elastic(print_proof, NULL);
        good = info_elastic_settings(job, print_setting, NULL) && good;
    }
    return good;
}

/* Collective where this process is in its job. */
static bool print_all(const job_t *job, const info_options_t *opt, bool joined)
{
    bool   good  = (job->rank != 0) || print_local(job, opt);
    size_t doors = 0;

    if (joined && opt->security && (job->rank == 0)) {
        printf("security: what others can reach of rank 0\n");
        good = info_security(job, print_door, &doors) && good;
        if (doors == 0) {
            printf("  nothing\n");
        }
    }
    if (joined && opt->paths && (job->rank == 0)) {
        good = print_line(job, "GPUDirect", kvcl_query_gpudirect) && good;
        printf("paths between %d rank%s\n", job->size, (job->size == 1) ? "" : "s");
    }
    return (!joined || !opt->paths || info_paths(job, print_path, NULL)) && good;
}

int main(int argc, char **argv)
{
    info_options_t opt;
    job_t          job = {.tool = "kvcl_info", .size = 1};
    bool           needs, joined, good;

    switch (parse(&opt, argc, argv)) {
    case CLI_DONE:
        return cli_finish("kvcl_info", EXIT_SUCCESS);
    case CLI_BAD:
        return EXIT_USAGE;
    case CLI_GO:
        break;
    }
    /* Only these two need the job, and a bad setting must be shown even where it forbids joining. */
    needs  = opt.paths || opt.security;
    joined = needs && job_open(&job, "kvcl_info");
    good   = opt.json ? info_json(&job, &opt, joined) : print_all(&job, &opt, joined);
    if (joined) {
        job_close(&job);
    }
    return cli_finish("kvcl_info", (good && (joined || !needs)) ? EXIT_SUCCESS : EXIT_FAILURE);
}
