/*
 * Owns the transfers and, for each port and way, the list of its transfers. Invariant: n[way] is the list's length, and
 * each transfer's rate is the lesser of its two shares.
 */
#include "config.h"
#include "tools/sim/nic.h"

#include <stdlib.h>
#include <string.h>

enum { OUT = 0, IN = 1 };

bool sim_nic_init(sim_nic_t *nic, uint32_t ports, double bytes_s)
{
    uint32_t i;

    memset(nic, 0, sizeof(*nic));
    nic->free  = SIM_NO_FLOW;
    nic->ports = calloc(ports, sizeof(*nic->ports));
    if (nic->ports == NULL) {
        return false;
    }
    nic->n_ports = ports;
    for (i = 0; i < ports; ++i) {
        nic->ports[i] = (sim_port_t){bytes_s, {0, 0}, {SIM_NO_FLOW, SIM_NO_FLOW}};
    }
    return true;
}

void sim_nic_free(sim_nic_t *nic)
{
    free(nic->ports);
    free(nic->flows);
    memset(nic, 0, sizeof(*nic));
}

static uint32_t take_flow(sim_nic_t *nic)
{
    uint32_t   flow = nic->free, cap;
    sim_flow_t *flows;

    if (flow != SIM_NO_FLOW) {
        nic->free = nic->flows[flow].next[0];
        return flow;
    }
    if (nic->n_flows == nic->cap_flows) {
        cap   = (nic->cap_flows != 0) ? nic->cap_flows * 2 : 64;
        flows = realloc(nic->flows, cap * sizeof(*flows));
        if (flows == NULL) {
            return SIM_NO_FLOW;
        }
        nic->flows     = flows;
        nic->cap_flows = cap;
    }
    nic->flows[nic->n_flows].version = 0;
    return nic->n_flows++;
}

static void link_flow(sim_nic_t *nic, uint32_t flow, uint32_t port, unsigned way)
{
    sim_port_t *at = &nic->ports[port];

    nic->flows[flow].prev[way] = SIM_NO_FLOW;
    nic->flows[flow].next[way] = at->first[way];
    if (at->first[way] != SIM_NO_FLOW) {
        nic->flows[at->first[way]].prev[way] = flow;
    }
    at->first[way] = flow;
    ++at->n[way];
}

static void unlink_flow(sim_nic_t *nic, uint32_t flow, uint32_t port, unsigned way)
{
    sim_port_t *at = &nic->ports[port];
    sim_flow_t *f  = &nic->flows[flow];

    if (f->prev[way] != SIM_NO_FLOW) {
        nic->flows[f->prev[way]].next[way] = f->next[way];
    } else {
        at->first[way] = f->next[way];
    }
    if (f->next[way] != SIM_NO_FLOW) {
        nic->flows[f->next[way]].prev[way] = f->prev[way];
    }
    --at->n[way];
}

static double rate_of(const sim_nic_t *nic, const sim_flow_t *f)
{
    const sim_port_t *from = &nic->ports[f->from], *to = &nic->ports[f->to];
    const double     out = from->bytes_s / from->n[OUT], in = to->bytes_s / to->n[IN];

    return (out < in) ? out : in;
}

/* The transfers of one list go on with the shares of now. */
static void settle(sim_nic_t *nic, double now, uint32_t port, unsigned way)
{
    uint32_t   flow;
    sim_flow_t *f;
    double     rate;

    for (flow = nic->ports[port].first[way]; flow != SIM_NO_FLOW; flow = f->next[way]) {
        f    = &nic->flows[flow];
        rate = rate_of(nic, f);
        if (rate != f->rate) {
            f->left -= f->rate * (now - f->at);
            f->left = (f->left > 0) ? f->left : 0;
            f->at   = now;
            f->rate = rate;
            f->end  = now + (f->left / rate);
            ++f->version;
            nic->changed(nic->arg, flow);
        }
    }
}

uint32_t sim_nic_start(sim_nic_t *nic, double now, uint32_t from, uint32_t to, double bytes)
{
    const uint32_t flow = take_flow(nic);
    sim_flow_t     *f;

    if (flow == SIM_NO_FLOW) {
        return flow;
    }
    f       = &nic->flows[flow];
    f->used = true;
    f->from = from;
    f->to   = to;
    f->left = bytes;
    f->at   = now;
    f->rate = 0;
    link_flow(nic, flow, from, OUT);
    link_flow(nic, flow, to, IN);
    settle(nic, now, from, OUT);
    settle(nic, now, to, IN);
    return flow;
}

void sim_nic_end(sim_nic_t *nic, double now, uint32_t flow)
{
    sim_flow_t     *f   = &nic->flows[flow];
    const uint32_t from = f->from, to = f->to;

    unlink_flow(nic, flow, from, OUT);
    unlink_flow(nic, flow, to, IN);
    f->used    = false;
    f->next[0] = nic->free;
    nic->free  = flow;
    ++f->version;
    settle(nic, now, from, OUT);
    settle(nic, now, to, IN);
}

double sim_nic_left(const sim_nic_t *nic, double now, uint32_t port, unsigned way)
{
    const sim_flow_t *f;
    uint32_t         flow;
    double           sum = 0;

    for (flow = nic->ports[port].first[way]; flow != SIM_NO_FLOW; flow = f->next[way]) {
        f = &nic->flows[flow];
        sum += f->left - (f->rate * (now - f->at));
    }
    return (sum > 0) ? sum : 0;
}
