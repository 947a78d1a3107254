/*
 * The frame of the tests of refusals by public calls: one rank, alone, over the loop path, and a second context that
 * owns foreign objects. REFUSED() checks a call's status, that its error sentence names the mistake, and that no output
 * was written. All outputs are in out.
 */
#ifndef KVCL_TEST_API_ERRORS_H
#define KVCL_TEST_API_ERRORS_H

#include <kvcl/kvcl.h>

#include <check.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCKS = 8, FAR = 4096, SECOND = 1000000000 };

/* All outputs of a call that must fail: one comparison shows that none was written. */
typedef struct outs {
    kvcl_context_h ctx;
    kvcl_comm_h    comm;
    kvcl_cache_h   cache;
    kvcl_mem_h     mem;
    kvcl_rmem_h    rmem;
    kvcl_store_h   store;
    kvcl_req_h     req;
    size_t         n, m;
    uint32_t       id;
    int            fd;
    uint8_t        bytes[2048];
    kvcl_key_t     keys[4];
} outs_t;

extern outs_t                   out, kept;
extern kvcl_context_h           ctx, other;
extern kvcl_comm_h              world;
extern kvcl_cache_h             cache, theirs;
extern kvcl_mem_h               mem;
extern kvcl_rmem_h              rmem, readable, writable; /* mem, imported */
extern char                     dir[64], plain[64];
extern const uint32_t           good_ids[2], bad_ids[2];
extern const kvcl_sel_t         good;
extern const kvcl_key_t         keys[2];
extern const kvcl_xfer_params_t flagged;
extern const kvcl_layout_t      shape; /* of both caches */

void               poison(void);
void               open_world(void);
void               close_world(void);
void               make_dir(void);
void               remove_dir(void);
const char         *write_file(const char *name, mode_t mode, size_t len); /* in dir */
kvcl_init_params_t alone(void);
kvcl_status_t      final(kvcl_req_h req);
void               forget_error(void);
void               check_refused(kvcl_status_t got, kvcl_status_t want, const char *word, const char *call, int line);

#define REFUSED(_status, _word, _call)                                           \
    do {                                                                         \
        forget_error();                                                          \
        check_refused((_call), KVCL_ERR_##_status, (_word), #_call, __LINE__);   \
    } while (0)

#define TAKEN(_call) ck_assert_msg((_call) == KVCL_OK, "%s: %s", #_call, kvcl_last_error())

#endif
