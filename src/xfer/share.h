/* The order of turns of two classes, of which the lower one has a share. Turns are of about equal size. */
#ifndef KVCL_XFER_SHARE_H
#define KVCL_XFER_SHARE_H

#include <stdbool.h>

typedef struct kvcl_share {
    unsigned owed; /* hundredths of a turn due to the lower class, under 100 */
} kvcl_share_t;

/** Both classes have work: is the next turn the lower one's? True in percent (0..99) of 100 calls, evenly spread. */
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
