/*
 * Reading and writing of the measured speeds (saved.h). Owns nothing; no locks.
 *
 * unpack parses, packs the result again and compares, so exactly one text is accepted for a table.
 */
#include "config.h"
#include "weave/saved.h"

#include "base/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Lines of /proc/cpuinfo that name a model, on x86 and on Arm. */
static const char *const model_lines[] = {"vendor_id",  "cpu family",      "model",       "model name",
                                          "stepping",   "CPU implementer", "CPU variant", "CPU part"};

static void append(char *machine, const char *text, size_t len)
{
    size_t at = strlen(machine), i;

    if (at + 2 >= KVCL_COPY_MACHINE_MAX) {
        return;
    }
    for (i = 0; (i < len) && (at + 2 < KVCL_COPY_MACHINE_MAX); ++i, ++at) {
        machine[at] = ((text[i] >= ' ') && (text[i] <= '~')) ? text[i] : '?';
    }
    machine[at++] = ' ';
    machine[at]   = '\0';
}

/* "model name\t: Intel(R) ..." */
static void append_if_model(char *machine, const char *line)
{
    size_t name = strcspn(line, "\t:"), i;
    const char *value = strchr(line, ':');

    for (i = 0; (value != NULL) && (i < sizeof(model_lines) / sizeof(model_lines[0])); ++i) {
        if ((strlen(model_lines[i]) == name) && (strncmp(line, model_lines[i], name) == 0)) {
            value += 1 + strspn(value + 1, " ");
            append(machine, value, strcspn(value, "\n"));
            return;
        }
    }
}

void kvcl_copy_machine_of(FILE *cpuinfo, const char *release, const char *kernel, char machine[KVCL_COPY_MACHINE_MAX])
{
    char line[4096];

    machine[0] = '\0';
    /* The first processor's lines end with an empty one. */
    while ((cpuinfo != NULL) && (fgets(line, (int)sizeof(line), cpuinfo) != NULL) && (line[0] != '\n')) {
        append_if_model(machine, line);
    }
    append(machine, release, strlen(release));
    append(machine, kernel, strlen(kernel));
    machine[strlen(machine) - 1] = '\0';
}

void kvcl_copy_machine(const kvcl_weave_kernel_t *kernel, char machine[KVCL_COPY_MACHINE_MAX])
{
    FILE           *file = fopen("/proc/cpuinfo", "re");
    struct utsname name  = {.release = ""};

    (void)uname(&name);
    kvcl_copy_machine_of(file, name.release, kernel->name, machine);
    if (file != NULL) {
        (void)fclose(file);
    }
}

size_t kvcl_copy_pack(const kvcl_copy_table_t *table, const char *machine, char text[KVCL_COPY_TEXT_MAX])
{
    size_t row;
    int    n = snprintf(text, KVCL_COPY_TEXT_MAX, "kvcl copy 2\nmachine %.*s\nwhen %" PRId64 "\n",
                        KVCL_COPY_MACHINE_MAX, machine, table->when_s);

    for (row = 0; row < KVCL_COPY_ROWS; ++row) {
        const uint32_t *mbps = table->mbps[row];

        n += snprintf(text + n, KVCL_COPY_TEXT_MAX - (size_t)n, "%zu %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
                      kvcl_copy_row_bytes[row], mbps[0], mbps[1], mbps[2], mbps[3]);
    }
    for (row = 0; row < KVCL_COPY_LARGE_ROWS; ++row) {
        n += snprintf(text + n, KVCL_COPY_TEXT_MAX - (size_t)n, "%zu %" PRIu32 " %" PRIu32 "\n",
                      kvcl_copy_large_bytes[row], table->large[row][0], table->large[row][1]);
    }
    return (size_t)n;
}
_Static_assert(KVCL_COPY_N_WAYS == 4, "the ways of a row in pack and unpack");
_Static_assert(KVCL_COPY_TEXT_MAX > 64 + KVCL_COPY_MACHINE_MAX + ((KVCL_COPY_ROWS + KVCL_COPY_LARGE_ROWS) * 64),
               "a table fits");

/* The next number of a line, from 1 to max. */
static bool number(const char **at, uint64_t max, uint64_t *value_p)
{
    char *end;

    if ((**at < '1') || (**at > '9')) {
        return false;
    }
    errno    = 0;
    *value_p = strtoull(*at, &end, 10);
    *at      = end + (*end != '\0');
    return (errno == 0) && (*value_p <= max);
}

/* A line: the bytes, which pack compares, and n speeds. */
static bool row_of(const char **at, uint32_t *mbps, size_t n)
{
    uint64_t value = 0;
    size_t   i;

    if (!number(at, SIZE_MAX, &value)) {
        return false;
    }
    for (i = 0; i < n; ++i) {
        if (!number(at, KVCL_COPY_MBPS_MAX, &value)) {
            return false;
        }
        mbps[i] = (uint32_t)value;
    }
    return true;
}

static bool parse(kvcl_copy_table_t *table, const char *text)
{
    const char *at = strstr(text, "\nwhen ");
    uint64_t   value = 0;
    bool       good  = true;
    size_t     row;

    if (at == NULL) {
        return false;
    }
    at += strlen("\nwhen ");
    if (!number(&at, INT64_MAX, &value)) {
        return false;
    }
    table->when_s = (int64_t)value;
    for (row = 0; good && (row < KVCL_COPY_ROWS); ++row) {
        good = row_of(&at, table->mbps[row], KVCL_COPY_N_WAYS);
    }
    for (row = 0; good && (row < KVCL_COPY_LARGE_ROWS); ++row) {
        good = row_of(&at, table->large[row], 2);
    }
    return good;
}

bool kvcl_copy_unpack(kvcl_copy_table_t *table, const char *machine, const char *text, size_t len)
{
    kvcl_copy_table_t found = {.when_s = 0};
    char              copy[KVCL_COPY_TEXT_MAX], again[KVCL_COPY_TEXT_MAX];

    if (len >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (!parse(&found, copy) || (kvcl_copy_pack(&found, machine, again) != len) || (memcmp(again, text, len) != 0)) {
        return false;
    }
    *table = found;
    return true;
}

bool kvcl_copy_path(const char *folder, const char *machine, char path[KVCL_COPY_PATH_MAX])
{
    return (folder != NULL) && (folder[0] == '/') &&
           (snprintf(path, KVCL_COPY_PATH_MAX, "%s/kvcl/copy-%016" PRIx64, folder,
                     kvcl_checksum(machine, strlen(machine))) < KVCL_COPY_PATH_MAX - 32); /* 32: a temporary name */
}

/* @return whether it is a regular file of this user that no other user can write. */
static bool is_own(int fd)
{
    struct stat st;

    return (fstat(fd, &st) == 0) && S_ISREG(st.st_mode) && (st.st_uid == geteuid()) && ((st.st_mode & 022) == 0);
}

bool kvcl_copy_load(kvcl_copy_table_t *table, const char *path, const char *machine)
{
    char    text[KVCL_COPY_TEXT_MAX];
    ssize_t n = -1;
    /* O_NONBLOCK: a FIFO in its place must not block the open. */
    int     fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        return false;
    }
    if (is_own(fd)) {
        n = read(fd, text, sizeof(text));
    }
    close(fd);
    return (n > 0) && kvcl_copy_unpack(table, machine, text, (size_t)n);
}

/* Makes those of the two folders above the file that are missing. */
static void make_folders(const char *path)
{
    char   folder[KVCL_COPY_PATH_MAX];
    char   *slash;

    (void)snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return;
    }
    *slash = '\0';
    if ((mkdir(folder, 0700) != 0) && (errno == ENOENT) && ((slash = strrchr(folder, '/')) != NULL)) {
        *slash = '\0';
        (void)mkdir(folder, 0700);
        *slash = '/';
        (void)mkdir(folder, 0700);
    }
}

bool kvcl_copy_save(const kvcl_copy_table_t *table, const char *path, const char *machine)
{
    char   text[KVCL_COPY_TEXT_MAX], temporary[KVCL_COPY_PATH_MAX];
    size_t len = kvcl_copy_pack(table, machine, text);
    bool   good;
    int    fd;

    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary)) {
        return false;
    }
    make_folders(path);
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    good = (write(fd, text, len) == (ssize_t)len);
    good = (close(fd) == 0) && good && (rename(temporary, path) == 0);
    if (!good) {
        (void)unlink(temporary);
    }
    return good;
}
