/*
 * The options of the backend: what NIXL's createBackend() takes as its parameters. Each is a string; "" is its default.
 * Users who cannot pass any, those of vLLM's NixlConnector, set KVCL's environment variables.
 */
#ifndef KVCL_NIXL_OPTIONS_HH
#define KVCL_NIXL_OPTIONS_HH

#include <cstdint>
#include <string>

#include "nixl_types.h"

namespace kvcl_nixl {

struct Options {
    std::string secret_file;        /* the file that all agents share; "": KVCL_SECRET_FILE, else the user's own */
    std::string path;               /* as KVCL_PATH; "": KVCL_PATH */
    uint64_t    timeout_ns = 0;     /* of a transfer or a notification; 0: KVCL_TIMEOUT */
    uint64_t    connect_ns = 5000000000;    /* for a peer's answer once its metadata is loaded */
};

/** Every option with "". */
nixl_b_params_t default_options();

/** @throw std::invalid_argument: an option that does not exist, or a value that it cannot have; what() names it. */
Options parse_options(const nixl_b_params_t &params);

} // namespace kvcl_nixl

#endif
