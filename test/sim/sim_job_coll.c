/*
 * The operations of sim_job.h: executors, and what src/coll does for them. An operation is over when its executor has
 * ended and nobody reads its bytes, or GRACE_MS after it has failed.
 */
#include "config.h"

#include "sim_job.h"

#include <string.h>

void job_op_drop(job_t *job)
{
    job_op_t *op = &job->op;
    void     *next;

    if (op->alg == NULL) {
        return;
    }
    kvcl_plan_fini(&op->plan);
    if (op->in != op->out) {
        free(op->in);
    }
    free(op->out);
    free(op->memory);
    free(op->eager);
    for (; op->copies != NULL; op->copies = next) {
        next = *(void **)op->copies;
        free(op->copies);
    }
    memset(op, 0, sizeof(*op));
}

static bool has_no_acks(const job_op_t *op)
{
    bool     can = (op->way == 0) && ((op->alg->kind == KVCL_COLL_ALLREDUCE) ||
                                      (op->alg->kind == KVCL_COLL_ALLGATHER) ||
                                      (op->alg->kind == KVCL_COLL_ALLTOALL));
    uint32_t i;

    for (i = 0; can && (i < op->plan.npeers); ++i) {
        can = (op->plan.peers[i].sends <= KVCL_EXEC_ANNOUNCES);
    }
    return can;
}

/* ---- what the executor has done ---- */

static void announce(proc_t *p, const kvcl_exec_action_t *action)
{
    job_op_t   *op   = &job_of(p)->op;
    job_mail_t *mail;

    job_bytes_check_have(p, action->off, action->len);
    if (sim.failed) {
        return;
    }
    mail            = job_post_rank(p, action->peer, JOB_ANNOUNCE);
    mail->k         = action->k;
    mail->off       = action->off;
    mail->len       = action->len;
    mail->signature = action->signature;
    mail->call      = op->way;
    mail->answer    = has_no_acks(op) && (action->len > 0);
    if (op->way < 2) {
        memcpy(mail->u.bytes, op->in + action->off, action->len);
    }
    if (has_no_acks(op) && (action->len > 0) && (kvcl_exec_acked(&op->exec, action->peer, action->k) != KVCL_OK)) {
        sim_broken("Refused", p, "an announcement with its bytes is not done");
    }
}

static void pull(proc_t *p, const kvcl_exec_action_t *action)
{
    job_op_t         *op   = &job_of(p)->op;
    const job_pull_t now   = {true, action->step, action->peer, action->off, action->with, action->len};
    job_mail_t       *mail;
    unsigned         i;

    if (op->eager[action->step] != NULL) {
        job_bytes_write(op, &now, op->eager[action->step]);
        (void)!kvcl_exec_pulled(&op->exec, action->step, KVCL_OK);
        return;
    }
    for (i = 0; op->pulls[i].busy; ++i) { /* the executor has no more of them under way */
    }
    op->pulls[i] = now;
    mail         = job_post_rank(p, action->peer, JOB_PULL);
    mail->step   = action->step;
    mail->off    = action->peer_off;
    mail->len    = action->len;
}

static void send_abort(proc_t *p, uint32_t rank, kvcl_status_t status)
{
    job_post_rank(p, rank, JOB_ABORT)->status = status;
}

static void perform(proc_t *p, const kvcl_exec_action_t *action)
{
    job_op_t *op = &job_of(p)->op;

    switch (action->op) {
    case KVCL_EXEC_ANNOUNCE:
        announce(p, action);
        break;
    case KVCL_EXEC_PULL:
        pull(p, action);
        break;
    case KVCL_EXEC_ACK:
        if (!op->no_ack[action->step]) {
            job_post_rank(p, action->peer, JOB_ACK)->k = action->k;
        }
        break;
    case KVCL_EXEC_ABORT:
        send_abort(p, action->peer, action->status);
        break;
    }
}

/* Pulls under way are fenced; ranks outside of the plan may wait for ranks inside it. */
static void fail_rest(proc_t *p)
{
    job_t    *job = job_of(p);
    job_op_t *op  = &job->op;
    uint32_t r;
    unsigned i;

    op->failing = true;
    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        if (op->pulls[i].busy) {
            op->pulls[i].busy = false;
            (void)!kvcl_exec_pulled(&op->exec, op->pulls[i].step, op->exec.status);
        }
    }
    for (r = 0; r < job->size; ++r) {
        if ((r != job->rank) && (kvcl_plan_find_peer(&op->plan, r) == KVCL_STEP_NONE) && !job_is_gone(p, r)) {
            send_abort(p, r, op->exec.status);
        }
    }
}

static void advance(proc_t *p)
{
    job_op_t           *op = &job_of(p)->op;
    kvcl_exec_action_t action;
    bool               again;

    do {
        while (kvcl_exec_next(&op->exec, &action) && !sim.failed) {
            perform(p, &action);
        }
        again = (op->exec.status != KVCL_OK) && !op->failing;
        if (again) {
            fail_rest(p);
        }
    } while (again && !sim.failed);
}

/* ---- its end ---- */

static void check_end(proc_t *p, kvcl_status_t status)
{
    const job_op_t *op   = &job_of(p)->op;
    const uint64_t took  = sim.now - op->begun;
    const bool     usual = (status == KVCL_OK) || (status == KVCL_ERR_RANK_FAILED) || (status == KVCL_ERR_REVOKED);

    job_counts.well      += (status == KVCL_OK);
    job_counts.failed    += (status == KVCL_ERR_RANK_FAILED);
    job_counts.revoked   += (status == KVCL_ERR_REVOKED);
    job_counts.timed_out += (status == KVCL_ERR_TIMED_OUT);
    if (!usual && (status != KVCL_ERR_TIMED_OUT) && (status != KVCL_ERR_STALE)) {
        sim_broken("Ends", p, kvcl_status_text(status));
    }
    if (!op->slept && (took > (DEADLINE_MS + GRACE_MS + 500) * MS)) {
        sim_broken("Ends", p, "an operation has outlived its deadline");
    }
    if (!op->slept && job_one_fault && !usual) {
        sim_broken("Ends", p, "an operation ended by its deadline alone");
    }
}

bool job_has_slept(const proc_t *p, bool before, uint64_t *seen_p)
{
    const uint64_t gap = sim.now - *seen_p; /* ticks come more often than every 200 ms */

    if (before || (gap < 10 * MS)) {
        return before;
    }
    *seen_p = sim.now;
    return (gap > 200 * MS) || !kvcl_views_has_quorum(&p->views);
}

void job_op_tick(proc_t *p)
{
    job_t         *job = job_of(p);
    job_op_t      *op  = &job->op;
    kvcl_status_t status;

    if (!op->runs || sim.failed) {
        return;
    }
    op->slept = job_has_slept(p, op->slept, &op->seen);
    if ((op->exec.status == KVCL_OK) && (sim.now - op->begun >= DEADLINE_MS * MS)) {
        kvcl_exec_fail(&op->exec, KVCL_ERR_TIMED_OUT);
    }
    advance(p);
    status = kvcl_exec_status(&op->exec);
    if ((status == KVCL_OK) || (status == KVCL_INPROGRESS)) {
        op->grace = 0;
    } else if (op->grace == 0) {
        op->grace = sim.now + (GRACE_MS * MS);
    }
    if ((status == KVCL_INPROGRESS) ||
        (!kvcl_exec_released(&op->exec) && ((op->grace == 0) || (sim.now < op->grace)))) {
        return;
    }
    check_end(p, status);
    if (status == KVCL_OK) {
        job_bytes_check(p);
    }
    op->runs = false;
    job_op_drop(job);
    job_ended(p, status);
}

void job_op_fail(proc_t *p, kvcl_status_t status)
{
    job_op_t *op = &job_of(p)->op;

    if (op->runs) {
        kvcl_exec_fail(&op->exec, status);
    }
}

void job_op_gone(proc_t *p, uint32_t rank, kvcl_status_t status)
{
    job_op_t *op = &job_of(p)->op;
    unsigned i;

    if (!op->runs || (rank == job_of(p)->rank) || (job_broken == JOB_BREAK_DEAF_EXEC)) {
        return;
    }
    kvcl_exec_peer_failed(&op->exec, rank, status);
    for (i = 0; i < KVCL_EXEC_PULLS; ++i) {
        if (op->pulls[i].busy && (op->pulls[i].peer == rank)) {
            op->pulls[i].busy = false;
            (void)!kvcl_exec_pulled(&op->exec, op->pulls[i].step, status);
        }
    }
}

/* ---- its beginning ---- */

void job_op_begin(proc_t *p)
{
    job_t    *job = job_of(p);
    job_op_t *op  = &job->op;
    uint32_t r;

    op->alg = job_choose(job, &op->shape, &op->way);
    if (kvcl_coll_plan(op->alg, &op->shape, &op->plan) != KVCL_OK) {
        sim_broken("Internal", p, "no plan");
        op->alg = NULL;
        return;
    }
    op->memory = malloc(kvcl_exec_bytes(&op->plan) + 1);
    op->eager  = calloc(op->plan.count + 1, sizeof(*op->eager) + 1);
    if ((op->memory == NULL) || (op->eager == NULL)) {
        abort();
    }
    op->no_ack = (uint8_t *)(op->eager + op->plan.count + 1);
    op->runs   = true;
    op->begun  = op->seen = sim.now;
    job_bytes_begin(job);
    kvcl_exec_init(&op->exec, &op->plan, op->memory, NULL);
    for (r = 0; r < job->size; ++r) {
        if ((r != job->rank) && job_is_gone(p, r)) {
            job_op_gone(p, r, KVCL_ERR_RANK_FAILED);
        }
    }
    job_look_again(p);
}
