/*
 * Several schedulers of one cluster, each with a view of its own. They exchange what they decide: a decider adds busy_s
 * of the others' decisions to queue_s and past_s of its view, and their requests to pending. Then they place as one
 * scheduler does; without it, each takes the instances that the others have just filled.
 */
#include "sched_scene.h"

#include <math.h>
#include <stdbool.h>

enum { INSTS = 8, DECIDERS = 4 };

typedef struct cluster {
    scene_t  decider[DECIDERS];
    unsigned n;
    bool     exchange;
    double   now;
    double   next_report;
    double   end[INSTS];  /* when the queue of an instance is empty */
    unsigned prefills[INSTS];
    unsigned decodes[INSTS];
    double   waited;      /* of all requests */
} cluster_t;

static void open_cluster(cluster_t *cluster, const char *policy, unsigned n, bool exchange)
{
    unsigned i;

    memset(cluster, 0, sizeof(*cluster));
    cluster->n        = n;
    cluster->exchange = exchange;
    for (i = 0; i < n; ++i) {
        scene_open(&cluster->decider[i], policy, INSTS);
    }
}

static void close_cluster(cluster_t *cluster)
{
    unsigned i;

    for (i = 0; i < cluster->n; ++i) {
        scene_close(&cluster->decider[i]);
    }
}

/* Time passes: what others gave halves each minute; each `period` every decider gets the instances' reports. */
static void pass(cluster_t *cluster, double seconds, double period)
{
    kvcl_sched_inst_t *inst;
    unsigned          d, i;

    cluster->now += seconds;
    for (d = 0; d < cluster->n; ++d) {
        cluster->decider[d].now = cluster->now;
        for (i = 0; i < INSTS; ++i) {
            inst          = &cluster->decider[d].inst[i];
            inst->past_s *= exp2(-seconds / 60);
            if (cluster->now >= cluster->next_report) {
                inst->queue_s = fmax(cluster->end[i] - cluster->now, 0);
                inst->pending = 0;
                inst->pending_tokens = 0;
            }
        }
    }
    if (cluster->now >= cluster->next_report) {
        cluster->next_report = cluster->now + period;
    }
}

/* Request k: the deciders take turns. */
static void decide(cluster_t *cluster, unsigned k, uint64_t tokens)
{
    scene_t                     *own = &cluster->decider[k % cluster->n];
    const kvcl_sched_decision_t *out = &own->out;
    scene_t                     *view;
    unsigned                    d, p;

    own->req.id        = k + 1;
    own->req.tokens    = tokens;
    own->req.n_keys    = 0;
    own->req.arrival_s = cluster->now;
    p                  = scene_decide(own);
    ck_assert_uint_eq(out->verdict, KVCL_SCHED_GO);
    cluster->waited  += fmax(cluster->end[p] - cluster->now, 0);
    cluster->end[p]   = fmax(cluster->end[p], cluster->now) + out->busy_s;
    ++cluster->prefills[p];
    ++cluster->decodes[out->decode];
    for (d = 0; d < cluster->n; ++d) {
        view = &cluster->decider[d];
        if ((view != own) && !cluster->exchange) {
            continue;
        }
        view->inst[p].queue_s += out->busy_s;
        view->inst[p].past_s  += (view == own) ? 0 : out->busy_s; /* its own it remembers itself */
        ++view->inst[out->decode].pending;
        view->inst[out->decode].pending_tokens += tokens;
    }
}

static unsigned most(const unsigned *counts)
{
    unsigned i, n = 0;

    for (i = 0; i < INSTS; ++i) {
        n = (counts[i] > n) ? counts[i] : n;
    }
    return n;
}

static const char *const policies[] = {"prefill=load", "prefill=local", "prefill=global", "prefill=kvcl"};
enum { POLICIES = sizeof(policies) / sizeof(policies[0]) };

START_TEST(a_burst_fills_each_instance_once)
{
    cluster_t cluster;
    unsigned  n, k, share;

    for (n = 1; n <= DECIDERS; n *= 2) {
        for (share = 0; share < 2; ++share) {
            open_cluster(&cluster, policies[_i], n, share == 1);
            for (k = 0; k < INSTS; ++k) {
                decide(&cluster, k, 1000);
            }
            ck_assert_uint_eq(most(cluster.prefills), (share == 1) ? 1 : n); /* alone: the others' choices again */
            ck_assert_uint_eq(most(cluster.decodes), (share == 1) ? 1 : n);
            close_cluster(&cluster);
        }
    }
}
END_TEST

/* No queue tells instances apart; only the work of late does. */
START_TEST(an_idle_cluster_is_used_in_turn)
{
    cluster_t cluster;
    unsigned  n, k, share;

    for (n = 1; n <= DECIDERS; n *= 2) {
        for (share = 0; share < 2; ++share) {
            open_cluster(&cluster, policies[_i], n, share == 1);
            for (k = 0; k < INSTS; ++k) {
                pass(&cluster, 2, 1);
                decide(&cluster, k, 1000);
            }
            ck_assert(cluster.waited == 0);
            ck_assert_uint_eq(most(cluster.prefills), (share == 1) ? 1 : n);
            close_cluster(&cluster);
        }
    }
}
END_TEST

/* Mean seconds of queue of random requests at 0.7 of what the cluster can do, with reports that are up to 4 s old. */
static double mean_wait(const char *policy, unsigned n, bool exchange, kvcl_rand_t random)
{
    enum { REQUESTS = 4000 };
    cluster_t cluster;
    unsigned  k;
    double    wait;

    open_cluster(&cluster, policy, n, exchange);
    for (k = 0; k < REQUESTS; ++k) {
        pass(&cluster, -log(((double)kvcl_rand_below(&random, 1u << 30) + 1) / (1u << 30)) / (0.7 * INSTS), 4);
        decide(&cluster, k, 100 + kvcl_rand_below(&random, 1801));
    }
    wait = cluster.waited / REQUESTS;
    close_cluster(&cluster);
    return wait;
}

START_TEST(deciders_that_exchange_their_load_place_as_one_does)
{
    kvcl_rand_t random;
    double      one, shared, alone;
    unsigned    n;

    test_seed(&random);
    one = mean_wait(policies[_i], 1, false, random);
    for (n = 2; n <= DECIDERS; n *= 2) {
        shared = mean_wait(policies[_i], n, true, random);
        alone  = mean_wait(policies[_i], n, false, random);
        printf("%s: one %.3f s, %u that exchange %.3f s, %u without %.3f s\n", policies[_i], one, n, shared, n, alone);
        ck_assert_msg(shared < 1.05 * one, "%u deciders: %g s, one: %g s", n, shared, one);
        ck_assert_msg(alone > 2 * one, "%u deciders without exchange: %g s, one: %g s", n, alone, one);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("several schedulers");
    TCase *tcase = tcase_create("shared load");

    tcase_add_loop_test(tcase, a_burst_fills_each_instance_once, 0, POLICIES);
    tcase_add_loop_test(tcase, an_idle_cluster_is_used_in_turn, 0, POLICIES);
    tcase_add_loop_test(tcase, deciders_that_exchange_their_load_place_as_one_does, 0, POLICIES);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
