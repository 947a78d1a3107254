/*
 * Settings as tables: one row a KVCL_* variable, one C struct that receives the values.
 *
 * The table is static data; the struct and the array of sources are the caller's. Strings in the
 * struct are malloc'ed by load and freed by kvcl_settings_free. getenv() is called in settings.c
 * only (kvcl_settings_getenv), and only while a context is created. No lock.
 */
#ifndef KVCL_BASE_SETTINGS_H
#define KVCL_BASE_SETTINGS_H

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

/* The type of the struct member at `offset` stands on the right. */
typedef enum {
    KVCL_SETTING_STRING, /* char *  (NULL when the default is NULL or the value is empty) */
    KVCL_SETTING_BOOL,   /* int     0 or 1: y/n, yes/no, on/off, true/false, 1/0 */
    KVCL_SETTING_INT,    /* int64_t */
    KVCL_SETTING_SIZE,   /* uint64_t bytes, units.h */
    KVCL_SETTING_TIME,   /* uint64_t ns, units.h */
    KVCL_SETTING_ENUM    /* int     index into enum_names */
} kvcl_setting_type_t;

typedef enum {
    KVCL_SOURCE_DEFAULT,
    KVCL_SOURCE_ENVIRONMENT,
    KVCL_SOURCE_PARAM
} kvcl_setting_source_t;

typedef struct kvcl_setting {
    const char         *name;  /* "KVCL_SPIN" */
    const char         *dflt;  /* as a user would write it; NULL only for STRING */
    const char         *help;  /* one sentence */
    kvcl_setting_type_t type;
    size_t              offset;
    int64_t             min;   /* INT, SIZE, TIME: bounds, both inclusive; both 0: none */
    int64_t             max;   /* SIZE, TIME: -1 allows all up to "unlimited" */
    const char *const  *enum_names; /* ENUM: NULL-terminated */
} kvcl_setting_t;

/* A table ends with a row whose name is NULL. */
#define KVCL_SETTING_END {NULL, NULL, NULL, KVCL_SETTING_STRING, 0, 0, 0, NULL}

/* Returns the value or NULL. kvcl_settings_getenv is the usual one. */
typedef const char *(*kvcl_settings_lookup_t)(void *arg, const char *name);

const char *kvcl_settings_getenv(void *unused, const char *name);

/**
 * Fill the struct from defaults, then from what lookup knows. @a dst is zeroed memory (or was freed by
 * kvcl_settings_free). On error everything loaded so far is freed and zeroed.
 * @param sources [out]  one per row, may be NULL.
 * @return KVCL_OK, KVCL_ERR_NO_MEMORY, or KVCL_ERR_INVALID_PARAM with a sentence that names the variable,
 *         its value and what is accepted.
 */
kvcl_status_t kvcl_settings_load(const kvcl_setting_t *table, void *dst,
                                 kvcl_settings_lookup_t lookup, void *lookup_arg,
                                 kvcl_setting_source_t *sources) KVCL_MUST_CHECK;

/**
 * Set one row by its name from a string, as if from @a source (e.g. params of the caller).
 * @return as load, and KVCL_ERR_NOT_FOUND for a name the table lacks. On error nothing changes.
 */
kvcl_status_t kvcl_settings_set(const kvcl_setting_t *table, void *dst, const char *name,
                                const char *value, kvcl_setting_source_t source,
                                kvcl_setting_source_t *sources) KVCL_MUST_CHECK;

void kvcl_settings_free(const kvcl_setting_t *table, void *dst);

/** The value of row @a i as text ("" for a NULL string; the default's text where it is the default). Returns buf. */
const char *kvcl_settings_format(const kvcl_setting_t *table, size_t i, const void *src,
                                 char *buf, size_t len);

const char *kvcl_setting_source_name(kvcl_setting_source_t source); /* default, environment, param */

/**
 * Warn (log) for each KVCL_* variable of @a environ_p that no table has, with the nearest name.
 * @param tables  NULL-terminated array of tables.
 * @return how many were unknown.
 */
size_t kvcl_settings_check_unknown(char *const *environ_p, const kvcl_setting_t *const *tables);

#endif
