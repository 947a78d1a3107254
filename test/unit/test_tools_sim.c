/*
 * The parts of kvcl_sim: the order of events, pools against a plain list, shares of the network, the closed form of a
 * batch against one step at a time, fits of known formulas, and bad CSV.
 */
#include "config.h"
#include "tools/sim/batch.h"
#include "tools/sim/events.h"
#include "tools/sim/study/fit.h"
#include "tools/sim/nic.h"
#include "tools/sim/pool.h"
#include "tools/sim/work/work.h"

#include "base/rand.h"
#include "test_base.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvcl_rand_t random_state;

static uint64_t below(uint64_t n)
{
    return kvcl_rand_below(&random_state, n);
}

START_TEST(events_leave_by_time_and_then_as_they_came)
{
    sim_events_t events;
    sim_event_t  event;
    double       last = -1;
    uint32_t     last_a = 0, i, taken = 0;

    sim_events_init(&events);
    for (i = 0; i < 5000; ++i) {
        ck_assert(sim_events_add(&events, (double)below(50), 0, i, 0));
        if (below(3) == 0) {
            ck_assert(sim_events_take(&events, &event));
            ++taken;
        }
    }
    while (sim_events_take(&events, &event)) {
        ck_assert(event.at >= last);
        ck_assert(event.at > last || event.a > last_a);
        last   = event.at;
        last_a = event.a;
        ++taken;
    }
    ck_assert_uint_eq(taken, 5000);
    ck_assert(isinf(sim_events_next(&events)));
    sim_events_free(&events);
}
END_TEST

enum { POOL = 37, BLOCKS = 100 };

/* Numbers that share places of the table. */
static uint32_t block_of(uint32_t i)
{
    return (i % 10) + ((i / 10) << 20);
}

START_TEST(an_lru_pool_evicts_what_was_not_used_longest)
{
    uint64_t   used[BLOCKS] = {0}, oldest;
    sim_pool_t pool;
    uint32_t   i, k, block, gone, expected, n = 0;

    ck_assert(sim_pool_init(&pool, POOL, true));
    for (i = 1; i < 20000; ++i) {
        block = (uint32_t)below(BLOCKS);
        ck_assert(sim_pool_has(&pool, block_of(block)) == (used[block] != 0));
        if (below(3) == 0) {
            sim_pool_touch(&pool, block_of(block));
            used[block] = (used[block] != 0) ? i : 0;
            continue;
        }
        expected = SIM_NO_BLOCK;
        oldest   = UINT64_MAX;
        if ((used[block] == 0) && (n == POOL)) {
            for (k = 0; k < BLOCKS; ++k) {
                if ((used[k] != 0) && (used[k] < oldest)) {
                    oldest   = used[k];
                    expected = k;
                }
            }
            used[expected] = 0;
            --n;
        }
        gone = sim_pool_insert(&pool, block_of(block));
        ck_assert_uint_eq(gone, (expected != SIM_NO_BLOCK) ? block_of(expected) : SIM_NO_BLOCK);
        n += (used[block] == 0) ? 1 : 0;
        used[block] = i;
        ck_assert_uint_eq(pool.n, n);
    }
    sim_pool_free(&pool);
}
END_TEST

START_TEST(a_pool_of_the_librarys_order_keeps_a_hot_block_over_a_scan)
{
    sim_pool_t pool;
    uint32_t   i;

    ck_assert(sim_pool_init(&pool, POOL, false));
    (void)sim_pool_insert(&pool, 0);
    sim_pool_touch(&pool, 0);
    for (i = 1; i <= POOL; ++i) { /* LRU would have evicted it */
        (void)sim_pool_insert(&pool, i);
    }
    ck_assert(sim_pool_has(&pool, 0));
    ck_assert_uint_eq(pool.n, POOL);
    ck_assert(kvcl_evict_check(&pool.evict));
    sim_pool_free(&pool);
}
END_TEST

static void ignore(void *arg, uint32_t flow)
{
    (void)arg;
    (void)flow;
}

START_TEST(transfers_get_the_lesser_of_two_equal_shares)
{
    sim_nic_t nic;
    uint32_t  a, b, c;

    ck_assert(sim_nic_init(&nic, 4, 100));
    nic.changed = ignore;
    a           = sim_nic_start(&nic, 0, 0, 1, 1000);
    ck_assert_double_eq_tol(nic.flows[a].end, 10, 1e-9);
    b = sim_nic_start(&nic, 5, 0, 2, 500); /* a has 500 bytes left, at half the rate */
    ck_assert_double_eq_tol(nic.flows[a].end, 15, 1e-9);
    ck_assert_double_eq_tol(nic.flows[b].end, 15, 1e-9);
    c = sim_nic_start(&nic, 7, 3, 2, 100); /* b's receiver is shared; its sender's share was as small */
    ck_assert_double_eq_tol(nic.flows[b].end, 15, 1e-9);
    ck_assert_double_eq_tol(nic.flows[c].end, 9, 1e-9);
    ck_assert_double_eq_tol(sim_nic_left(&nic, 8, 2, 1), 350 + 50, 1e-9);
    sim_nic_end(&nic, 9, c);
    sim_nic_end(&nic, 9, a);
    ck_assert_double_eq_tol(nic.flows[b].end, 12, 1e-9); /* 300 bytes, alone */
    sim_nic_end(&nic, 12, b);
    ck_assert_uint_eq(nic.ports[0].n[0] + nic.ports[2].n[1], 0);
    sim_nic_free(&nic);
}
END_TEST

START_TEST(all_bytes_of_random_transfers_arrive_and_no_port_is_overdrawn)
{
    uint32_t  flows[64], n = 0, i, first, port;
    double    now = 0, out[5], in[5];
    sim_nic_t nic;

    ck_assert(sim_nic_init(&nic, 5, 100));
    nic.changed = ignore;
    for (i = 0; i < 2000; ++i) {
        if ((n < 64) && (below(2) == 0)) {
            port       = (uint32_t)below(5);
            flows[n++] = sim_nic_start(&nic, now, port, (port + 1 + (uint32_t)below(4)) % 5, 1 + (double)below(1000));
        } else if (n != 0) {
            for (first = 0, port = 1; port < n; ++port) {
                first = (nic.flows[flows[port]].end < nic.flows[flows[first]].end) ? port : first;
            }
            ck_assert(nic.flows[flows[first]].end >= now - 1e-9);
            now = nic.flows[flows[first]].end;
            sim_nic_end(&nic, now, flows[first]);
            flows[first] = flows[--n];
        }
        memset(out, 0, sizeof(out));
        memset(in, 0, sizeof(in));
        for (port = 0; port < n; ++port) {
            out[nic.flows[flows[port]].from] += nic.flows[flows[port]].rate;
            in[nic.flows[flows[port]].to] += nic.flows[flows[port]].rate;
        }
        for (port = 0; port < 5; ++port) {
            ck_assert(out[port] <= 100 + 1e-6);
            ck_assert(in[port] <= 100 + 1e-6);
        }
    }
    sim_nic_free(&nic);
}
END_TEST

/* One step at a time. */
typedef struct slow_batch {
    double   at;
    uint32_t n;
    uint32_t request[32];
    uint32_t context[32];
    uint32_t left[32];
} slow_batch_t;

static void slow_step(slow_batch_t *slow, double base, double slope)
{
    double   context = 0;
    uint32_t i;

    for (i = 0; i < slow->n; ++i) {
        context += slow->context[i]++;
        --slow->left[i];
    }
    slow->at += base + (slope * context);
}

START_TEST(the_closed_form_of_a_batch_is_as_one_step_at_a_time)
{
    slow_batch_t slow = {0};
    sim_batch_t  batch;
    uint32_t     i, k, request = 0, ended, tokens, context;
    uint64_t     steps;

    sim_batch_init(&batch);
    for (i = 0; i < 3000; ++i) {
        if ((slow.n == 0) || ((slow.n < 32) && (below(3) == 0))) {
            context = 1 + (uint32_t)below(100000);
            tokens  = 1 + (uint32_t)below(50);
            ck_assert(sim_batch_join(&batch, slow.at, request, context, tokens));
            slow.request[slow.n]  = request++;
            slow.context[slow.n]  = context;
            slow.left[slow.n++]   = tokens;
            batch.base            = 0.02 + (0.001 * slow.n);
            batch.slope           = 3e-8;
            continue;
        }
        steps = 1 + below(sim_batch_left(&batch));
        ck_assert(sim_batch_advance(&batch, steps));
        for (; steps > 0; --steps) {
            slow_step(&slow, batch.base, batch.slope);
        }
        ck_assert_double_eq_tol(batch.at, slow.at, 1e-9);
        slow.at = batch.at;
        while (sim_batch_ended(&batch, &ended)) {
            for (k = 0; (k < slow.n) && (slow.request[k] != ended); ++k) {
            }
            ck_assert(k < slow.n);
            ck_assert_uint_eq(slow.left[k], 0);
            --slow.n;
            slow.request[k] = slow.request[slow.n];
            slow.context[k] = slow.context[slow.n];
            slow.left[k]    = slow.left[slow.n];
        }
        ck_assert_uint_eq(batch.n, slow.n);
        for (k = 0; k < slow.n; ++k) {
            ck_assert_uint_gt(slow.left[k], 0);
        }
    }
    sim_batch_free(&batch);
}
END_TEST

START_TEST(the_step_that_runs_at_a_time_is_found)
{
    sim_batch_t batch;
    uint64_t    k, steps;
    double      now;

    sim_batch_init(&batch);
    ck_assert(sim_batch_join(&batch, 3, 1, 5000, 1000));
    batch.base  = 0.02;
    batch.slope = 1e-6;
    for (k = 0; k < 500; ++k) {
        now   = 3 + ((double)below(1000000) / 1e5);
        steps = sim_batch_steps(&batch, now);
        ck_assert(3 + sim_batch_seconds(&batch, steps) >= now);
        ck_assert((steps == 0) || (3 + sim_batch_seconds(&batch, steps - 1) < now));
    }
    sim_batch_free(&batch);
}
END_TEST

START_TEST(a_stall_is_among_the_longest_tenth_of_gaps)
{
    sim_batch_t batch;
    double      mean;

    sim_batch_init(&batch);
    ck_assert(sim_batch_join(&batch, 0, 1, 1, 20));
    batch.base = 0.01;
    ck_assert(sim_batch_advance(&batch, 10));
    ck_assert(sim_batch_stall(&batch, batch.at + 0.5));
    ck_assert(sim_batch_advance(&batch, 10));
    ck_assert_double_eq_tol(sim_batch_longest(&batch, 20, 0.1, &mean), (0.51 + 0.11) / 2, 1e-9);
    ck_assert_double_eq_tol(mean, (0.2 + 0.5 + 0.1) / 20, 1e-9);
    sim_batch_free(&batch);
}
END_TEST

START_TEST(a_fit_finds_the_formula_and_no_negative_time)
{
    static const double known[FIT_TERMS] = {0.07, 1.1e-4, 7e-10, 2.6e-6};
    fit_row_t           rows[200];
    double              c[FIT_TERMS], n, p;
    size_t              i;

    for (i = 0; i < 200; ++i) {
        n       = 500 + (double)below(100000);
        p       = n * (double)below(100) / 100;
        rows[i] = (fit_row_t){{1, n - p, (n - p) * (n + p), p}, 0};
        rows[i].y = known[0] + (known[1] * (n - p)) + (known[2] * rows[i].x[2]) + (known[3] * p);
    }
    ck_assert(fit_solve(rows, 200, 4, 5, 0, c));
    for (i = 0; i < 4; ++i) {
        ck_assert_double_eq_tol(c[i] / known[i], 1, 1e-4);
    }
    ck_assert(fit_error(rows, 200, 4, c, 5, 0) < 1e-5);
    for (i = 0; i < 200; ++i) { /* falls with the second term */
        rows[i].y = 100 - (1e-6 * rows[i].x[1]);
    }
    ck_assert(fit_solve(rows, 200, 4, 0, 0, c));
    ck_assert((c[1] >= 0) && (c[2] >= 0) && (c[3] >= 0));
}
END_TEST

static bool read_text(const char *text, char *error)
{
    char   *copy = strdup(text);
    FILE   *file = fmemopen(copy, strlen(copy), "r");
    work_t work;
    bool   good;

    ck_assert_ptr_nonnull(file);
    work_init(&work);
    error[0] = '\0';
    good     = work_read_csv(&work, file, "t.csv", 0, error);
    ck_assert(good || (work.n == 0));
    work_free(&work);
    fclose(file);
    free(copy);
    return good;
}

START_TEST(bad_csv_is_refused_with_line_and_column)
{
    char error[WORK_ERROR_MAX];

    ck_assert(read_text("arrival,in,out\n0,100,5\n 1.5 , 200 , 7 \n", error));
    ck_assert(read_text("Arrived_At,x,num_prefill_tokens,num_decode_tokens\n0,hi,1,2\n", error));
    ck_assert(!read_text("arrival,in\n0,1\n", error));
    ck_assert_str_eq(error, "t.csv:1:1: the header names no column \"out\"");
    ck_assert(!read_text("x, Arival_at ,in,out\n0,0,1,2\n", error));
    ck_assert_str_eq(error, "t.csv:1:4: "
                            "the header names no column \"arrival\": is \"Arival_at\" to be \"arrived_at\"?");
    ck_assert(!read_text("arrival,input_lenght,out\n0,1,2\n", error));
    ck_assert_str_eq(error, "t.csv:1:9: "
                            "the header names no column \"in\": is \"input_lenght\" to be \"input_length\"?");
    ck_assert(!read_text("arrival,in,out\n0,1,2\n0,1,x\n", error));
    ck_assert_str_eq(error, "t.csv:3:5: \"x\" is not a number");
    ck_assert(!read_text("arrival,in,out\n0,1\n", error));
    ck_assert_str_eq(error, "t.csv:2:4: fewer fields than the header's 3");
    ck_assert(!read_text("arrival,in,out\n0,1,2,3\n", error));
    ck_assert(!read_text("arrival,in,out\nnan,1,2\n", error));
    ck_assert(!read_text("arrival,in,out\n-1,1,2\n", error));
    ck_assert(!read_text("arrival,in,out\n0,1e30,2\n", error));
    ck_assert(!read_text("arrival,in,out,in\n0,1,2,3\n", error));
    ck_assert(!read_text("arrival,in,out\n", error));
    ck_assert_str_eq(error, "t.csv:2:1: no requests in it");
}
END_TEST

START_TEST(a_generated_agent_trace_has_the_published_shape)
{
    double   input = 0, output = 0, cached = 0;
    uint64_t seen[3] = {0, 0, 0};
    uint8_t  *had;
    work_t   work;
    size_t   i;
    uint32_t k;

    work_init(&work);
    ck_assert(work_generate(&work, true, 20000, 1));
    had = calloc(work.distinct, 1);
    for (i = 0; i < work.n; ++i) {
        const work_request_t *r = &work.requests[i];

        input += r->input;
        output += r->output;
        ++seen[r->klass];
        for (k = 0; (k < r->n) && (had[work.blocks[r->first + k]] != 0); ++k) {
        }
        cached += fmin(k * WORK_BLOCK_TOKENS, r->input);
        for (k = 0; k < r->n; ++k) {
            had[work.blocks[r->first + k]] = 1;
        }
    }
    ck_assert_uint_gt(seen[0] * seen[1] * seen[2], 0);
    ck_assert_double_eq_tol(input / 20000, 8596, 860); /* scheduler facts: 8,596 in, 182 out, 59% cached */
    ck_assert_double_eq_tol(output / 20000, 182, 40);
    ck_assert_double_eq_tol(cached / input, 0.59, 0.06);
    free(had);
    work_free(&work);
}
END_TEST

int main(void)
{
    Suite   *suite  = suite_create("tools sim");
    TCase   *parts  = tcase_create("parts");
    SRunner *runner = srunner_create(suite);
    int     failed;

    test_seed(&random_state);
    tcase_set_timeout(parts, 60);
    tcase_add_test(parts, events_leave_by_time_and_then_as_they_came);
    tcase_add_test(parts, an_lru_pool_evicts_what_was_not_used_longest);
    tcase_add_test(parts, a_pool_of_the_librarys_order_keeps_a_hot_block_over_a_scan);
    tcase_add_test(parts, transfers_get_the_lesser_of_two_equal_shares);
    tcase_add_test(parts, all_bytes_of_random_transfers_arrive_and_no_port_is_overdrawn);
    tcase_add_test(parts, the_closed_form_of_a_batch_is_as_one_step_at_a_time);
    tcase_add_test(parts, the_step_that_runs_at_a_time_is_found);
    tcase_add_test(parts, a_stall_is_among_the_longest_tenth_of_gaps);
    tcase_add_test(parts, a_fit_finds_the_formula_and_no_negative_time);
    tcase_add_test(parts, bad_csv_is_refused_with_line_and_column);
    tcase_add_test(parts, a_generated_agent_trace_has_the_published_shape);
    suite_add_tcase(suite, parts);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return (failed == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
