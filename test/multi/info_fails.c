/*
 * kvcl_info --paths where one of three ranks fails, before it has described its memory or while it queries that of
 * others: every rank ends, and names that rank. This program's kvcl_mem_export and kvcl_query_memory fail there.
 */
#include "start_ranks.h"
#include "tools/info/info.h"

#include <dlfcn.h>
#include <string.h>

enum { RANKS = 3, FAILING = 1 };

typedef enum { AT_EXPORT, AT_QUERY, PHASES } phase_t;

static phase_t phase;
static int     me;

kvcl_status_t kvcl_mem_export(kvcl_mem_h mem, unsigned rights, void *buf, size_t *len_p)
{
    void          *symbol = dlsym(RTLD_NEXT, "kvcl_mem_export");
    kvcl_status_t (*next)(kvcl_mem_h, unsigned, void *, size_t *);

    memcpy(&next, &symbol, sizeof(next));
    return ((me == FAILING) && (phase == AT_EXPORT)) ? KVCL_ERR_NO_MEMORY : next(mem, rights, buf, len_p);
}

kvcl_status_t kvcl_query_memory(kvcl_comm_h comm, int rank, kvcl_memory_cb_t cb, void *arg)
{
    void          *symbol = dlsym(RTLD_NEXT, "kvcl_query_memory");
    kvcl_status_t (*next)(kvcl_comm_h, int, kvcl_memory_cb_t, void *);

    memcpy(&next, &symbol, sizeof(next));
    return ((me == FAILING) && (phase == AT_QUERY)) ? KVCL_ERR_NO_MEMORY : next(comm, rank, cb, arg);
}

static void ignore(void *arg, size_t from, size_t to, const info_path_t *path)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)path;
}

/* What the rank has printed to its standard error. */
static bool has_printed(const char *name, const char *text)
{
    FILE *file = fopen(name, "r");
    char line[1024];
    bool found = false;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        fputs(line, stdout);
        found = found || (strstr(line, text) != NULL);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static int live(const void *arg, int rank)
{
    const char *folder = arg;
    char       name[256];
    job_t      job;
    bool       good;

    me = rank;
    snprintf(name, sizeof(name), "%s/err.%d.%d", folder, (int)phase, rank);
    if ((freopen(name, "w", stderr) == NULL) || !job_open(&job, "kvcl_info")) {
        return 1;
    }
    good = info_paths(&job, ignore, NULL);
    job_close(&job);
    fflush(stderr);
    if (good || !has_printed(name, (rank != FAILING)      ? "rank 1 failed"
                                   : (phase == AT_EXPORT) ? "kvcl_mem_export" : "kvcl_query_memory")) {
        printf("phase %d, rank %d: it %s\n", (int)phase, rank, good ? "has not failed" : "does not name rank 1");
        fflush(stdout);
        return 1;
    }
    return 0;
}

int main(void)
{
    char     folder[] = "/tmp/kvcl-info-XXXXXX", command[64];
    pid_t    pids[RANKS];
    unsigned failed = 0;
    int      i;

    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    for (phase = AT_EXPORT; phase < PHASES; ++phase) {
        start_ranks(RANKS, live, folder, pids);
        for (i = 0; i < RANKS; ++i) {
            failed += !rank_ends_well(pids[i]);
        }
    }
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    (void)!system(command);
    return (failed == 0) ? 0 : 1;
}
