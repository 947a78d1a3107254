/*
 * The output of kvcl_info in two forms: text for people (kvcl_info.c) and one JSON object (info_json.c).
 */
#ifndef KVCL_TOOLS_INFO_INFO_H
#define KVCL_TOOLS_INFO_INFO_H

#include "tools/job.h"
#include "tools/memory_text.h"

typedef struct info_options {
    bool build;
    bool settings;
    bool colls;
    bool topology;
    bool copy;
    bool paths;
    bool security;
    bool elastic;
    bool json;
} info_options_t;

typedef kvcl_status_t (*info_query_t)(char *buf, size_t cap, size_t *len_p);

/* The result of a query, which the caller frees; NULL: the error was printed to stderr, with the title. */
char *info_text(const job_t *job, const char *title, info_query_t query);

enum { INFO_PATH_MAX = 192 };

/* From one rank to another: its path, and how its memory is reached, as text. */
typedef struct info_path {
    char path[INFO_PATH_MAX];
    char allocated[MEMORY_TEXT_MAX];  /* by kvcl_mem_alloc, as the memory of caches */
    char registered[MEMORY_TEXT_MAX]; /* the other rank's own, by kvcl_mem_register */
} info_path_t;

/* Collective: rank 0 calls fn for each pair of ranks, ordered by the second one. @return false: the error was printed
 * to stderr. */
typedef void (*info_path_fn_t)(void *arg, size_t from, size_t to, const info_path_t *path);
bool info_paths(const job_t *job, info_path_fn_t fn, void *arg);

/* fn for each thing of this process that other processes can reach: kind is "tcp", "unix" or "memory". In a job.
 * @return false: the error was printed to stderr. */
typedef void (*door_fn_t)(void *arg, const char *kind, const char *where, const char *protection);
bool info_security(const job_t *job, door_fn_t fn, void *arg);

/* fn for each capability of the kernel that views use: why is NULL where it is there. */
typedef void (*elastic_fn_t)(void *arg, const char *what, const char *why, const char *use);
void info_elastic(elastic_fn_t fn, void *arg);
/* fn for each setting of views. @return false: the error was printed to stderr. */
bool info_elastic_settings(const job_t *job, void (*fn)(void *arg, const kvcl_setting_info_t *info), void *arg);

/* One object with a member for each section that opt names; null for a section that could not be read. Collective if
 * joined: this process is in its job, as paths and security need. @return false if a section is null. */
bool info_json(const job_t *job, const info_options_t *opt, bool joined);

#endif
