/*
 * Parts of notifications (notice.hh).
 *
 * Invariant: an open text has the length that its first part named, and each of its parts is taken once.
 */
#include "notice.hh"

#include <kvcl/kvcl_xfer.h>

#include <algorithm>
#include <cstring>

namespace kvcl_nixl {

namespace {

constexpr uint32_t MAGIC    = 0x314e564b; /* "KVN1" */
constexpr size_t   HEAD_LEN = 20;

struct Head {
    uint32_t magic;
    uint16_t name_len;
    uint16_t zero;
    uint32_t number;
    uint32_t text_len;
    uint32_t offset;
};
static_assert(sizeof(Head) == HEAD_LEN, "wire format");

size_t room_for(size_t name_len)
{
    return KVCL_NOTIFY_MAX - HEAD_LEN - name_len;
}

/* Is it a part that split_notice makes? */
bool is_good(const Head &head, size_t len)
{
    if ((head.magic != MAGIC) || (head.zero != 0) || (head.name_len == 0) || (head.name_len > NOTICE_NAME_MAX) ||
        (head.text_len > NOTICE_MAX) || (head.offset > head.text_len) || (len < HEAD_LEN + head.name_len)) {
        return false;
    }
    const size_t room = room_for(head.name_len);
    const size_t here = len - HEAD_LEN - head.name_len;

    return (head.offset % room == 0) && (here == std::min<size_t>(room, head.text_len - head.offset)) &&
           ((here > 0) || (head.text_len == 0));
}

} // namespace

std::vector<std::string> split_notice(const std::string &name, std::string_view text, uint32_t number)
{
    const size_t             room = room_for(name.size());
    std::vector<std::string> parts;
    size_t                   at = 0;

    do {
        const Head  head = {MAGIC, static_cast<uint16_t>(name.size()), 0, number, static_cast<uint32_t>(text.size()),
                            static_cast<uint32_t>(at)};
        std::string part(reinterpret_cast<const char *>(&head), sizeof(head));

        part += name;
        part += text.substr(at, room);
        parts.push_back(std::move(part));
        at += room;
    } while (at < text.size());
    return parts;
}

std::list<NoticeJoiner::Open>::iterator NoticeJoiner::find(int source, uint32_t number)
{
    return std::find_if(open_.begin(), open_.end(),
                        [&](const Open &open) { return (open.source == source) && (open.number == number); });
}

/* Give up the oldest texts. */
void NoticeJoiner::make_room(int source, size_t bytes)
{
    const auto of_source = [&](const Open &open) { return open.source == source; };

    while ((static_cast<size_t>(std::count_if(open_.begin(), open_.end(), of_source)) >= OPEN_MAX) ||
           (bytes_ + bytes > OPEN_BYTES)) {
        auto oldest = std::find_if(open_.begin(), open_.end(), of_source);

        oldest = (oldest == open_.end()) ? open_.begin() : oldest;
        bytes_ -= oldest->notice.text.size();
        open_.erase(oldest);
        ++dropped_;
    }
}

NoticeJoiner::Result NoticeJoiner::take(int source, std::string_view bytes, Notice &notice)
{
    Head head;

    if (bytes.size() < HEAD_LEN) {
        return Result::malformed;
    }
    std::memcpy(&head, bytes.data(), HEAD_LEN);
    if (!is_good(head, bytes.size())) {
        return Result::malformed;
    }
    const std::string_view name = bytes.substr(HEAD_LEN, head.name_len);
    const std::string_view text = bytes.substr(HEAD_LEN + head.name_len);

    if (text.size() == head.text_len) {
        notice = {std::string(name), std::string(text)};
        return Result::whole;
    }
    auto open = find(source, head.number);

    if (open == open_.end()) {
        const size_t room = room_for(head.name_len);

        make_room(source, head.text_len);
        open = open_.insert(open_.end(), {source, head.number, head.text_len,
                                          std::vector<bool>((head.text_len + room - 1) / room),
                                          {std::string(name), std::string(head.text_len, '\0')}});
        bytes_ += head.text_len;
    }
    const size_t part = head.offset / room_for(head.name_len);

    if ((open->notice.name != name) || (open->notice.text.size() != head.text_len) || open->have[part]) {
        return Result::malformed;
    }
    open->have[part] = true;
    open->notice.text.replace(head.offset, text.size(), text);
    open->left -= text.size();
    if (open->left > 0) {
        return Result::part;
    }
    notice = std::move(open->notice);
    bytes_ -= head.text_len;
    open_.erase(open);
    return Result::whole;
}

} // namespace kvcl_nixl
