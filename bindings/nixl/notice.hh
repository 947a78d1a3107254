/*
 * NIXL's notifications as KVCL's: the sender's name and a text of up to NOTICE_MAX bytes, in parts of at most
 * KVCL_NOTIFY_MAX bytes, since a text may be longer. A part is, little-endian:
 *
 *     u32 magic   u16 bytes of the name   u16 0   u32 number of the text   u32 bytes of the text   u32 offset
 *     the name    the text's bytes from the offset on
 *
 * Every part but the last is full, and parts arrive in any order. Bytes of peers are hostile. Pure: no lock, no clock.
 */
#ifndef KVCL_NIXL_NOTICE_HH
#define KVCL_NIXL_NOTICE_HH

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace kvcl_nixl {

inline constexpr size_t NOTICE_MAX      = 1 << 20;
inline constexpr size_t NOTICE_NAME_MAX = 1024;

struct Notice {
    std::string name; /* the sender's, as it says */
    std::string text;
};

/** The parts of a text. number: another one for each text of the sender. Both lengths are within their bounds. */
std::vector<std::string> split_notice(const std::string &name, std::string_view text, uint32_t number);

/* Joins the parts that arrive. */
class NoticeJoiner {
public:
    enum class Result { whole, part, malformed };

    /** Take a part from a peer. @param [out] notice  filled if the text is whole now. */
    Result take(int source, std::string_view bytes, Notice &notice);

    /** Texts that were given up, because their peer has begun more than OPEN_MAX others. */
    uint64_t dropped() const { return dropped_; }

    static constexpr size_t OPEN_MAX = 4; /* texts of a peer, or of all where they have OPEN_BYTES together */
    static constexpr size_t OPEN_BYTES = 64 * NOTICE_MAX;

private:
    struct Open {
        int               source;
        uint32_t          number;
        size_t            left; /* bytes that have not arrived */
        std::vector<bool> have; /* parts */
        Notice            notice;
    };

    std::list<Open>::iterator find(int source, uint32_t number);
    void                      make_room(int source, size_t bytes);

    std::list<Open> open_; /* the oldest first */
    size_t          bytes_   = 0;
    uint64_t        dropped_ = 0;
};

} // namespace kvcl_nixl

#endif
