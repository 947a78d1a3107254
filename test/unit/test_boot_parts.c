/* The pure parts of boot: wire messages, the meeting's decisions, invites, blobs; and secret files. */
#include "config.h"
#include "test_base.h"
#include "base/error.h"
#include "boot/boot_agree.h"
#include "boot/boot_blobs.h"
#include "boot/boot_invite.h"
#include "boot/boot_meeting.h"
#include "boot/boot_wire.h"
#include "boot/secret.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- wire */

static kvcl_status_t parse(const uint8_t *frame, kvcl_boot_msg_t *msg)
{
    kvcl_boot_head_t head;
    kvcl_status_t    status = kvcl_boot_head_parse(frame, &head);

    return (status == KVCL_OK) ? kvcl_boot_body_parse(&head, frame + KVCL_BOOT_HEAD_LEN, msg) : status;
}

START_TEST(messages_come_back_as_they_went)
{
    static uint8_t  frame[KVCL_BOOT_FRAME_MAX];
    static uint8_t  blob[KVCL_BOOT_BLOB_MAX];
    kvcl_boot_msg_t in = {.rank = -1, .size = 4, .id = 77, .wait_ns = 99, .status = KVCL_ERR_EXISTS, .text = "taken"};
    kvcl_boot_msg_t out;
    size_t          len;
    int             type;

    memset(in.nonce, 7, sizeof(in.nonce));
    memset(in.proof, 8, sizeof(in.proof));
    memset(blob, 9, sizeof(blob));
    in.blob     = blob;
    in.blob_len = sizeof(blob);
    for (type = KVCL_BOOT_HELLO; type <= KVCL_BOOT_BYE; type = (type == KVCL_BOOT_BLOB) ? KVCL_BOOT_BYE : type + 1) {
        in.type = (kvcl_boot_type_t)type;
        len     = kvcl_boot_msg_pack(&in, frame, sizeof(frame));
        ck_assert_uint_ge(len, KVCL_BOOT_HEAD_LEN);
        ck_assert_uint_eq(kvcl_boot_msg_pack(&in, frame, len - 1), 0);
        ck_assert_uint_eq(kvcl_boot_msg_pack(&in, frame, len), len);
        ck_assert_int_eq(parse(frame, &out), KVCL_OK);
        ck_assert_int_eq((int)out.type, type);
        if ((type != KVCL_BOOT_PUT) && (type != KVCL_BOOT_BLOB)) {
            ck_assert_uint_le(len, KVCL_BOOT_SMALL_MAX);
        } else {
            ck_assert_uint_eq(out.blob_len, sizeof(blob));
            ck_assert_mem_eq(out.blob, blob, sizeof(blob));
        }
    }
    in.type = KVCL_BOOT_WELCOME;
    (void)kvcl_boot_msg_pack(&in, frame, sizeof(frame));
    ck_assert_int_eq(parse(frame, &out), KVCL_OK);
    ck_assert_int_eq(out.rank, -1);
    ck_assert_uint_eq(out.size, 4);
    ck_assert_uint_eq(out.id, 77);
    ck_assert_mem_eq(out.proof, in.proof, 32);
    in.type = KVCL_BOOT_REFUSE;
    memcpy(in.text, "a\x1b[2Jb", 7);
    (void)kvcl_boot_msg_pack(&in, frame, sizeof(frame));
    ck_assert_int_eq(parse(frame, &out), KVCL_OK);
    ck_assert_int_eq(out.status, KVCL_ERR_EXISTS);
    ck_assert_str_eq(out.text, "a?[2Jb");
}
END_TEST

START_TEST(hostile_frames_are_refused)
{
    uint8_t          frame[KVCL_BOOT_SMALL_MAX];
    uint8_t          saved;
    kvcl_boot_msg_t  msg = {.type = KVCL_BOOT_HELLO};
    kvcl_boot_head_t head;
    kvcl_rand_t      rnd;
    int              i, wrong = 0;

    (void)kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
    for (i = 0; i < KVCL_BOOT_HEAD_LEN; ++i) {
        saved = frame[i];
        frame[i] ^= 0x40;
        ck_assert_int_ne(kvcl_boot_head_parse(frame, &head), KVCL_OK);
        frame[i] = saved;
    }
    frame[4] = 2;
    ck_assert_int_eq(kvcl_boot_head_parse(frame, &head), KVCL_ERR_VERSION);
    ck_assert_uint_eq(head.version, 2);
    /* Random bytes after a good magic and version: never a crash, never a length past the type's bound. */
    test_seed(&rnd);
    for (i = 0; i < 200000; ++i) {
        int k;

        (void)kvcl_boot_msg_pack(&msg, frame, sizeof(frame));
        for (k = 6; k < (int)sizeof(frame); ++k) {
            frame[k] = (uint8_t)kvcl_rand_next(&rnd);
        }
        frame[7] = frame[10] = frame[11] = 0;
        if (kvcl_boot_head_parse(frame, &head) == KVCL_OK) {
            wrong += (head.len > KVCL_BOOT_FRAME_MAX - KVCL_BOOT_HEAD_LEN);
            if (head.len <= sizeof(frame) - KVCL_BOOT_HEAD_LEN) {
                wrong += (kvcl_boot_body_parse(&head, frame + KVCL_BOOT_HEAD_LEN, &msg) > 0);
            }
            msg.type = KVCL_BOOT_HELLO;
        }
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(proof_depends_on_all_it_covers)
{
    uint8_t         secret[32] = {1}, mine[32] = {2}, theirs[32] = {3}, proof[32], other[32];
    kvcl_boot_msg_t join       = {.type = KVCL_BOOT_JOIN, .rank = 1, .size = 4};

    kvcl_boot_prove(&join, secret, mine, theirs, proof);
    kvcl_boot_prove(&join, secret, theirs, mine, other);
    ck_assert_mem_ne(proof, other, 32);
    join.rank = 2;
    kvcl_boot_prove(&join, secret, mine, theirs, other);
    ck_assert_mem_ne(proof, other, 32);
    join.rank = 1;
    join.type = KVCL_BOOT_WELCOME; /* a server's proof is never accepted as a member's */
    kvcl_boot_prove(&join, secret, mine, theirs, other);
    ck_assert_mem_ne(proof, other, 32);
    join.type = KVCL_BOOT_JOIN;
    secret[0] = 9;
    kvcl_boot_prove(&join, secret, mine, theirs, other);
    ck_assert_mem_ne(proof, other, 32);
}
END_TEST

/* ---------------------------------------------------------------- meeting */

START_TEST(meeting_deals_ranks_and_refuses_doubles)
{
    kvcl_meeting_t meeting;
    int            rank = -1;

    ck_assert_int_eq(kvcl_meeting_init(&meeting, 3), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, -1, 4, &rank), KVCL_ERR_INVALID_PARAM);
    ck_assert_str_eq(kvcl_last_error(), "this meeting is for 3 ranks, not 4: KVCL_SIZE must be the same on all");
    ck_assert_int_eq(kvcl_meeting_join(&meeting, 3, 3, &rank), KVCL_ERR_INVALID_PARAM);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, 0, 3, &rank), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, 0, 3, &rank), KVCL_ERR_EXISTS);
    ck_assert_str_eq(kvcl_last_error(), "rank 0 is taken by another process: KVCL_RANK must differ");
    (void)kvcl_meeting_timed_out(&meeting, 2 * KVCL_NS_PER_SEC, 0);
    ck_assert_str_eq(kvcl_last_error(), "ranks 1, 2 did not arrive within 2s, 1 of 3 did: see that all are started "
                     "with this KVCL_RENDEZVOUS and secret, or raise KVCL_BOOT_TIMEOUT");
    ck_assert_int_eq(kvcl_meeting_join(&meeting, -1, 3, &rank), KVCL_OK);
    ck_assert_int_eq(rank, 1);
    (void)kvcl_meeting_timed_out(&meeting, 60 * KVCL_NS_PER_SEC, 1);
    ck_assert_str_eq(kvcl_last_error(), "rank 2 did not arrive within 1m, 2 of 3 did: 1 with another secret came and "
                     "was refused: give all ranks the same KVCL_SECRET_FILE");
    ck_assert_int_eq(kvcl_meeting_join(&meeting, -1, 3, &rank), KVCL_OK);
    ck_assert_int_eq(rank, 2);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, -1, 3, &rank), KVCL_ERR_EXISTS);
    kvcl_meeting_fini(&meeting);
}
END_TEST

START_TEST(meeting_counts_blobs_and_those_who_leave)
{
    kvcl_meeting_t meeting;
    int            rank, i;

    ck_assert_int_eq(kvcl_meeting_init(&meeting, 3), KVCL_OK);
    for (i = 0; i < 3; ++i) {
        ck_assert_int_eq(kvcl_meeting_join(&meeting, -1, 3, &rank), KVCL_OK);
    }
    ck_assert_int_eq(kvcl_meeting_put(&meeting, 1, "b", 1), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_put(&meeting, 1, "b", 1), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(kvcl_meeting_put(&meeting, 0, NULL, 0), KVCL_OK);
    ck_assert_ptr_null(meeting.table);
    ck_assert_int_eq(kvcl_meeting_put(&meeting, 2, "ccc", 3), KVCL_OK);
    ck_assert_ptr_nonnull(meeting.table);
    ck_assert_uint_eq(meeting.table_len, 3 * (KVCL_BOOT_HEAD_LEN + 4) + 4);
    ck_assert_int_eq(kvcl_meeting_leave(&meeting, 1), KVCL_OK);
    kvcl_meeting_fini(&meeting);

    ck_assert_int_eq(kvcl_meeting_init(&meeting, 2), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, 1, 2, &rank), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_join(&meeting, 0, 2, &rank), KVCL_OK);
    ck_assert_int_eq(kvcl_meeting_leave(&meeting, 1), KVCL_ERR_RANK_FAILED);
    ck_assert_int_eq(kvcl_meeting_put(&meeting, 0, "a", 1), KVCL_ERR_RANK_FAILED);
    ck_assert_str_eq(kvcl_last_error(), "rank 1 left the meeting before all blobs were there");
    kvcl_meeting_fini(&meeting);
}
END_TEST

/* ---------------------------------------------------------------- secrets */

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof(dir), "/tmp/kvcl-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ck_assert_int_eq(system(command), 0);
}

static const char *make_file(const char *name, mode_t mode, size_t len)
{
    static char path[128];
    char        bytes[64];
    int         fd;

    memset(bytes, 'x', sizeof(bytes));
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq((int)write(fd, bytes, len), (int)len);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

START_TEST(secret_file_must_be_private_regular_and_long_enough)
{
    uint8_t     secret[32], again[32];
    const char *path;
    char        fifo[128];

    make_dir();
    ck_assert_int_eq(kvcl_secret_from_file(make_file("ok", 0600, 16), secret), KVCL_OK);
    ck_assert_int_eq(kvcl_secret_from_file(make_file("ro", 0400, 16), again), KVCL_OK);
    ck_assert_mem_eq(secret, again, 32);
    path = make_file("open", 0640, 32);
    ck_assert_int_eq(kvcl_secret_from_file(path, secret), KVCL_ERR_ACCESS);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "chmod 600 /tmp/kvcl-test-"));
    ck_assert_int_eq(kvcl_secret_from_file(make_file("short", 0600, 15), secret), KVCL_ERR_ACCESS);
    ck_assert_int_eq(kvcl_secret_from_file(dir, secret), KVCL_ERR_ACCESS);
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    ck_assert_int_eq(kvcl_secret_from_file(fifo, secret), KVCL_ERR_ACCESS); /* and does not hang */
    ck_assert_int_eq(kvcl_secret_from_file("/tmp/kvcl-none", secret), KVCL_ERR_NOT_FOUND);
    if (geteuid() == 0) {
        path = make_file("other", 0600, 16);
        ck_assert_int_eq(chown(path, 1, 1), 0);
        ck_assert_int_eq(kvcl_secret_from_file(path, secret), KVCL_ERR_ACCESS);
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "belongs to user 1"));
    }
    ck_assert_int_eq(kvcl_secret_or_random(NULL, secret), KVCL_OK);
    ck_assert_int_eq(kvcl_secret_or_random(NULL, again), KVCL_OK);
    ck_assert_mem_ne(secret, again, 32);
    remove_dir();
}
END_TEST

/* As with KVCL_SECRET_FILE. */
START_TEST(a_bad_secret_of_the_user_gives_auth)
{
    static const struct {
        mode_t     mode;
        size_t     len;
        const char *says;
    } rows[] = {{0644, 32, "has mode 0644"}, {0600, 3, "has 3 bytes"}, {0600, 0, "is empty"}};
    char       *home = getenv("HOME"), *old = (home != NULL) ? strdup(home) : NULL, path[160];
    uint8_t    secret[32];
    unsigned   i;

    make_dir();
    ck_assert_int_eq(setenv("HOME", dir, 1), 0);
    snprintf(path, sizeof(path), "%s/.kvcl", dir);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        snprintf(path, sizeof(path), "%s", make_file(".kvcl/secret", rows[i].mode, rows[i].len));
        ck_assert_int_eq(kvcl_secret_of_user(secret), KVCL_ERR_AUTH);
        ck_assert_msg(strstr(kvcl_last_error(), rows[i].says) != NULL, "%s", kvcl_last_error());
        ck_assert_ptr_nonnull(strstr(kvcl_last_error(), path));
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(kvcl_secret_of_user(secret), KVCL_OK); /* made */
    snprintf(path, sizeof(path), "%s/file", dir);
    (void)make_file("file", 0600, 1);
    ck_assert_int_eq(setenv("HOME", path, 1), 0);
    ck_assert_int_eq(kvcl_secret_of_user(secret), KVCL_ERR_IO); /* no directory */
    ck_assert_int_eq((old != NULL) ? setenv("HOME", old, 1) : unsetenv("HOME"), 0);
    free(old);
    remove_dir();
}
END_TEST

START_TEST(simultaneous_processes_agree_on_a_new_secret)
{
    enum { RANKS = 12 };
    uint8_t     secrets[RANKS][32], own[32];
    struct stat st;
    char        sub[128], path[160];
    int         fds[2], i, round;

    make_dir();
    for (round = 0; round < 10; ++round) {
        snprintf(sub, sizeof(sub), "%s/home%d", dir, round);
        ck_assert_int_eq(pipe(fds), 0);
        for (i = 0; i < RANKS; ++i) {
            if (fork() == 0) {
                memset(own, 0, sizeof(own));
                (void)!kvcl_secret_in_dir(sub, own);
                _exit(write(fds[1], own, sizeof(own)) != (ssize_t)sizeof(own));
            }
        }
        for (i = 0; i < RANKS; ++i) {
            ck_assert_int_eq((int)read(fds[0], secrets[i], 32), 32);
            ck_assert_mem_eq(secrets[i], secrets[0], 32);
        }
        memset(own, 0, sizeof(own));
        ck_assert_mem_ne(secrets[0], own, 32);
        while (wait(NULL) > 0) {
        }
        close(fds[0]);
        close(fds[1]);
        snprintf(path, sizeof(path), "%s/secret", sub);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_int_eq(st.st_mode & 07777, 0600);
        ck_assert_int_eq((int)st.st_nlink, 1); /* the private names are removed */
        ck_assert_int_eq(stat(sub, &st), 0);
        ck_assert_int_eq(st.st_mode & 07777, 0700);
    }
    remove_dir();
}
END_TEST

START_TEST(invite_checks_the_file)
{
    uint8_t       wire[KVCL_INVITE_LEN], pubs[2][32] = {{1}, {2}}, secrets[2][32] = {{0}};
    char          a[128], b[128];
    kvcl_invite_t made = {.secret = secrets[0], .pub = pubs[0]}, got = {.secret = secrets[1], .pub = pubs[1]};

    make_dir();
    snprintf(a, sizeof(a), "%s", make_file("a", 0600, 16));
    snprintf(b, sizeof(b), "%s", make_file("b", 0600, 17));
    ck_assert_int_eq(kvcl_invite_make(a, &made, wire), KVCL_OK);
    ck_assert_mem_ne(wire + KVCL_INVITE_LEN - 32, made.secret, 32); /* a file's secret is not sent */
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), a, &got), KVCL_OK);
    ck_assert(!got.agreed);
    ck_assert_mem_eq(made.secret, got.secret, 32);
    ck_assert_uint_eq(made.id, got.id);
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), b, &got), KVCL_ERR_AUTH);
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), NULL, &got), KVCL_ERR_AUTH);
    ck_assert(!got.agreed);
    remove_dir();
}
END_TEST

START_TEST(invite_without_a_file_carries_a_public_value)
{
    uint8_t       wire[KVCL_INVITE_LEN], pubs[2][32] = {{1}, {2}}, secrets[2][32] = {{0}};
    kvcl_invite_t made = {.secret = secrets[0], .pub = pubs[0]}, got = {.secret = secrets[1], .pub = pubs[1]};

    ck_assert_int_eq(kvcl_invite_make(NULL, &made, wire), KVCL_OK);
    ck_assert_ptr_null(memmem(wire, sizeof(wire), secrets[0], 32));
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), NULL, &got), KVCL_OK);
    ck_assert(got.agreed);
    ck_assert_uint_eq(made.id, got.id);
    ck_assert_mem_eq(pubs[0], pubs[1], 32);
    ck_assert_mem_ne(secrets[0], secrets[1], 32);
    got.agreed = false;
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), "/a/file", &got), KVCL_ERR_AUTH);
    ck_assert(got.agreed);
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire) - 1, NULL, &got), KVCL_ERR_PROTOCOL);
    ck_assert_int_eq(kvcl_invite_accept(wire, 0, NULL, &got), KVCL_ERR_PROTOCOL);
    wire[2] = 2; /* the kind */
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), NULL, &got), KVCL_ERR_PROTOCOL);
    wire[0] = 9;
    ck_assert_int_eq(kvcl_invite_accept(wire, sizeof(wire), NULL, &got), KVCL_ERR_VERSION);
    ck_assert(!got.agreed);
}
END_TEST

START_TEST(a_secret_is_sealed_for_one_rank_of_one_job)
{
    static const uint8_t low_order[32] = {1};
    uint8_t              secret[32], got[32], sealed[KVCL_AGREE_SEALED_LEN];
    kvcl_agree_t         zero, one, other;
    int                  i;

    ck_assert_int_eq(kvcl_random_bytes(secret, sizeof(secret)), KVCL_OK);
    ck_assert_int_eq(kvcl_agree_begin(&zero), KVCL_OK);
    ck_assert_int_eq(kvcl_agree_begin(&one), KVCL_OK);
    ck_assert_int_eq(kvcl_agree_begin(&other), KVCL_OK);
    ck_assert_int_eq(kvcl_agree_seal(&zero, one.pub, 77, 5, secret, sealed), KVCL_OK);
    ck_assert_mem_ne(sealed, secret, 32);
    ck_assert_int_eq(kvcl_agree_open(&one, zero.pub, 77, 5, sealed, got), KVCL_OK);
    ck_assert_mem_eq(got, secret, 32);
    ck_assert_int_eq(kvcl_agree_open(&one, zero.pub, 78, 5, sealed, got), KVCL_ERR_AUTH);
    ck_assert_int_eq(kvcl_agree_open(&one, zero.pub, 77, 6, sealed, got), KVCL_ERR_AUTH);
    ck_assert_int_eq(kvcl_agree_open(&one, other.pub, 77, 5, sealed, got), KVCL_ERR_AUTH);
    ck_assert_int_eq(kvcl_agree_open(&other, zero.pub, 77, 5, sealed, got), KVCL_ERR_AUTH);
    for (i = 0; i < 8 * KVCL_AGREE_SEALED_LEN; ++i) {
        sealed[i / 8] ^= (uint8_t)(1u << i % 8);
        ck_assert_int_eq(kvcl_agree_open(&one, zero.pub, 77, 5, sealed, got), KVCL_ERR_AUTH);
        ck_assert_mem_ne(got, secret, 32);
        sealed[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    ck_assert_int_eq(kvcl_agree_seal(&zero, low_order, 77, 5, secret, sealed), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 5"));
    ck_assert_int_eq(kvcl_agree_open(&one, low_order, 77, 5, sealed, got), KVCL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(kvcl_last_error(), "rank 0"));
    kvcl_agree_end(&zero);
    ck_assert(zero.priv[0] == 0);
    kvcl_agree_end(&one);
    kvcl_agree_end(&other);
}
END_TEST

START_TEST(blobs_are_copies)
{
    char         bytes[4] = "abc";
    kvcl_blobs_t blobs;
    const void  *blob;
    size_t       len;

    kvcl_blobs_init(&blobs);
    ck_assert_int_eq(kvcl_blobs_get(&blobs, 0, &blob, &len), KVCL_ERR_NOT_FOUND);
    ck_assert_int_eq(kvcl_blobs_put(&blobs, 0, bytes, 4), KVCL_OK);
    ck_assert_int_eq(kvcl_blobs_put(&blobs, 0, bytes, 4), KVCL_ERR_EXISTS);
    ck_assert_int_eq(kvcl_blobs_put(&blobs, 1, NULL, 0), KVCL_OK);
    bytes[0] = 'x';
    ck_assert_int_eq(kvcl_blobs_get(&blobs, 0, &blob, &len), KVCL_OK);
    ck_assert_str_eq((const char *)blob, "abc");
    ck_assert_int_eq(kvcl_blobs_get(&blobs, 1, &blob, &len), KVCL_OK);
    ck_assert_uint_eq(len, 0);
    kvcl_blobs_fini(&blobs);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("boot parts");
    TCase *tc    = tcase_create("parts");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, messages_come_back_as_they_went);
    tcase_add_test(tc, hostile_frames_are_refused);
    tcase_add_test(tc, proof_depends_on_all_it_covers);
    tcase_add_test(tc, meeting_deals_ranks_and_refuses_doubles);
    tcase_add_test(tc, meeting_counts_blobs_and_those_who_leave);
    tcase_add_test(tc, secret_file_must_be_private_regular_and_long_enough);
    tcase_add_test(tc, a_bad_secret_of_the_user_gives_auth);
    tcase_add_test(tc, simultaneous_processes_agree_on_a_new_secret);
    tcase_add_test(tc, invite_checks_the_file);
    tcase_add_test(tc, invite_without_a_file_carries_a_public_value);
    tcase_add_test(tc, a_secret_is_sealed_for_one_rank_of_one_job);
    tcase_add_test(tc, blobs_are_copies);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
