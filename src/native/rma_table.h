/*
 * The table of native gets and puts that are served instead: the owner packs many small pieces into few messages faster
 * than most networks fetch them one by one. Rows are by the kind of the native path, the bytes and the number of runs.
 *
 *   KVCL_NATIVE_TABLE = ROW[,ROW...]      ROW = KIND:FROM-TO:WAY[:RUNS]
 *
 * KIND is cma (the kernel's copy between processes), rdma, cuda_ipc, loop, dir (a store's lookup in the table of
 * another rank, by any mechanism, with a run of 4 KiB for each key) or any; FROM (included) and TO (excluded; or inf)
 * are bytes of a run; WAY is native or served; RUNS is the least number of runs. The first matching row wins; the
 * user's rows come before the built-in ones; without a matching row a transfer is native. Pure.
 */
#ifndef KVCL_NATIVE_RMA_TABLE_H
#define KVCL_NATIVE_RMA_TABLE_H

#include <kvcl/kvcl_status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KVCL_RMA_ROWS = 16, KVCL_RMA_TABLE_TEXT = KVCL_RMA_ROWS * 96 };

typedef struct kvcl_rma_row {
    const char *kind;
    uint64_t   from, to; /* bytes of a run */
    uint64_t   runs;
    bool       served;
} kvcl_rma_row_t;

typedef struct kvcl_rma_table {
    kvcl_rma_row_t rows[KVCL_RMA_ROWS];
    size_t         count;
} kvcl_rma_table_t;

/** text: the user's rows; NULL or empty: none. @return KVCL_OK; KVCL_ERR_INVALID_PARAM, naming the row. */
kvcl_status_t kvcl_rma_table_parse(const char *text, kvcl_rma_table_t *table) KVCL_MUST_CHECK;
/** Are n_runs (> 0) runs of about run_bytes moved natively by a path of this kind? */
bool          kvcl_rma_table_native(const kvcl_rma_table_t *table, const char *kind, uint64_t run_bytes,
                                    uint64_t n_runs);
/** The table in the format of KVCL_NATIVE_TABLE; cut at cap. @return buf. */
const char    *kvcl_rma_table_format(const kvcl_rma_table_t *table, char *buf, size_t cap);

#endif
