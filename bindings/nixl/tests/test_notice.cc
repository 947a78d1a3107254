/*
 * Notifications in parts (notice.hh): any text comes whole, from any order of its parts; bytes that no agent has sent
 * are refused, and hold no more memory than the bounds say. The random rounds print their seed.
 */
#include "notice.hh"

#include <kvcl/kvcl_xfer.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

using kvcl_nixl::Notice;
using kvcl_nixl::NoticeJoiner;
using Result = NoticeJoiner::Result;

static int passed, failed;

static void check(const char *what, bool good)
{
    if (good) {
        ++passed;
        return;
    }
    ++failed;
    std::printf("FAIL: %s\n", what);
}

static std::string bytes_of(std::mt19937_64 &random, size_t n)
{
    std::string bytes(n, '\0');

    std::generate(bytes.begin(), bytes.end(), [&]() { return static_cast<char>(random()); });
    return bytes;
}

/* Each but the last part is one; the last makes it whole. */
static bool comes_whole(NoticeJoiner &joiner, const std::vector<std::string> &parts, const std::string &name,
                        const std::string &text)
{
    Notice notice;

    for (size_t i = 0; i < parts.size(); ++i) {
        const Result expected = (i + 1 < parts.size()) ? Result::part : Result::whole;

        if ((parts[i].size() > KVCL_NOTIFY_MAX) || (joiner.take(3, parts[i], notice) != expected)) {
            return false;
        }
    }
    return (notice.name == name) && (notice.text == text);
}

static void any_text_comes_whole(std::mt19937_64 &random)
{
    const size_t room = KVCL_NOTIFY_MAX - 20 - 5;
    NoticeJoiner joiner;
    uint32_t     number = 0;
    bool         good   = true;

    for (size_t n : {size_t(0), size_t(1), room - 1, room, room + 1, 3 * room, kvcl_nixl::NOTICE_MAX}) {
        const std::string        text  = bytes_of(random, n);
        std::vector<std::string> parts = kvcl_nixl::split_notice("agent", text, number++);

        good = good && (parts.size() == std::max<size_t>(1, (n + room - 1) / room));
        std::shuffle(parts.begin(), parts.end(), random);
        good = good && comes_whole(joiner, parts, "agent", text);
    }
    check("texts of every length come whole, in any order of their parts", good && (joiner.dropped() == 0));
}

static void texts_of_several_peers_do_not_mix(std::mt19937_64 &random)
{
    const std::string              text[2] = {bytes_of(random, 20000), bytes_of(random, 20000)};
    const std::vector<std::string> one     = kvcl_nixl::split_notice("one", text[0], 7);
    const std::vector<std::string> two     = kvcl_nixl::split_notice("two", text[1], 7);
    NoticeJoiner                   joiner;
    Notice                         notice[2];

    for (size_t i = 0; i < one.size(); ++i) {
        (void)joiner.take(1, one[i], notice[0]);
        (void)joiner.take(2, two[i], notice[1]);
    }
    check("texts of two peers under one number do not mix",
          (notice[0].text == text[0]) && (notice[1].text == text[1]) && (notice[1].name == "two"));
}

static void what_no_agent_sends_is_refused()
{
    const std::vector<std::string> parts = kvcl_nixl::split_notice("name", std::string(20000, 'x'), 1);
    const std::string              whole = kvcl_nixl::split_notice("name", "text", 1)[0];
    NoticeJoiner                   joiner;
    Notice                         notice;
    const auto changed = [](std::string bytes, size_t at, char to) {
        bytes[at] = to;
        return bytes;
    };
    const auto is_bad = [&](const std::string &bytes) { return joiner.take(1, bytes, notice) == Result::malformed; };

    check("nothing, and a head that is cut off, are refused", is_bad("") && is_bad(whole.substr(0, 19)));
    check("another magic, or a word that must be 0, is refused", is_bad(changed(whole, 0, 'X')) &&
          is_bad(changed(whole, 6, 1)));
    check("a name that has no byte, or more than there are, is refused", is_bad(changed(whole, 4, 0)) &&
          is_bad(changed(whole, 4, 9)) && is_bad(changed(whole, 5, 127)));
    check("a text that is longer than it says, or shorter, is refused", is_bad(whole + "x") &&
          is_bad(whole.substr(0, whole.size() - 1)) && is_bad(changed(whole, 15, 127)));
    check("an offset between parts, or beyond the end, is refused", is_bad(changed(parts[1], 16, 1)) &&
          is_bad(changed(whole, 16, 5)));
    check("a part that has come is refused", (joiner.take(1, parts[0], notice) == Result::part) && is_bad(parts[0]));
    check("a part of another length or name is refused", is_bad(changed(parts[1], 12, 'y')) &&
          is_bad(changed(parts[1], 20, 'N')));
}

static void what_peers_begin_is_bounded()
{
    NoticeJoiner joiner;
    Notice       notice;
    const size_t begun = 300;

    for (uint32_t i = 0; i < begun; ++i) {
        (void)joiner.take(1, kvcl_nixl::split_notice("a", std::string(9000, 'x'), i)[0], notice);
    }
    check("a peer has no more texts open than it may", joiner.dropped() == begun - NoticeJoiner::OPEN_MAX);
    for (uint32_t i = 0; i < begun; ++i) {
        (void)joiner.take(static_cast<int>(i) + 2,
                          kvcl_nixl::split_notice("a", std::string(kvcl_nixl::NOTICE_MAX, 'x'), 0)[0], notice);
    }
    check("nor all peers together", joiner.dropped() >= 2 * begun - NoticeJoiner::OPEN_BYTES / kvcl_nixl::NOTICE_MAX -
                                                            NoticeJoiner::OPEN_MAX);
}

/* Whatever arrives: the sanitizers watch. */
static void random_changes_do_no_harm(std::mt19937_64 &random)
{
    NoticeJoiner joiner;
    Notice       notice;
    size_t       refused = 0;

    for (int round = 0; round < 20000; ++round) {
        const std::vector<std::string> parts =
            kvcl_nixl::split_notice("abc", std::string(random() % 30000, 'x'), static_cast<uint32_t>(random() % 4));
        std::string bytes = parts[random() % parts.size()];

        for (unsigned n = random() % 3; n > 0; --n) {
            bytes[random() % std::min<size_t>(bytes.size(), 24)] = static_cast<char>(random());
        }
        bytes.resize(random() % 8 ? bytes.size() : random() % bytes.size());
        refused += joiner.take(static_cast<int>(random() % 3), bytes, notice) == Result::malformed;
    }
    check("random changes are refused, or are another text", refused > 0);
}

int main()
{
    const char         *given = std::getenv("TEST_SEED");
    const uint64_t     seed   = (given != nullptr) ? std::strtoull(given, nullptr, 0) : std::random_device()();
    std::mt19937_64    random(seed);

    std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    any_text_comes_whole(random);
    texts_of_several_peers_do_not_mix(random);
    what_no_agent_sends_is_refused();
    what_peers_begin_is_bounded();
    random_changes_do_no_harm(random);
    std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
