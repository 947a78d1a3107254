/*
 * Who asks at a member's port to join (KVCL_JOIN_AT): a process of another version, and strangers, more than the port
 * has places for, while an honest process joins (procs.h).
 *   join_strangers RANKS   prints "ok NAME" for each case; exit 1 if one failed
 */
#include "procs.h"

#include "base/clock.h"
#include "boot/secret.h"
#include "enter/join_wire.h"
#include "sock/sock_ask.h"
#include "sock/sock_port.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGERS = 4, SOCKETS = KVCL_SOCK_VISITORS }; /* processes, and the connections of each */
enum { SOON_MS = 4000 };                               /* a silent connection has KVCL_SOCK_SHAKE_NS, 5 s */

/* What a member answers to a question of that version; in a process of its own. */
static kvcl_status_t answer_to(const char *address, uint32_t version)
{
    static kvcl_join_answer_t answer;
    uint8_t                   bytes[KVCL_JOIN_QUESTION], secret[32];
    kvcl_sock_question_t      question = {.secret = secret, .id = kvcl_join_id, .wake_fd = -1, .question = bytes,
                                          .question_len = sizeof(bytes), .answer_max = KVCL_JOIN_ANSWER_MAX,
                                          .deadline_ns = kvcl_deadline_after(LONG_S * KVCL_NS_PER_SEC)};
    kvcl_hostport_t           at;
    kvcl_status_t             status = kvcl_hostport_parse(address, "the member's address", 1, &at);
    void                      *buf   = NULL;
    size_t                    len    = 0;

    kvcl_join_question_pack(-1, bytes, version);
    status = (status == KVCL_OK) ? kvcl_secret_named(getenv("KVCL_SECRET_FILE"), secret) : status;
    status = (status == KVCL_OK) ? kvcl_sock_ask(&at, &question, &buf, &len) : status;
    status = (status == KVCL_OK) ? kvcl_join_answer_unpack(buf, len, &answer) : status;
    free(buf);
    return (status == KVCL_OK) ? answer.status : status;
}

static bool answers(uint32_t version, kvcl_status_t wanted)
{
    pid_t pid = fork();
    int   status;

    if (pid == 0) {
        _exit((answer_to(shared->procs[1].address, version) == wanted) ? 0 : 1);
    }
    return ((waitpid(pid, &status, 0) == pid) && WIFEXITED(status) && (WEXITSTATUS(status) == 0)) ||
           fail("another answer to a question of version", (int)version);
}

static bool case_version(void)
{
    bool right = start(size + 1) && all_work();

    right = right && answers(KVCL_WIRE_VERSION + 1, KVCL_ERR_VERSION) &&
            answers(KVCL_WIRE_VERSION - 1, KVCL_ERR_VERSION) && answers(0, KVCL_ERR_VERSION) && all_work();
    right = right && has_joined(join_at(shared->procs[1].address, NO_RANK)) && all_work();
    return finish("a process of another version is refused, and one of this version joins", right, ": ");
}

/* Connections that say nothing, or what is no handshake; one that is closed is made anew. Until it is killed. */
static void be_strangers(const char *address)
{
    char               host[64];
    struct sockaddr_in to = {.sin_family = AF_INET};
    int                fds[SOCKETS], i;
    char               junk[64];

    snprintf(host, sizeof(host), "%s", address);
    to.sin_port = htons((uint16_t)atoi(strrchr(host, ':') + 1));
    *strrchr(host, ':') = '\0';
    memset(junk, 'x', sizeof(junk));
    memset(fds, -1, sizeof(fds));
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        _exit(1);
    }
    for (i = 0;; i = (i + 1) % SOCKETS) {
        if ((fds[i] >= 0) && (recv(fds[i], host, sizeof(host), MSG_DONTWAIT) == 0)) {
            close(fds[i]);
            fds[i] = -1;
        }
        if (fds[i] < 0) {
            fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            if ((connect(fds[i], (struct sockaddr *)&to, sizeof(to)) != 0) ||
                ((i % 4 == 0) && (send(fds[i], junk, sizeof(junk), MSG_NOSIGNAL) < 0))) {
                close(fds[i]);
                fds[i] = -1;
            }
            usleep(200);
        }
        if (i == 0) {
            usleep(1000);
        }
    }
}

static bool case_flood(void)
{
    bool     right = start(size + 1) && all_work();
    pid_t    strangers[STRANGERS];
    char     text[64] = ": ";
    uint64_t from;
    double   ms;
    int      i;

    for (i = 0; i < STRANGERS; ++i) {
        strangers[i] = fork();
        if (strangers[i] == 0) {
            alarm(LONG_S);
            be_strangers(shared->procs[0].address);
        }
    }
    usleep(500000); /* the port is full */
    from = kvcl_now_ns();
    if (right) {
        right = has_joined(join_at(shared->procs[0].address, NO_RANK));
        ms    = (double)(kvcl_now_ns() - from) / 1e6;
        right = right && ((ms < SOON_MS) || fail("it waits until strangers' time is over: ms", (int)ms)) && all_work();
        snprintf(text, sizeof(text), ": after %.0f ms", ms);
    }
    for (i = 0; i < STRANGERS; ++i) {
        kill(strangers[i], SIGKILL);
        (void)waitpid(strangers[i], NULL, 0);
    }
    return finish("an honest process joins among strangers", right, right ? text : ": ");
}

int main(int argc, char **argv)
{
    bool right;

    if (!open_shared((argc > 1) ? atoi(argv[1]) : 3) || (size < 3) || (size > SLOTS - 2)) {
        fprintf(stderr, "usage: join_strangers RANKS\n");
        return 1;
    }
    right = case_version();
    right = case_flood() && right;
    return right ? 0 : 1;
}
