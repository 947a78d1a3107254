/*
 * Another queue for messages (glue_renew.c), and the functions of other files that it calls.
 */
#ifndef KVCL_UCX_GLUE_GLUE_RENEW_H
#define KVCL_UCX_GLUE_GLUE_RENEW_H

#include "ucx_glue/glue.h"

bool          kvcl_glue_is_deaf(kvcl_xport_t *xport);
kvcl_status_t kvcl_glue_renew(kvcl_xport_t *xport);
unsigned      kvcl_glue_renew_progress(glue_t *g); /* if n_deaf is not 0 */
void          kvcl_glue_renew_fini(glue_t *g);     /* before am is closed */

/* glue_side.c: opens the side's worker, of its context. On failure it may be half open. */
ucs_status_t  kvcl_glue_side_open_worker(glue_side_t *side);
/* glue_am.c: the messages of am's worker are taken. */
kvcl_status_t kvcl_glue_am_handle(glue_t *g);

#endif
