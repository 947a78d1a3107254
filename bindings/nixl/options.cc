/*
 * The backend's options (options.hh). No state.
 */
#include "options.hh"

#include "report.hh"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace kvcl_nixl {

namespace {

uint64_t seconds(const std::string &name, const std::string &text)
{
    char         *end  = nullptr;
    const double value = std::strtod(text.c_str(), &end);

    if (!std::isfinite(value) || (value < 0.001) || (value > 1e6) || (*end != '\0')) {
        throw std::invalid_argument("the option " + name + "=" + quoted(text) +
                                    " is no time: give seconds, 0.001 to 1000000");
    }
    return static_cast<uint64_t>(value * 1e9);
}

} // namespace

nixl_b_params_t default_options()
{
    return {{"secret_file", ""}, {"path", ""}, {"timeout", ""}, {"connect_timeout", ""}};
}

Options parse_options(const nixl_b_params_t &params)
{
    Options options;

    for (const auto &[name, text] : params) {
        if (text.empty() && default_options().contains(name)) {
            continue;
        }
        if (name == "secret_file") {
            options.secret_file = text;
        } else if (name == "path") {
            options.path = text;
        } else if (name == "timeout") {
            options.timeout_ns = seconds(name, text);
        } else if (name == "connect_timeout") {
            options.connect_ns = seconds(name, text);
        } else {
            throw std::invalid_argument("there is no option " + quoted(name) +
                                        ": those are secret_file, path, timeout and connect_timeout");
        }
    }
    return options;
}

} // namespace kvcl_nixl
