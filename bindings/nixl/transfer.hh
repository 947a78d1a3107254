/*
 * A transfer of NIXL: two lists of pieces, prepared once and posted as often as NIXL likes. The pieces are grouped by
 * the pair of memories that they lie in, and a group is one kvcl_get_vec or kvcl_put_vec.
 *
 * The notification of a transfer of one group travels with it (params.notify). That of several groups, or one that
 * needs several parts, is sent when all data has arrived, inside the check that sees it.
 *
 * With a peer that is not connected yet it begins in the check that finds it connected, so nothing waits.
 *
 * One thread at a time, as NIXL demands.
 */
#ifndef KVCL_NIXL_TRANSFER_HH
#define KVCL_NIXL_TRANSFER_HH

#include "memory.hh"

namespace kvcl_nixl {

class Transfer : public nixlBackendReqH {
public:
    Transfer(std::shared_ptr<Peer> peer, nixl_xfer_op_t op) : peer_(std::move(peer)), op_(op) {}

    /** @return NIXL_SUCCESS, NIXL_ERR_INVALID_PARAM (reported). */
    nixl_status_t prepare(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote);

    /** parts: the notification, empty if there is none. @return as check(). */
    nixl_status_t post(std::vector<std::string> parts);

    /** Does not block. @return NIXL_IN_PROG; NIXL_SUCCESS; or why it failed (reported): then nothing reads or writes
     * the local memory any more. */
    nixl_status_t check();

    /** Stop it, if it is under way. Blocks, one second at most. @return false: local memory is still in use. */
    bool stop();

private:
    struct Group {
        std::shared_ptr<Region> local;
        std::shared_ptr<Window> remote;
        std::vector<kvcl_vec_t> pieces;
    };

    Group &group_of(const LocalMemory &local, const RemoteMemory &remote);
    bool   post_group(const Group &group, const kvcl_xfer_params_t &params);
    bool   post_parts();
    bool   open(const Group &group);
    bool   move();
    void   begin();
    void   fail(kvcl_status_t status, std::string why);
    void   cancel();
    void   collect();

    const std::shared_ptr<Peer> peer_;
    const nixl_xfer_op_t        op_;
    std::vector<Group>          groups_;
    std::vector<std::string>    parts_;   /* of the notification that is to follow the data */
    std::vector<kvcl_req_h>     running_;
    bool                        begun_  = true;    /* false: posted, and the peer is not connected yet */
    kvcl_status_t               status_ = KVCL_OK; /* the first failure */
    std::string                 why_;
};

} // namespace kvcl_nixl

#endif
