/*
 * What was decided about a peer and its memory, as kvcl_query_path states it: cases of conform_rma. Over loop its
 * faults decide, so that the words can be checked against what transfers then do.
 */
#include "conform_decisions.h"

#include <string.h>

/* The text for a rank, or its beginning. */
static const char *expected(const cf_t *cf, int rank)
{
    if (strcmp(cf->path, "loop") == 0) {
        return cf->native ? "loop, native" : cf->overtakes ? "loop, served: the fault no_rma of the loop" : "loop";
    }
    if (strcmp(cf->path, "auto") == 0) {
        return (rank == cf->rank) ? "loop" : cf->native ? "rdma, native (rc_" : "mapped (posix)";
    }
    return (strcmp(cf->path, "shm") == 0) ? "mapped (" : "served (tcp/lo";
}

void cf_query_path(cf_t *cf)
{
    char text[256], cut[8];
    int  rank, round;

    for (round = 0; round < 2; ++round) { /* the second time the peer is not asked */
        for (rank = 0; rank < cf->size; ++rank) {
            const char *want = expected(cf, rank);
            bool       whole = (strchr(want, '(') == NULL);

            CF_OK(cf, kvcl_query_path(cf->world, rank, text, sizeof(text)));
            if (whole ? (strcmp(text, want) != 0) : (strncmp(text, want, strlen(want)) != 0)) {
                fprintf(stderr, "path to rank %d: \"%s\", not \"%s\"\n", rank, text, want);
                CF_CHECK(cf, !"the decision");
            }
            CF_CHECK(cf, strstr(text, "RDMA: ") == NULL);
            CF_OK(cf, kvcl_query_path(cf->world, rank, cut, sizeof(cut)));
            CF_CHECK(cf, strncmp(cut, text, sizeof(cut) - 1) == 0);
        }
        cf_fence(cf);
    }
}
