/*
 * Ranks that a test forks by itself, since mpirun would end them all when one dies. They meet at a loopback port
 * (port.h).
 */
#ifndef KVCL_TEST_START_RANKS_H
#define KVCL_TEST_START_RANKS_H

#include "port.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANK_LIVES_S = 110, PATIENT_MS = 10000, STOPPED_MS = 3000 };

/** The ranks that are started next take part in views, and exclude one that is silent for so long. The default of a
 * second is less than a rank waits for a processor on a busy machine: where ranks are stopped, STOPPED_MS; where they
 * are only killed, which the system proves, or leave, PATIENT_MS. */
static inline void set_views(unsigned dead_ms)
{
    char text[16];

    setenv("KVCL_VIEWS", "yes", 1);
    snprintf(text, sizeof(text), "%ums", dead_ms);
    setenv("KVCL_DEAD", text, 1);
    snprintf(text, sizeof(text), "%ums", dead_ms / 5 * 4);
    setenv("KVCL_LEASE", text, 1);
}

/** Start a process for each rank. It ends with the result of live(arg, rank), or is killed if that takes too long. The
 * caller has not used the library before. pids: NULL if not needed. */
static inline void start_ranks(int size, int (*live)(const void *arg, int rank), const void *arg, pid_t *pids)
{
    char  text[64];
    pid_t pid;
    int   i;

    snprintf(text, sizeof(text), "tcp://127.0.0.1:%d", next_port());
    setenv("KVCL_RENDEZVOUS", text, 1);
    snprintf(text, sizeof(text), "%d", size);
    setenv("KVCL_SIZE", text, 1);
    fflush(stdout);
    for (i = 0; i < size; ++i) {
        pid = fork();
        if (pid == 0) {
            snprintf(text, sizeof(text), "%d", i);
            setenv("KVCL_RANK", text, 1);
            alarm(RANK_LIVES_S);
            _exit(live(arg, i));
        }
        if (pid < 0) {
            perror("fork");
            exit(1); /* the ranks already started end by their alarm */
        }
        if (pids != NULL) {
            pids[i] = pid;
        }
    }
    unsetenv("KVCL_RENDEZVOUS");
    unsetenv("KVCL_SIZE");
}

/** Wait for that rank, or (-1) for any. @return whether it succeeded. */
static inline bool rank_ends_well(pid_t pid)
{
    int status;

    return (waitpid(pid, &status, 0) > 0) && WIFEXITED(status) && (WEXITSTATUS(status) == 0);
}

#endif
