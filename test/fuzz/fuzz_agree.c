/*
 * Messages of agreements from hostile members: as they come, and made ones that are taken by a machine whose rank is in
 * another call. What is sent goes to members of the group. The rank gives another call to a round only where a member
 * has named a place, in the view of both, in the round that is next; what a short header does not have is no place.
 */
#include "config.h"

#include "base/wirebuf.h"
#include "member/recover_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, LAST_VIEW = 3 };

static kvcl_agree_t agree;

static void must(int truth)
{
    if (!truth) {
        abort();
    }
}

static void send(void *arg, uint32_t to, const kvcl_agree_msg_t *msg)
{
    (void)arg;
    must((to < RANKS) && (to != agree.me) && (msg->from == agree.me));
    must((msg->type >= KVCL_AGREE_GIVE) && (msg->type <= KVCL_AGREE_NEXT));
}

static void decided(void *arg, uint64_t round, const kvcl_agree_value_t *value)
{
    (void)arg;
    must((round == agree.round) || (round + 1 == agree.round));
    must((value->unlike == 0) || (value->call == KVCL_AGREE_CALL_MIXED));
}

static bool called(void *arg, uint64_t at, kvcl_agree_name_t *name_p)
{
    (void)arg;
    must(at != KVCL_AGREE_NOWHERE);
    name_p->words[0] = 7;
    return at < 2;
}

static void take(const kvcl_msg_agree_t *in, size_t hdr_len, const void *payload, size_t len)
{
    const uint64_t   round = agree.round;
    kvcl_agree_msg_t msg;

    if (!kvcl_recover_unpack(in, hdr_len, payload, len, &msg)) {
        return;
    }
    must(msg.value.call <= KVCL_RECOVER_SHRINK);
    must((hdr_len >= sizeof(*in)) || ((msg.at == KVCL_AGREE_NOWHERE) && (msg.value.unlike == 0)));
    kvcl_agree_take(&agree, &msg);
    if (agree.round != round) {
        must((agree.round == round + 1) && (msg.round == agree.round) && (msg.view == agree.view) && (msg.at < 2));
        must((msg.type == KVCL_AGREE_GIVE) || (msg.type == KVCL_AGREE_ASK));
        must(kvcl_rankset_has(&agree.group, msg.from) && (msg.from != agree.me));
    }
}

static void take_made(kvcl_rd_t *rd)
{
    kvcl_msg_agree_t in  = {.msg = {.op = kvcl_rd_u8(rd) % (RANKS + 1)}};
    kvcl_rankset_t   sets[2] = {{{kvcl_rd_u8(rd)}}, {{kvcl_rd_u8(rd)}}};

    in.type           = kvcl_rd_u8(rd) % (KVCL_AGREE_NEXT + 2);
    in.call           = kvcl_rd_u8(rd) % 4;
    in.round          = agree.round + kvcl_rd_u8(rd) % 4 - 1;
    in.view           = kvcl_rd_u8(rd) % (LAST_VIEW + 1);
    in.accepted       = kvcl_rd_u8(rd) % (LAST_VIEW + 1);
    in.at             = kvcl_rd_u8(rd) % 4 - (uint64_t)1;
    in.unlike         = kvcl_rd_u8(rd) % 2;
    in.names[0].slot  = (uint64_t)kvcl_rd_u8(rd) << 56;
    in.names[1].slot  = kvcl_rd_u8(rd);
    take(&in, (kvcl_rd_u8(rd) % 8 == 0) ? offsetof(kvcl_msg_agree_t, at) : sizeof(in), sets, sizeof(sets));
}

/* Its own calls and views, between the messages. */
static void act(kvcl_rd_t *rd)
{
    const kvcl_agree_value_t value   = {.call = KVCL_RECOVER_AGREE, .flags = 5};
    const uint8_t            what    = kvcl_rd_u8(rd);
    kvcl_rankset_t           members = {{1 + what % 16}};

    if (what >= 240) {
        kvcl_rankset_add(&members, agree.me);
        kvcl_agree_view(&agree, 1 + what % LAST_VIEW, &members);
    } else if (what >= 200) {
        (void)kvcl_agree_give(&agree, &value, what % 3);
    } else if (what >= 180) {
        kvcl_agree_again(&agree);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const kvcl_agree_ops_t ops    = {send, decided, called};
    const kvcl_rankset_t          group  = {{(1u << RANKS) - 1}};
    const size_t                  header = (size < sizeof(kvcl_msg_agree_t)) ? size : sizeof(kvcl_msg_agree_t);
    kvcl_msg_agree_t              in     = {.round = 0};
    uint8_t                       *copy  = malloc(size - header + 1); /* separate, so that ASan detects reads past it */
    kvcl_rd_t                     rd;

    kvcl_agree_init(&agree, (size % 2 == 0) ? 0 : 1, &group, &ops, NULL);
    if (header > 0) {
        memcpy(&in, data, header);
    }
    if (size > header) {
        memcpy(copy, data + header, size - header);
    }
    take(&in, header, copy, size - header);
    free(copy);
    kvcl_rd_init(&rd, data, size);
    while ((rd.pos < rd.end) && !rd.failed) {
        take_made(&rd);
        act(&rd);
    }
    return 0;
}
