/*
 * Silence and proof: see detect.h.
 */
#include "config.h"
#include "view/detect.h"

#include <string.h>

const char *kvcl_detect_times_wrong(const kvcl_detect_times_t *times)
{
    if (times->beat_ns == 0) {
        return "the time between two beats is 0: set one";
    }
    if (times->dead_ns / 3 < times->beat_ns) {
        return "a rank would be held for dead in less than three beats: raise that time, or beat oftener";
    }
    if ((times->suspect_ns <= times->beat_ns) || (times->suspect_ns >= times->dead_ns)) {
        return "a rank is suspected later than one beat, and before it is held for dead: set a time between the two";
    }
    if (times->warm_ns < times->dead_ns) {
        return "a rank that warms up would be held for dead sooner than others: raise that time";
    }
    return NULL;
}

void kvcl_detect_init(kvcl_detect_t *detect, uint32_t me, const kvcl_detect_times_t *times, uint64_t now_ns)
{
    memset(detect, 0, sizeof(*detect));
    detect->me        = me;
    detect->times     = *times;
    detect->ticked_ns = now_ns;
}

void kvcl_detect_members(kvcl_detect_t *detect, const kvcl_rankset_t *members, const kvcl_rankset_t *fresh,
                         uint64_t now_ns)
{
    kvcl_rankset_t *const sets[] = {&detect->proven, &detect->suspects, &detect->silent, &detect->warm};
    uint32_t              slot, i;

    detect->members = *members;
    for (i = 0; i < sizeof(sets) / sizeof(sets[0]); ++i) {
        kvcl_rankset_keep(sets[i], members);
        kvcl_rankset_drop(sets[i], fresh);
    }
    KVCL_RANKSET_EACH(fresh, slot) {
        detect->heard_ns[slot] = now_ns;
    }
}

void kvcl_detect_heard(kvcl_detect_t *detect, uint32_t slot, bool warm, uint64_t now_ns)
{
    detect->heard_ns[slot] = now_ns;
    kvcl_rankset_del(&detect->silent, slot); /* at once: a change that is chosen now keeps it */
    if (warm) {
        kvcl_rankset_add(&detect->warm, slot);
    } else {
        kvcl_rankset_del(&detect->warm, slot);
    }
}

void kvcl_detect_prove(kvcl_detect_t *detect, const kvcl_rankset_t *ended, kvcl_rankset_t *news_p)
{
    *news_p = *ended;
    kvcl_rankset_keep(news_p, &detect->members);
    kvcl_rankset_drop(news_p, &detect->proven);
    kvcl_rankset_del(news_p, detect->me);
    kvcl_rankset_join(&detect->proven, news_p);
    kvcl_rankset_drop(&detect->silent, news_p);
}

/* Time in which this rank did not run is no silence of others. */
static void forgive(kvcl_detect_t *detect, uint64_t now_ns)
{
    uint64_t gap = now_ns - detect->ticked_ns, slept;
    uint32_t slot;

    detect->ticked_ns = now_ns;
    if (gap <= 2 * detect->times.beat_ns) {
        return;
    }
    slept = gap - detect->times.beat_ns;
    KVCL_RANKSET_EACH(&detect->members, slot) {
        detect->heard_ns[slot] += slept;
        if (detect->heard_ns[slot] > now_ns) {
            detect->heard_ns[slot] = now_ns;
        }
    }
}

/* Of silence of this member. */
static uint64_t dead_ns(const kvcl_detect_t *detect, uint32_t slot)
{
    return kvcl_rankset_has(&detect->warm, slot) ? detect->times.warm_ns : detect->times.dead_ns;
}

void kvcl_detect_tick(kvcl_detect_t *detect, uint64_t now_ns, kvcl_rankset_t *suspected_p, kvcl_rankset_t *again_p)
{
    kvcl_rankset_t before = detect->suspects;
    uint64_t       quiet;
    uint32_t       slot;

    forgive(detect, now_ns);
    memset(&detect->suspects, 0, sizeof(detect->suspects));
    memset(&detect->silent, 0, sizeof(detect->silent));
    KVCL_RANKSET_EACH(&detect->members, slot) {
        if ((slot == detect->me) || kvcl_rankset_has(&detect->proven, slot)) {
            continue;
        }
        quiet = now_ns - detect->heard_ns[slot];
        if (quiet >= detect->times.suspect_ns) {
            kvcl_rankset_add(&detect->suspects, slot);
        }
        if (quiet >= dead_ns(detect, slot)) {
            kvcl_rankset_add(&detect->silent, slot);
        }
    }
    *suspected_p = detect->suspects;
    kvcl_rankset_drop(suspected_p, &before);
    *again_p = before;
    kvcl_rankset_drop(again_p, &detect->suspects);
    kvcl_rankset_drop(again_p, &detect->proven);
}

uint64_t kvcl_detect_due(const kvcl_detect_t *detect, uint64_t now_ns)
{
    uint64_t quiet, limit, left = UINT64_MAX;
    uint32_t slot;

    KVCL_RANKSET_EACH(&detect->members, slot) {
        if ((slot == detect->me) || kvcl_rankset_has(&detect->proven, slot)) {
            continue;
        }
        quiet = now_ns - detect->heard_ns[slot];
        limit = (quiet < detect->times.suspect_ns) ? detect->times.suspect_ns : dead_ns(detect, slot);
        left  = ((quiet < limit) && (limit - quiet < left)) ? limit - quiet : left;
    }
    return (left < UINT64_MAX - now_ns) ? now_ns + left : UINT64_MAX;
}

void kvcl_detect_there(const kvcl_detect_t *detect, kvcl_rankset_t *there_p)
{
    *there_p = detect->members;
    kvcl_rankset_drop(there_p, &detect->proven);
    kvcl_rankset_drop(there_p, &detect->silent);
}
