/*
 * What NIXL and its user learn about a failure: NIXL's number for a KVCL status, and one line on stderr that says which
 * agent failed at what, and why.
 */
#ifndef KVCL_NIXL_REPORT_HH
#define KVCL_NIXL_REPORT_HH

#include <kvcl/kvcl_status.h>

#include <string>

#include "nixl_types.h"

namespace kvcl_nixl {

nixl_status_t to_nixl(kvcl_status_t status) noexcept;

/** A name that a peer may have chosen, in quotes, as a line can hold it: printable, and cut off after 64 characters. */
std::string quoted(const std::string &name);

/** One line: "kvcl: NIXL agent "a": " and the text. Any thread. */
void report(const std::string &agent, const std::string &text);

/** For a call of this thread that has just failed: the line is what, and kvcl_last_error(). @return to_nixl(status). */
nixl_status_t report_failure(const std::string &agent, const std::string &what, kvcl_status_t status);

} // namespace kvcl_nixl

#endif
