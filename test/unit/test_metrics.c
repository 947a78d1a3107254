/*
 * KVCL_METRICS: what its port serves, whom it refuses, what slow, silent and greedy clients can do to it, and settings
 * that are wrong.
 */
#include "config.h"
#include "test_base.h"
#include "listening.h"
#include "metrics/metrics_port.h"
#include <kvcl/kvcl.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONG = 8 << 20 };

static _Atomic unsigned written; /* how often the text was made */

static void write_short(void *arg, FILE *text)
{
    (void)arg;
    ++written;
    fputs("short 1\n", text);
}

static void write_long(void *arg, FILE *text)
{
    char some[65536];
    int  i;

    (void)arg;
    memset(some, 'x', sizeof(some));
    for (i = 0; i < LONG; i += (int)sizeof(some)) {
        (void)!fwrite(some, 1, sizeof(some), text);
    }
}

static int dial(const char *where)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(where, ':') + 1))};
    const struct timeval most = {.tv_sec = 60};
    int                  fd   = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)), 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    ck_assert_int_eq((int)send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

/* All that arrives until the port closes, malloc'ed. */
static char *hear(int fd)
{
    size_t  room = 65536, len = 0;
    char    *text = malloc(room + 1);
    ssize_t n;

    while ((n = recv(fd, text + len, room - len, 0)) > 0) {
        len += (size_t)n;
        if (len == room) {
            room *= 2;
            text  = realloc(text, room + 1);
        }
    }
    ck_assert_msg(n == 0, "recv: %s", strerror(errno));
    close(fd);
    text[len] = '\0';
    return text;
}

static char *ask(const char *where, const char *request)
{
    int fd = dial(where);

    say(fd, request);
    return hear(fd);
}

/* The reply begins and ends so; it has the length that it states. */
static void replies(const char *where, const char *request, const char *status, const char *body)
{
    char         *text   = ask(where, request);
    const char   *header = strstr(text, "Content-Length: "), *end = strstr(text, "\r\n\r\n");
    unsigned long stated = (header != NULL) ? strtoul(header + 16, NULL, 10) : 0;

    ck_assert_msg(strncmp(text + strlen("HTTP/1.1 "), status, strlen(status)) == 0, "%s: %s", request, text);
    ck_assert_msg((end != NULL) && (header != NULL) && (strstr(text, "Connection: close\r\n") != NULL), "%s", text);
    ck_assert_str_eq(end + 4, body);
    ck_assert_msg((stated == strlen(body)) || (strncmp(request, "HEAD", 4) == 0), "%s", text);
    free(text);
}

static kvcl_metrics_port_t *open_port(kvcl_metrics_write_t write, char where[KVCL_HOSTPORT_MAX])
{
    kvcl_metrics_port_t *port;

    ck_assert_int_eq(kvcl_metrics_port_open("127.0.0.1:0", "test", write, NULL, where, &port), KVCL_OK);
    return port;
}

START_TEST(requests_are_answered_or_refused)
{
    char                where[KVCL_HOSTPORT_MAX], big[KVCL_METRICS_REQUEST + 1], *text;
    kvcl_metrics_port_t *port = open_port(write_short, where);
    int                 fd;

    replies(where, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", "short 1\n");
    replies(where, "GET /metrics HTTP/1.0\n\n", "200 OK", "short 1\n");
    replies(where, "GET /metrics?name[]=x HTTP/1.1\r\n\r\n", "200 OK", "short 1\n");
    replies(where, "HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", "");
    replies(where, "GET / HTTP/1.1\r\n\r\n", "404", "");
    replies(where, "GET /metricsx HTTP/1.1\r\n\r\n", "404", "");
    replies(where, "POST /metrics HTTP/1.1\r\n\r\n", "405", "");
    replies(where, "\r\n\r\n", "405", "");
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    replies(where, big, "431", "");
    fd = dial(where);
    say(fd, "GET /met"); /* in pieces */
    say(fd, "rics HTTP/1.1\r\n");
    say(fd, "\r\n");
    text = hear(fd);
    ck_assert_msg(strstr(text, "200 OK") != NULL, "%s", text);
    free(text);
    kvcl_metrics_port_close(port);
    ck_assert_uint_eq(listening(), 0);
}
END_TEST

START_TEST(many_requests_make_few_texts)
{
    char                where[KVCL_HOSTPORT_MAX];
    kvcl_metrics_port_t *port = open_port(write_short, where);
    uint64_t            begun = kvcl_now_ns();
    unsigned            i;

    written = 0;
    for (i = 0; i < 200; ++i) {
        replies(where, "GET /metrics HTTP/1.1\r\n\r\n", "200 OK", "short 1\n");
    }
    ck_assert_uint_ge(written, 1);
    ck_assert_uint_le(written, 2 + ((kvcl_now_ns() - begun) / KVCL_METRICS_FRESH_NS));
    kvcl_metrics_port_close(port);
}
END_TEST

/* Silent clients are displaced, the oldest first; others are served beside them. */
START_TEST(silent_clients_keep_nobody_out)
{
    enum { SILENT = 5 * KVCL_METRICS_VISITORS };
    char                where[KVCL_HOSTPORT_MAX], byte;
    kvcl_metrics_port_t *port = open_port(write_short, where);
    int                 fds[SILENT], i;

    for (i = 0; i < SILENT; ++i) {
        fds[i] = dial(where);
        say(fds[i], (i % 2) ? "GET /metrics HTTP/1.1\r\nX: " : "");
        if (i % 8 == 0) {
            replies(where, "GET /metrics HTTP/1.1\r\n\r\n", "200 OK", "short 1\n");
        }
    }
    replies(where, "GET /metrics HTTP/1.1\r\n\r\n", "200 OK", "short 1\n");
    for (i = 0; i < SILENT - KVCL_METRICS_VISITORS; ++i) { /* a reset where the request was not read yet */
        errno = 0;
        ck_assert_int_le((int)recv(fds[i], &byte, 1, 0), 0);
        ck_assert(errno != EAGAIN);
        close(fds[i]);
    }
    kvcl_metrics_port_close(port);
    for (; i < SILENT; ++i) {
        close(fds[i]);
    }
}
END_TEST

/* One that sends a little and then nothing is dropped, also where nobody needs its place. */
START_TEST(a_silent_client_is_dropped)
{
    char                where[KVCL_HOSTPORT_MAX], *text;
    kvcl_metrics_port_t *port = open_port(write_short, where);
    uint64_t            begun = kvcl_now_ns();
    int                 fd    = dial(where);

    say(fd, "GET /metrics");
    text = hear(fd);
    ck_assert_str_eq(text, "");
    ck_assert_uint_ge(kvcl_now_ns() - begun, KVCL_METRICS_NS / 2); /* it had time to go on */
    free(text);
    kvcl_metrics_port_close(port);
}
END_TEST

/* Clients that ask and do not read hold a text each at most, and nobody else up; one that reads gets all of it. */
START_TEST(clients_that_do_not_read_hold_nobody_up)
{
    enum { GREEDY = KVCL_METRICS_VISITORS - 1 };
    char                where[KVCL_HOSTPORT_MAX], *text;
    kvcl_metrics_port_t *port = open_port(write_long, where);
    int                 fds[GREEDY], i;
    size_t              len;

    for (i = 0; i < GREEDY; ++i) {
        fds[i] = dial(where);
        say(fds[i], "GET /metrics HTTP/1.1\r\n\r\n");
    }
    text = ask(where, "GET /metrics HTTP/1.1\r\n\r\n");
    len  = strlen(strstr(text, "\r\n\r\n") + 4);
    ck_assert_uint_eq(len, LONG);
    free(text);
    close(fds[0]); /* it leaves in the middle */
    replies(where, "GET /no HTTP/1.1\r\n\r\n", "404", "");
    kvcl_metrics_port_close(port); /* the others are in the middle */
    for (i = 1; i < GREEDY; ++i) {
        close(fds[i]);
    }
}
END_TEST

/* Ticks of processor time that the port's thread has used. */
static unsigned long ticks(void)
{
    char          path[300], line[512];
    unsigned long user, system, sum = 0;
    struct dirent *entry;
    DIR           *dir = opendir("/proc/self/task");
    FILE          *file;

    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
        file = fopen(path, "r");
        if ((file != NULL) && (fgets(line, sizeof(line), file) != NULL) && (strstr(line, "(kvcl-metrics)") != NULL) &&
            (sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) ==
             2)) {
            sum += user + system + 1;
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(dir);
    return sum;
}

/* A thread that spins uses all of a processor, one that sleeps none. */
START_TEST(nothing_spins)
{
    char                where[KVCL_HOSTPORT_MAX];
    kvcl_metrics_port_t *port = open_port(write_long, where);
    int                 silent = dial(where), greedy = dial(where), gone = dial(where);
    unsigned long       begun;

    say(greedy, "GET /metrics HTTP/1.1\r\n\r\n");
    shutdown(gone, SHUT_WR);
    free(hear(gone));
    begun = ticks();
    ck_assert_uint_gt(begun, 0);
    usleep(1000000);
    ck_assert_uint_lt(ticks() - begun, (unsigned long)sysconf(_SC_CLK_TCK) / 4);
    kvcl_metrics_port_close(port);
    close(silent);
    close(greedy);
}
END_TEST

/* ---- contexts ---- */

static kvcl_status_t open_context(const char *metrics, kvcl_context_h *ctx_p)
{
    kvcl_init_params_t params = KVCL_INIT_PARAMS_INIT;
    kvcl_status_t      status;

    params.boot = "self";
    setenv("KVCL_METRICS", metrics, 1);
    status = kvcl_init(&params, ctx_p);
    unsetenv("KVCL_METRICS");
    return status;
}

/* A context at a port that was free. */
static kvcl_context_h open_somewhere(char where[KVCL_HOSTPORT_MAX])
{
    kvcl_context_h ctx = NULL;
    int            tries;

    for (tries = 0; (ctx == NULL) && (tries < 100); ++tries) {
        kvcl_metrics_port_close(open_port(write_short, where));
        (void)!open_context(where, &ctx);
    }
    ck_assert_msg(ctx != NULL, "%s", kvcl_last_error());
    return ctx;
}

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;

    for (; (text = strstr(text, word)) != NULL; ++text) {
        ++n;
    }
    return n;
}

START_TEST(a_context_serves_its_counters)
{
    kvcl_store_params_t params = {.size = sizeof(params), .dir_entries = 64, .dram_bytes = 4096, .block_bytes = 256};
    char                where[KVCL_HOSTPORT_MAX], *text;
    kvcl_context_h      ctx = open_somewhere(where);
    kvcl_store_h        one, two;
    kvcl_comm_h         world;

    ck_assert_uint_eq(listening(), 1);
    text = ask(where, "GET /metrics HTTP/1.1\r\n\r\n");
    ck_assert_msg(strstr(text, "\nkvcl_context_operations_total{rank=\"0\"} ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\nkvcl_build_info{version=\"") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "text/plain; version=0.0.4") != NULL, "%s", text);
    ck_assert_uint_eq(count(text, "kvcl_store_"), 0);
    free(text);
    ck_assert_int_eq(kvcl_comm_world(ctx, &world), KVCL_OK);
    ck_assert_int_eq(kvcl_store_open(world, &params, &one), KVCL_OK);
    ck_assert_int_eq(kvcl_store_open(world, &params, &two), KVCL_OK);
    do { /* a text may be 100 ms old */
        text = ask(where, "GET /metrics HTTP/1.1\r\n\r\n");
        if (count(text, "\nkvcl_store_pool_blocks{") == 2) {
            break;
        }
        free(text);
    } while (true);
    ck_assert_msg(strstr(text, "\nkvcl_store_pool_blocks{rank=\"0\"} 16\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\nkvcl_store_pool_blocks{rank=\"0\",store=\"1\"} 16\n") != NULL, "%s", text);
    ck_assert_uint_eq(count(text, "# TYPE kvcl_store_pool_blocks gauge\n"), 1);
    free(text);
    kvcl_store_close(one);
    kvcl_store_close(two);
    kvcl_finalize(ctx);
    ck_assert_uint_eq(listening(), 0);
}
END_TEST

START_TEST(a_taken_port_is_an_error_that_says_what_to_do)
{
    char           where[KVCL_HOSTPORT_MAX];
    kvcl_context_h ctx = open_somewhere(where), second = NULL;

    ck_assert_int_eq(open_context(where, &second), KVCL_ERR_BUSY);
    ck_assert_msg((strstr(kvcl_last_error(), "KVCL_METRICS: cannot listen at ") != NULL) &&
                      (strstr(kvcl_last_error(), "port 0 takes a free one") != NULL), "%s", kvcl_last_error());
    kvcl_finalize(ctx);
    ck_assert_int_eq(open_context(where, &second), KVCL_OK); /* the port is free again */
    kvcl_finalize(second);
    ck_assert_int_eq(open_context("127.0.0.1:0", &second), KVCL_OK);
    ck_assert_uint_eq(listening(), 1);
    kvcl_finalize(second);
    ck_assert_int_eq(open_context("", &second), KVCL_OK); /* empty: none */
    ck_assert_uint_eq(listening(), 0);
    kvcl_finalize(second);
}
END_TEST

static const struct {
    const char    *value, *word;
    kvcl_status_t status;
} bad[] = {{"9400", "host:port", KVCL_ERR_INVALID_PARAM},
           {"127.0.0.1", "host:port", KVCL_ERR_INVALID_PARAM},
           {"127.0.0.1:", "host:port", KVCL_ERR_INVALID_PARAM},
           {"127.0.0.1:65536", "65535", KVCL_ERR_INVALID_PARAM},
           {"127.0.0.1:-1", "host:port", KVCL_ERR_INVALID_PARAM},
           {"::1:9400", "[address]:port", KVCL_ERR_INVALID_PARAM},
           {"192.0.2.1:9400", "192.0.2.1", KVCL_ERR_UNREACHABLE}};

START_TEST(a_wrong_value_is_an_error_that_names_it)
{
    kvcl_context_h ctx = NULL;

    ck_assert_int_eq(open_context(bad[_i].value, &ctx), bad[_i].status);
    ck_assert_ptr_null(ctx);
    ck_assert_msg((strstr(kvcl_last_error(), "KVCL_METRICS") != NULL) &&
                      (strstr(kvcl_last_error(), bad[_i].value) != NULL) &&
                      (strstr(kvcl_last_error(), bad[_i].word) != NULL), "%s", kvcl_last_error());
    ck_assert_uint_eq(listening(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tc    = tcase_create("port");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, requests_are_answered_or_refused);
    tcase_add_test(tc, many_requests_make_few_texts);
    tcase_add_test(tc, silent_clients_keep_nobody_out);
    tcase_add_test(tc, a_silent_client_is_dropped);
    tcase_add_test(tc, clients_that_do_not_read_hold_nobody_up);
    tcase_add_test(tc, nothing_spins);
    tcase_add_test(tc, a_context_serves_its_counters);
    tcase_add_test(tc, a_taken_port_is_an_error_that_says_what_to_do);
    tcase_add_loop_test(tc, a_wrong_value_is_an_error_that_names_it, 0, sizeof(bad) / sizeof(bad[0]));
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
