/*
 * Which algorithm: a table as one readable string.
 *
 *   row   = collective : path : bytes : algorithm [ : ranks ]        rows are separated by commas
 *   path  = shm | net | stage | any   bytes, ranks = from-to: from <= x < to, to may be "inf"
 *
 * e.g. "bcast:shm:0-inf:flat:2-17,bcast:net:0-256K:binomial". The first row that fits wins; the rows of
 * KVCL_COLL_TABLE stand before the built-in ones, which fit everything. bytes is the shape's len (for
 * an allgather per rank). The table must be equal on all ranks. No allocation, no lock: read-only once
 * parsed.
 */
#ifndef KVCL_COLLECTIVES_SELECT_H
#define KVCL_COLLECTIVES_SELECT_H

#include "collectives/coll.h"

#include <kvcl/kvcl_status.h>

#include <stddef.h>
#include <stdint.h>

enum { KVCL_COLL_TABLE_ROWS = 48 };

/* The built-in rows, as kvcl_info prints them. */
extern const char kvcl_coll_default_table[];

typedef struct kvcl_coll_row {
    const kvcl_coll_alg_t *alg;  /* of its collective */
    int                    path; /* kvcl_coll_path_t, or -1: any */
    uint64_t               bytes_from;
    uint64_t               bytes_to; /* not included, unless KVCL_UNLIMITED */
    uint64_t               ranks_from;
    uint64_t               ranks_to;
} kvcl_coll_row_t;

typedef struct kvcl_coll_table {
    kvcl_coll_row_t rows[KVCL_COLL_TABLE_ROWS];
    uint32_t        count;
} kvcl_coll_table_t;

/**
 * Parse @a text (NULL or "": none) and append the built-in rows. Blanks around fields are ignored.
 * @param table [out]  untouched on error.
 * @return KVCL_OK, KVCL_ERR_INVALID_PARAM with a sentence: the character's position, what stands there
 *         and what is accepted.
 */
kvcl_status_t kvcl_coll_table_parse(const char *text, kvcl_coll_table_t *table) KVCL_MUST_CHECK;

/** Write the rows back in the same grammar, one a line if @a separator is "\n". Returns buf; cut at len. */
const char *kvcl_coll_table_format(const kvcl_coll_table_t *table, const char *separator, char *buf, size_t len);

/** The algorithm for a shape; never NULL for a parsed table. */
const kvcl_coll_alg_t *kvcl_coll_select(const kvcl_coll_table_t *table, kvcl_coll_kind_t kind,
                                        const kvcl_coll_shape_t *shape);

#endif
