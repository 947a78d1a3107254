/*
 * The backend that NIXL sees: each of its virtual functions, by the other files of this folder. The comments of
 * backend_engine.h are their contracts.
 *
 * Threads: NIXL calls from any, and locks as its agent's sync mode says; tables that several calls use have locks.
 */
#ifndef KVCL_NIXL_ENGINE_HH
#define KVCL_NIXL_ENGINE_HH

#include "notice.hh"
#include "transfer.hh"

namespace kvcl_nixl {

class Engine : public nixlBackendEngine {
public:
    /** @throw std::exception: what() says why there is no backend; NIXL logs it. */
    explicit Engine(const nixlBackendInitParams *params);
    ~Engine() override = default;

    bool            supportsRemote() const override { return true; }
    bool            supportsLocal() const override { return true; }
    bool            supportsNotif() const override { return true; }
    nixl_mem_list_t getSupportedMems() const override { return memories(); }

    nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out) override;
    nixl_status_t deregisterMem(nixlBackendMD *meta) override;
    nixl_status_t getPublicData(const nixlBackendMD *meta, std::string &text) const override;
    nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&output) override;
    nixl_status_t loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &kind, const std::string &remote_agent,
                               nixlBackendMD *&output) override;
    nixl_status_t unloadMD(nixlBackendMD *input) override;

    nixl_status_t getConnInfo(std::string &text) const override;
    nixl_status_t loadRemoteConnInfo(const std::string &remote_agent, const std::string &text) override;
    nixl_status_t connect(const std::string &remote_agent) override;
    nixl_status_t disconnect(const std::string &remote_agent) override;

    nixl_status_t prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                           const std::string &remote_agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *args = nullptr) const override;
    nixl_status_t postXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                           const std::string &remote_agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *args = nullptr) const override;
    nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
    nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;

    nixl_status_t getNotifs(notif_list_t &list) override;
    nixl_status_t genNotif(const std::string &remote_agent, const std::string &text) const override;

    static nixl_mem_list_t memories() { return {DRAM_SEG, VRAM_SEG}; }

private:
    std::shared_ptr<Peer> peer(const std::string &name) const;
    bool                  split(const std::string &text, std::vector<std::string> &parts) const;
    void                  note_refusal(const std::string &what);

    const std::shared_ptr<const Context> context_;
    mutable Peers                        peers_;
    mutable std::atomic<uint32_t>        texts_ = 0; /* sent */
    std::mutex                           joiner_mutex_;
    NoticeJoiner                         joiner_;
    uint64_t                             refused_ = 0; /* notifications that are none */
};

} // namespace kvcl_nixl

#endif
