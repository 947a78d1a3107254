/*
 * Two classes and a share for the lower one: whose turn it is when both want one. Turns are of about equal size.
 */
#ifndef KVCL_XFER_SHARE_H
#define KVCL_XFER_SHARE_H

#include <stdbool.h>

typedef struct kvcl_share {
    unsigned owed; /* hundredths of a turn that the lower class has not had yet, under 100 */
} kvcl_share_t;

/** Both classes want a turn: is it the lower one's? True in percent (0..99) of 100 calls, evenly spread. Pure. */
static inline bool kvcl_share_lower(kvcl_share_t *share, unsigned percent)
{
    share->owed += percent;
    if (share->owed < 100) {
        return false;
    }
    share->owed -= 100;
    return true;
}

#endif
