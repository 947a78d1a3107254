/*
 * Agreement: see agree.h.
 */
#include "config.h"
#include "view/agree.h"
#include "view/agree_round.h"

#include <string.h>

void kvcl_agree_init(kvcl_agree_t *agree, uint32_t me, const kvcl_rankset_t *group, const kvcl_agree_ops_t *ops,
                     void *arg)
{
    memset(agree, 0, sizeof(*agree));
    agree->me     = me;
    agree->group  = *group;
    agree->living = *group;
    agree->view   = 1;
    agree->ops    = ops;
    agree->arg    = arg;
}

void kvcl_agree_join(kvcl_agree_t *agree)
{
    agree->lost = true;
}

static uint32_t leader_of(const kvcl_agree_t *agree)
{
    return kvcl_rankset_next(&agree->living, 0);
}

static bool covers(const kvcl_rankset_t *set, const kvcl_rankset_t *part)
{
    kvcl_rankset_t rest = *part;

    kvcl_rankset_drop(&rest, set);
    return kvcl_rankset_is_empty(&rest);
}

static void send(const kvcl_agree_t *agree, uint32_t to, kvcl_agree_type_t type, const kvcl_agree_round_t *round,
                 const kvcl_agree_value_t *value)
{
    kvcl_agree_msg_t msg = {.type = type, .from = agree->me, .round = round->number, .view = agree->view};

    if (value != NULL) {
        msg.value = *value;
    }
    msg.accepted = (type == KVCL_AGREE_GIVE) ? round->accepted : 0;
    msg.at       = ((type == KVCL_AGREE_GIVE) || (type == KVCL_AGREE_ASK)) ? round->at : KVCL_AGREE_NOWHERE;
    agree->ops->send(agree->arg, to, &msg);
}

static void send_all(const kvcl_agree_t *agree, kvcl_agree_type_t type, const kvcl_agree_round_t *round,
                     const kvcl_agree_value_t *value, const kvcl_rankset_t *but)
{
    uint32_t slot;

    KVCL_RANKSET_EACH(&agree->living, slot) {
        if ((slot != agree->me) && ((but == NULL) || !kvcl_rankset_has(but, slot))) {
            send(agree, slot, type, round, value);
        }
    }
}

/* The round of that number; a new one takes the place of the one before the last. NULL: it is over. */
static kvcl_agree_round_t *round_of(kvcl_agree_t *agree, uint64_t number)
{
    kvcl_agree_round_t *round = &agree->rounds[number % 2];

    if ((number == 0) || (number < round->number) || (number > agree->round + 1)) {
        return NULL;
    }
    if (number > round->number) {
        memset(round, 0, sizeof(*round));
        round->number = number;
        round->at     = KVCL_AGREE_NOWHERE;
    }
    return round;
}

/* If the decision ends other calls, all ranks are told first: no message that follows from it may arrive before it. */
static void decide(kvcl_agree_t *agree, kvcl_agree_round_t *round, const kvcl_agree_value_t *value)
{
    if (round->given && !round->decided) {
        round->decided = true;
        round->value   = *value;
        if (value->unlike != 0) {
            send_all(agree, KVCL_AGREE_DECIDED, round, &round->value, NULL);
        }
        agree->ops->decided(agree->arg, round->number, &round->value);
    }
}

/* ---- the leader ---- */

static void count_accepted(kvcl_agree_t *agree, kvcl_agree_round_t *round, uint32_t from)
{
    kvcl_rankset_add(&round->agreed, from);
    if (round->proposed && !round->decided && covers(&round->agreed, &agree->living)) {
        if (round->value.unlike == 0) {
            send_all(agree, KVCL_AGREE_DECIDED, round, &round->value, NULL);
        }
        decide(agree, round, &round->value);
    }
}

static void propose(kvcl_agree_t *agree, kvcl_agree_round_t *round)
{
    round->value    = kvcl_agree_round_value(round, &agree->living);
    round->accepted = agree->view;
    round->proposed = true;
    send_all(agree, KVCL_AGREE_ACCEPT, round, &round->value, NULL);
    count_accepted(agree, round, agree->me);
}

static void gather(kvcl_agree_t *agree, kvcl_agree_round_t *round, uint32_t from, uint64_t accepted,
                   const kvcl_agree_value_t *value)
{
    if (kvcl_rankset_has(&agree->living, from) && kvcl_agree_round_take(round, from, accepted, value) &&
        !round->proposed && round->given && covers(&round->gave, &agree->living)) {
        propose(agree, round);
    }
}

/* ---- every rank ---- */

static void give(kvcl_agree_t *agree, kvcl_agree_round_t *round)
{
    const kvcl_agree_value_t *value = (round->accepted != 0) ? &round->value : &round->mine;

    if (leader_of(agree) != agree->me) {
        send(agree, leader_of(agree), KVCL_AGREE_GIVE, round, value);
    } else {
        gather(agree, round, agree->me, round->accepted, value);
    }
}

static void give_next(kvcl_agree_t *agree);

/* Asks all which round is next; of one rank alone it is the first. */
static void ask_which(kvcl_agree_t *agree)
{
    const kvcl_agree_round_t none = {.number = 0};

    memset(&agree->named, 0, sizeof(agree->named));
    kvcl_rankset_add(&agree->named, agree->me);
    agree->next = 1;
    send_all(agree, KVCL_AGREE_WHICH, &none, NULL, NULL);
    if (covers(&agree->named, &agree->living)) {
        give_next(agree);
    }
}

/* A rank that has decided a round tells the others. */
static void give_all(kvcl_agree_t *agree)
{
    kvcl_agree_round_t *round;
    kvcl_rankset_t     but = {{0}};
    unsigned           i;

    kvcl_rankset_add(&but, leader_of(agree));
    for (i = 0; i < 2; ++i) {
        round = &agree->rounds[i];
        if (round->given && !round->decided) {
            send_all(agree, KVCL_AGREE_GIVE, round, (round->accepted != 0) ? &round->value : &round->mine, &but);
        }
    }
}

/* What is not decided is given, and the leader asks for what it lacks. */
static void give_open(kvcl_agree_t *agree, bool ask)
{
    kvcl_agree_round_t *round;
    unsigned           i;

    for (i = 0; i < 2; ++i) {
        round = &agree->rounds[(agree->round + 1 + i) % 2]; /* the older one first */
        if (!round->given || round->decided || !kvcl_rankset_has(&agree->living, agree->me)) {
            continue;
        }
        give(agree, round);
        if (ask && (leader_of(agree) == agree->me) && !round->decided) {
            send_all(agree, round->proposed ? KVCL_AGREE_ACCEPT : KVCL_AGREE_ASK, round,
                     round->proposed ? &round->value : NULL, round->proposed ? &round->agreed : &round->gave);
        }
    }
}

/* What this rank gave instead of the call of the round is taken back, unless it may be decided. */
static void take_back(kvcl_agree_t *agree)
{
    kvcl_agree_round_t *last = &agree->rounds[agree->round % 2];

    if (last->instead && !last->decided && (last->accepted == 0)) {
        last->given   = false;
        last->instead = false;
        agree->round -= 1;
    }
}

void kvcl_agree_view(kvcl_agree_t *agree, uint64_t number, const kvcl_rankset_t *members)
{
    kvcl_rankset_t living = agree->group;
    unsigned       i;

    kvcl_rankset_keep(&living, members);
    if ((number < agree->view) || ((number == agree->view) && kvcl_rankset_equal(&living, &agree->living))) {
        return;
    }
    take_back(agree);
    agree->view   = number;
    agree->living = living;
    for (i = 0; i < 2; ++i) {
        kvcl_agree_round_clear(&agree->rounds[i]);
        agree->rounds[i].at = KVCL_AGREE_NOWHERE; /* the places of before say nothing about this view */
    }
    give_open(agree, true);
    if (agree->lost && agree->waits) {
        ask_which(agree);
    }
}

void kvcl_agree_again(kvcl_agree_t *agree)
{
    give_open(agree, true);
    if (agree->mixed && kvcl_rankset_has(&agree->living, agree->me)) {
        give_all(agree);
    }
    if (agree->lost && agree->waits) {
        ask_which(agree);
    }
}

static void give_next(kvcl_agree_t *agree)
{
    kvcl_agree_round_t *round;

    agree->lost  = false;
    agree->waits = false;
    agree->mixed = true;
    agree->round = agree->next;
    memset(agree->rounds, 0, sizeof(agree->rounds));
    round = round_of(agree, agree->next);
    if (round != NULL) {
        round->given = true;
        round->mine  = agree->mine;
    }
    give_open(agree, true);
}

uint64_t kvcl_agree_next(const kvcl_agree_t *agree)
{
    const kvcl_agree_round_t *last = &agree->rounds[agree->round % 2];

    if (agree->lost) {
        return 0;
    }
    return (last->instead && !last->decided) ? agree->round : agree->round + 1;
}

uint64_t kvcl_agree_give(kvcl_agree_t *agree, const kvcl_agree_value_t *value, uint64_t at)
{
    kvcl_agree_round_t *round;

    if (agree->lost) {
        agree->waits = true;
        agree->mine  = *value;
        ask_which(agree);
        return agree->lost ? 0 : agree->round;
    }
    agree->round   = kvcl_agree_next(agree);
    round          = round_of(agree, agree->round);
    round->given   = true;
    round->instead = false;
    round->at      = at;
    round->mine    = *value;
    give_open(agree, agree->round == 1); /* others may have given before this rank knew the group */
    return agree->round;
}

/* Is this a rank's call of the round that is next here, in its place, and said in the view of both? */
static bool is_of_next(const kvcl_agree_t *agree, const kvcl_agree_msg_t *msg)
{
    const kvcl_agree_round_t *last  = &agree->rounds[agree->round % 2];
    const uint32_t           leader = leader_of(agree);
    const bool               asks   = ((msg->type == KVCL_AGREE_GIVE) && (leader == agree->me)) ||
                                      ((msg->type == KVCL_AGREE_ASK) && (leader == msg->from));

    return asks && (msg->round == agree->round + 1) && (msg->view == agree->view) && (msg->at != KVCL_AGREE_NOWHERE) &&
           (!last->given || last->decided) && kvcl_rankset_has(&agree->living, msg->from) &&
           kvcl_rankset_has(&agree->living, agree->me);
}

/* Others give to the next round from a place where this rank may have made another call. */
static void give_instead(kvcl_agree_t *agree, const kvcl_agree_msg_t *msg)
{
    kvcl_agree_value_t value = {.call = KVCL_AGREE_CALL_MIXED};
    kvcl_agree_round_t *round;

    if ((agree->ops->called == NULL) || !is_of_next(agree, msg) ||
        !agree->ops->called(agree->arg, msg->at, &value.names[0])) {
        return;
    }
    value.names[0].slot = agree->me;
    agree->round       += 1;
    round               = round_of(agree, agree->round);
    round->given        = true;
    round->instead      = true;
    round->at           = msg->at;
    round->mine         = value;
    give_open(agree, true);
}

static void name_next(kvcl_agree_t *agree, uint32_t to)
{
    const kvcl_agree_round_t *last = &agree->rounds[agree->round % 2];
    kvcl_agree_round_t       next  = {.number = 0};

    agree->mixed = true;
    if (!agree->lost) {
        next.number = agree->round + (((agree->round == 0) || last->decided) ? 1 : 0);
    }
    send(agree, to, KVCL_AGREE_NEXT, &next, NULL);
}

/* The numbers of rounds of all members are known: this rank gives to the highest. */
static void learn_next(kvcl_agree_t *agree, const kvcl_agree_msg_t *msg)
{
    if (!agree->lost || !agree->waits || (msg->view != agree->view) || (msg->round > UINT64_MAX / 2)) {
        return;
    }
    agree->next = (msg->round > agree->next) ? msg->round : agree->next;
    kvcl_rankset_add(&agree->named, msg->from);
    if (covers(&agree->named, &agree->living)) {
        give_next(agree);
    }
}

void kvcl_agree_take(kvcl_agree_t *agree, const kvcl_agree_msg_t *msg)
{
    const bool         ours = kvcl_rankset_has(&agree->group, msg->from) && (msg->from != agree->me);
    kvcl_agree_round_t *round;

    if (ours && (msg->type == KVCL_AGREE_WHICH)) {
        name_next(agree, msg->from);
    } else if (ours && (msg->type == KVCL_AGREE_NEXT)) {
        learn_next(agree, msg);
    }
    if (ours && !agree->lost) {
        give_instead(agree, msg);
    }
    round = (ours && !agree->lost && (msg->type <= KVCL_AGREE_DECIDED)) ? round_of(agree, msg->round) : NULL;
    if (round == NULL) {
        return;
    }
    if (msg->type == KVCL_AGREE_DECIDED) {
        decide(agree, round, &msg->value);
        return;
    }
    if (round->decided) {
        send(agree, msg->from, KVCL_AGREE_DECIDED, round, &round->value);
        return;
    }
    if (msg->view != agree->view) {
        return; /* said again in the view of both */
    }
    if ((msg->type == KVCL_AGREE_GIVE) && (leader_of(agree) == agree->me)) {
        gather(agree, round, msg->from, msg->accepted, &msg->value);
    } else if ((msg->type == KVCL_AGREE_ASK) && (leader_of(agree) == msg->from) && round->given) {
        give(agree, round);
    } else if ((msg->type == KVCL_AGREE_ACCEPT) && (leader_of(agree) == msg->from) && round->given) {
        round->accepted = agree->view;
        round->value    = msg->value;
        send(agree, msg->from, KVCL_AGREE_ACCEPTED, round, NULL);
    } else if ((msg->type == KVCL_AGREE_ACCEPTED) && (leader_of(agree) == agree->me) && round->given) {
        count_accepted(agree, round, msg->from);
    }
}
