/*
 * Owns what the options name: the work of a trace, and the models.
 */
#include "config.h"
#include "tools/sim/options.h"
#include "base/nearest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATED_REQUESTS 10000u

bool sim_options_work(const sim_options_t *opt, work_t *work)
{
    const size_t n = (opt->requests != 0) ? (size_t)opt->requests : GENERATED_REQUESTS;
    bool         good;

    work_init(work);
    if (opt->trace != NULL) {
        good = work_load(work, opt->trace, (size_t)opt->requests);
    } else {
        good = work_generate(work, strcmp(opt->generate, "agent") == 0, n, opt->config.seed);
        if (!good) {
            fprintf(stderr, "kvcl_sim: out of memory\n");
        }
    }
    if (!good || !work_sessions(work)) {
        work_free(work);
        return false;
    }
    work_arrive(work, opt->arrivals, opt->speed, opt->rate, opt->config.seed);
    return true;
}

/* The model file of a folder whose name is nearest to name, with .model or without; best keeps the name. */
static void nearest_in(const char *folder, const char *name, size_t *least_p, char *best, size_t best_len)
{
    DIR           *dir = opendir(folder);
    struct dirent *entry;
    size_t        distance, len;
    char          shorter[64];

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        len = strlen(entry->d_name);
        if ((len < 7) || (len - 6 >= sizeof(shorter)) || (strcmp(entry->d_name + len - 6, ".model") != 0)) {
            continue;
        }
        snprintf(shorter, sizeof(shorter), "%.*s", (int)(len - 6), entry->d_name);
        distance = kvcl_edit_distance(name, strlen(name), entry->d_name);
        if (kvcl_edit_distance(name, strlen(name), shorter) < distance) {
            distance = kvcl_edit_distance(name, strlen(name), shorter);
        }
        if (distance < *least_p) {
            *least_p = distance;
            snprintf(best, best_len, "%s", entry->d_name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* "; is it NAME?" of the models in the folder that the path names, or else here and among the installed ones. */
static void hint_model(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name  = (slash != NULL) ? slash + 1 : path;
    size_t     least  = 1 + ((strlen(name) + 1) / 3);
    char       folder[4096], best[256] = "";

    if (slash != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path + 1), path);
        nearest_in(folder, name, &least, best, sizeof(best));
    } else {
        nearest_in(".", name, &least, best, sizeof(best));
        nearest_in(KVCL_MODELS_DIR, name, &least, best, sizeof(best));
    }
    if (best[0] != '\0') {
        fprintf(stderr, "; is it %s?", best);
    }
}

static bool load_model(const char *option, const char *path, kvcl_sched_model_h *model_p)
{
    if (kvcl_sched_model_load(path, model_p) == KVCL_OK) {
        return true;
    }
    fprintf(stderr, "kvcl_sim: --%s: %s", option, kvcl_last_error());
    if (access(path, F_OK) != 0) {
        hint_model(path);
    }
    fprintf(stderr, "\n");
    return false;
}

/* What no option set is the model's. */
static bool fill_config(sim_config_t *config)
{
    kvcl_sched_model_info_t info = KVCL_SCHED_MODEL_INFO_INIT;

    if (kvcl_sched_model_info(config->model, &info) != KVCL_OK) {
        fprintf(stderr, "kvcl_sim: --model: %s\n", kvcl_last_error());
        return false;
    }
    config->pool_tokens = (config->pool_tokens == UINT64_MAX) ? (uint64_t)info.pool_tokens : config->pool_tokens;
    config->kv_tokens   = (config->kv_tokens == UINT64_MAX) ? (uint64_t)info.kv_tokens : config->kv_tokens;
    config->nic         = (config->nic > 0) ? config->nic : info.nic_bytes_s;
    config->stall       = (config->stall >= 0) ? config->stall : info.stall;
    config->overhead    = (config->overhead >= 0) ? config->overhead : info.schedule_s;
    if ((config->nic <= 0) || (info.kv_bytes <= 0)) {
        fprintf(stderr, "kvcl_sim: --model: it states no %s\n", (info.kv_bytes <= 0) ? "kv_bytes" : "nic; use --nic");
        return false;
    }
    return true;
}

char *sim_options_policy(const char **list_p)
{
    const char *list = *list_p + strspn(*list_p, SIM_BLANKS);
    size_t     len   = strcspn(list, SIM_BLANKS);

    *list_p = list + len;
    return (len != 0) ? strndup(list, len) : NULL;
}

static bool check_policy(const sim_options_t *opt, const char *option, const char *policy)
{
    kvcl_sched_params_t params = KVCL_SCHED_PARAMS_INIT;
    kvcl_sched_h        sched;

    if (kvcl_sched_create(policy, &opt->config.guess, 1, &params, &sched) != KVCL_OK) {
        fprintf(stderr, "kvcl_sim: --%s: %s\n", option, kvcl_last_error());
        return false;
    }
    kvcl_sched_destroy(sched);
    return true;
}

/* A policy that cannot be is refused before any work is read, and before any result is printed. */
static bool check_policies(const sim_options_t *opt)
{
    const char *list = opt->compare;
    char       *policy;
    bool       good = true;

    if ((opt->paper != NULL) || (opt->fit != NULL)) {
        return true;
    }
    if (list == NULL) {
        return check_policy(opt, "policy", opt->config.policy);
    }
    while (good && ((policy = sim_options_policy(&list)) != NULL)) {
        good = check_policy(opt, "compare", policy);
        free(policy);
    }
    return good;
}

bool sim_options_models(sim_options_t *opt)
{
    if (!load_model("model", opt->model, &opt->config.model)) {
        return false;
    }
    opt->config.guess      = opt->config.model;
    opt->config.guess_path = (opt->guess != NULL) ? opt->guess : opt->model;
    if ((opt->guess != NULL) && !load_model("guess", opt->guess, &opt->config.guess)) {
        opt->config.guess = opt->config.model;
        return false;
    }
    return fill_config(&opt->config) && check_policies(opt);
}

void sim_options_free(sim_options_t *opt)
{
    if (opt->config.guess != opt->config.model) {
        kvcl_sched_model_free(opt->config.guess);
    }
    kvcl_sched_model_free(opt->config.model);
}
