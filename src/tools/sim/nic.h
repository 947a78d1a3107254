/*
 * The network of a simulation: each port (an instance) has a bandwidth each way, and a transfer gets the lesser of its
 * equal shares of the sender's and the receiver's. A share that one end cannot use is not given to others: that is
 * pessimistic by what max-min fairness would add. Owned by its user; time comes in and does not run backwards.
 */
#ifndef KVCL_TOOLS_SIM_NIC_H
#define KVCL_TOOLS_SIM_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NO_FLOW UINT32_MAX

typedef struct sim_flow {
    uint32_t from;
    uint32_t to;
    double   left;      /* bytes, at time `at` */
    double   at;
    double   rate;      /* bytes a second */
    double   end;       /* when it ends at this rate */
    uint32_t next[2];   /* of the sender's list, of the receiver's */
    uint32_t prev[2];
    uint32_t version;   /* one more with each change of end, so that older events are known to be stale */
    uint32_t kind;      /* the user's, with a and b */
    uint32_t a;
    uint32_t b;
    bool     used;
} sim_flow_t;

typedef struct sim_port {
    double   bytes_s;
    uint32_t n[2];      /* transfers out, in */
    uint32_t first[2];
} sim_port_t;

typedef struct sim_nic {
    sim_port_t *ports;
    uint32_t   n_ports;
    sim_flow_t *flows;
    uint32_t   n_flows; /* used or once used */
    uint32_t   cap_flows;
    uint32_t   free;    /* list by next[0] */
    /* A flow has another end: its user makes an event of it. */
    void       (*changed)(void *arg, uint32_t flow);
    void       *arg;
} sim_nic_t;

/* False: out of memory. */
bool sim_nic_init(sim_nic_t *nic, uint32_t ports, double bytes_s);
void sim_nic_free(sim_nic_t *nic);

/* Start a transfer. @return it, or SIM_NO_FLOW (out of memory). changed() is called for it and those it slows. */
uint32_t sim_nic_start(sim_nic_t *nic, double now, uint32_t from, uint32_t to, double bytes);

/* Take a transfer out, finished or not; changed() is called for those that become faster. */
void sim_nic_end(sim_nic_t *nic, double now, uint32_t flow);

/* Bytes that a port's transfers (way 0: out, 1: in) have still to move. */
double sim_nic_left(const sim_nic_t *nic, double now, uint32_t port, unsigned way);

#endif
