/*
 * In place of NIXL's common/nixl_log.h, which needs Abseil: errors and warnings are lines on stderr, the rest is
 * dropped. NIXL's own headers include it; the plugin reports by report.hh.
 */
#ifndef KVCL_NIXL_SHIM_NIXL_LOG_H
#define KVCL_NIXL_SHIM_NIXL_LOG_H

#include <iostream>
#include <sstream>

namespace kvcl_nixl {

class LogLine {
public:
    explicit LogLine(bool shown) : shown_(shown) {}
    ~LogLine()
    {
        if (shown_) {
            line_ << '\n';
            std::cerr << line_.str();
        }
    }
    template<typename T>
    LogLine &operator<<(const T &value)
    {
        if (shown_) {
            line_ << value;
        }
        return *this;
    }

private:
    const bool         shown_;
    std::ostringstream line_;
};

} // namespace kvcl_nixl

#define NIXL_ERROR kvcl_nixl::LogLine(true)
#define NIXL_WARN  kvcl_nixl::LogLine(true)
#define NIXL_INFO  kvcl_nixl::LogLine(false)
#define NIXL_DEBUG kvcl_nixl::LogLine(false)
#define NIXL_ASSERT(_condition) ((void)0)

#endif
