/*
 * Two programs that were started apart: one listens, the other connects when it likes, and reads the pages of a prompt.
 *
 *   connect                          both, in two processes
 *   connect listen 127.0.0.1:0       prints where it listens, serves one prompt, ends
 *   connect 127.0.0.1:PORT           reads it
 *
 * Started apart, both name the same KVCL_SECRET_FILE. Between hosts both set KVCL_NET, and the first listens at 0.0.0.0
 * or at a name of its host.
 *
 * The decode side asks for a prompt by a notification. The prefill side answers with the description of its memory. The
 * decode side reads the pages itself, and the notification of that get says that the pages may be used again.
 */
#include <kvcl/kvcl.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 64, PAGE = 16384, ASKED = 1024 };

static const uint64_t second = 1000000000;

static uint8_t value(size_t i)
{
    return (uint8_t)((i * 7) + (i >> 9));
}

/* Prefill: listen, write the address to fd (and print it), serve one prompt. */
static void prefill(const char *at, int fd)
{
    kvcl_recv_info_t info = KVCL_RECV_INFO_INIT;
    kvcl_context_h   ctx;
    kvcl_comm_h      door;
    kvcl_mem_h       pages;
    kvcl_req_h       req;
    char             address[512], prompt[64] = "", desc[ASKED];
    size_t           len, desc_len = sizeof(desc), i;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_mem_alloc(ctx, (size_t)PAGES * PAGE, NULL, &pages));
    KVCL_TRY(kvcl_mem_export(pages, KVCL_READ, desc, &desc_len));
    KVCL_TRY(kvcl_context_listen(ctx, at, address, sizeof(address), &len, &door));
    printf("listening at %s\n", address);
    fflush(stdout);
    if ((fd >= 0) && (write(fd, address, len) != (ssize_t)len)) {
        exit(EXIT_FAILURE);
    }
    KVCL_TRY(kvcl_notify_recv(door, prompt, sizeof(prompt) - 1, &info, 60 * second));
    for (i = 0; i < (size_t)PAGES * PAGE; ++i) { /* stands for the model */
        ((uint8_t *)kvcl_mem_addr(pages))[i] = value(i);
    }
    KVCL_TRY(kvcl_notify(door, info.source, desc, desc_len, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    KVCL_TRY(kvcl_notify_recv(door, prompt, sizeof(prompt) - 1, &info, 60 * second));
    printf("prefill: context %d has read its pages: \"%s\"\n", info.source, prompt);
    kvcl_comm_free(door);
    kvcl_mem_free(pages);
    kvcl_finalize(ctx);
}

/* Decode: connect, ask, read. */
static void decode(const char *address)
{
    static uint8_t     pages[PAGES * PAGE];
    kvcl_xfer_params_t params = KVCL_XFER_PARAMS_INIT;
    kvcl_recv_info_t   info   = KVCL_RECV_INFO_INIT;
    kvcl_vec_t         pieces[PAGES];
    kvcl_context_h     ctx;
    kvcl_comm_h        comm;
    kvcl_rmem_h        theirs;
    kvcl_req_h         req;
    char               desc[ASKED];
    size_t             wrong = 0, i;

    KVCL_TRY(kvcl_init(NULL, &ctx));
    KVCL_TRY(kvcl_context_connect(ctx, address, 60 * second, &comm));
    KVCL_TRY(kvcl_notify(comm, 0, "prompt 1", 8, NULL, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    KVCL_TRY(kvcl_notify_recv(comm, desc, sizeof(desc), &info, 60 * second));
    KVCL_TRY(kvcl_rmem_import(comm, 0, desc, info.bytes, &theirs));
    for (i = 0; i < PAGES; ++i) { /* page i there is page PAGES - 1 - i here */
        pieces[i] = (kvcl_vec_t){i * PAGE, pages + ((PAGES - 1 - i) * PAGE), PAGE};
    }
    params.notify       = "done with prompt 1";
    params.notify_bytes = strlen(params.notify);
    KVCL_TRY(kvcl_get_vec(theirs, pieces, PAGES, NULL, &params, &req));
    KVCL_TRY(kvcl_req_wait(req, 60 * second));
    for (i = 0; i < sizeof(pages); ++i) {
        wrong += pages[((PAGES - 1 - (i / PAGE)) * PAGE) + (i % PAGE)] != value(i);
    }
    printf("decode: %d pages, %zu bytes wrong\n", PAGES, wrong);
    kvcl_rmem_free(theirs);
    kvcl_comm_free(comm); /* disconnects */
    kvcl_finalize(ctx);
    if (wrong != 0) {
        exit(EXIT_FAILURE);
    }
}

/* Both, as two jobs of one process each that share a secret's file. */
static int both(void)
{
    char  file[] = "/tmp/kvcl-connect-XXXXXX", address[512];
    int   fd     = mkstemp(file), pipes[2], status = 1;
    pid_t pid;

    if ((fd < 0) || (write(fd, "a secret for this example alone", 31) != 31) || (pipe(pipes) != 0)) {
        perror("connect");
        return EXIT_FAILURE;
    }
    close(fd);
    setenv("KVCL_SECRET_FILE", file, 1);
    setenv("KVCL_BOOT", "self", 1); /* two jobs, also under mpirun */
    pid = fork();
    if (pid == 0) {
        close(pipes[1]);
        if (read(pipes[0], address, sizeof(address)) <= 0) {
            _exit(EXIT_FAILURE);
        }
        decode(address);
        exit(EXIT_SUCCESS);
    }
    close(pipes[0]);
    prefill("127.0.0.1:0", pipes[1]);
    close(pipes[1]);
    if (waitpid(pid, &status, 0) != pid) {
        status = 1;
    }
    unlink(file);
    return (status == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return both();
    }
    if ((argc == 3) && (strcmp(argv[1], "listen") == 0)) {
        prefill(argv[2], -1);
    } else if (argc == 2) {
        decode(argv[1]);
    } else {
        fprintf(stderr, "usage: connect [listen HOST:PORT | HOST:PORT]\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
