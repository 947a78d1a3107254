/*
 * kvcl_info --security: what of this process others can reach, as the kernel lists it in /proc, and what protects each.
 * The process has joined its job, so that it has opened what a rank with these settings opens. Owns no state.
 */
#include "config.h"
#include "tools/info/info.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTENS = 0x0a, WHERE_MAX = 128, WIRE_MAX = 16, INODES_MAX = 4096 };

typedef struct inodes {
    unsigned long v[INODES_MAX];
    size_t        n;
} inodes_t;

typedef struct security {
    inodes_t  own;            /* of this process's sockets */
    char      wire[WIRE_MAX]; /* KVCL_WIRE; a library without this setting has UCX's TCP alone */
    door_fn_t fn;
    void      *arg;
} security_t;

static void find_sockets(inodes_t *own)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    char          path[300], target[64];
    ssize_t       len;

    own->n = 0;
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL) && (own->n < INODES_MAX)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        len                         = readlink(path, target, sizeof(target) - 1);
        target[(len > 0) ? len : 0] = '\0';
        own->n += (sscanf(target, "socket:[%lu]", &own->v[own->n]) == 1) ? 1 : 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static bool is_own(const inodes_t *own, unsigned long inode)
{
    size_t i;

    for (i = 0; i < own->n; ++i) {
        if (own->v[i] == inode) {
            return true;
        }
    }
    return false;
}

/* ---- TCP ---- */

/* "0100007F" or 32 digits, as 32-bit words in the machine's byte order. @return whether it is a loopback address. */
static bool print_address(const char *hex, unsigned port, char *where, size_t cap)
{
    unsigned char bytes[16] = {0};
    char          text[INET6_ADDRSTRLEN] = "";
    const bool    v6 = strlen(hex) == 32;
    uint32_t      word;
    size_t        i;

    for (i = 0; (i < (v6 ? 4u : 1u)) && (sscanf(hex + (8 * i), "%8x", &word) == 1); ++i) {
        memcpy(bytes + (4 * i), &word, sizeof(word));
    }
    (void)inet_ntop(v6 ? AF_INET6 : AF_INET, bytes, text, sizeof(text));
    snprintf(where, cap, v6 ? "[%s]:%u" : "%s:%u", text, port);
    return v6 ? (memcmp(bytes, (unsigned char[16]){[15] = 1}, 16) == 0) : (bytes[0] == 127);
}

static const char *protection(const security_t *security, bool loopback)
{
    if (strcmp(security->wire, "ucx") == 0) {
        return "UCX's own TCP: whoever connects can write to any address of this process";
    }
    if ((strcmp(security->wire, "aead") == 0) || (!loopback && (strcmp(security->wire, "plain") != 0))) {
        return "a connection proves the job's secret first, then all bytes are encrypted and authenticated";
    }
    return "a connection proves the job's secret first; the bytes after that are not encrypted";
}

static void list_tcp(const security_t *security, const char *table)
{
    FILE          *file = fopen(table, "r");
    char          line[512], hex[64], where[WHERE_MAX];
    unsigned      port, state;
    unsigned long inode;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if ((sscanf(line, " %*d: %63[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", hex, &port, &state, &inode) == 4) &&
            (state == LISTENS) && is_own(&security->own, inode)) {
            bool loopback = print_address(hex, port, where, sizeof(where));
            security->fn(security->arg, "tcp", where, protection(security, loopback));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* ---- local sockets and memory ---- */

static void list_unix(const security_t *security)
{
    FILE          *file = fopen("/proc/self/net/unix", "r");
    char          line[512], where[WHERE_MAX];
    unsigned long inode;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        where[0] = '\0';
        if ((sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %127s", &inode, where) == 2) &&
            is_own(&security->own, inode)) {
            security->fn(security->arg, "unix", where, (where[0] == '@') ?
                         "any user of this host can send to it; it only wakes this process, what arrives is dropped" :
                         "who may reach it is set by its file's mode");
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Shared, writable mappings of no file on a disk. */
static void list_memory(const security_t *security)
{
    FILE          *file = fopen("/proc/self/maps", "r");
    char          line[512], mode[8], name[256], where[WHERE_MAX];
    unsigned long from, to, bytes = 0;
    unsigned      n = 0;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        name[0] = '\0';
        if ((sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, mode, name) >= 3) &&
            (strcmp(mode, "rw-s") == 0) &&
            ((strncmp(name, "/memfd:", 7) == 0) || (strncmp(name, "/dev/shm/", 9) == 0))) {
            bytes += to - from;
            ++n;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (n > 0) {
        snprintf(where, sizeof(where), "%u segments, %lu KiB", n, bytes / 1024);
        security->fn(security->arg, "memory", where, "processes of this user, and root, can map it; no other user");
    }
}

/* ---- RDMA ---- */

/* The devices of which this process has the driver's file open, each once. */
static void list_rdma(const security_t *security)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    char          path[300], target[64], name[64], word[68], seen[1024] = "";
    unsigned      number;
    ssize_t       len;
    FILE          *file;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        len                         = readlink(path, target, sizeof(target) - 1);
        target[(len > 0) ? len : 0] = '\0';
        if (sscanf(target, "/dev/infiniband/uverbs%u", &number) != 1) {
            continue;
        }
        snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%u/ibdev", number);
        file = fopen(path, "re");
        name[0] = '\0';
        if ((file != NULL) && (fscanf(file, "%63s", name) != 1)) {
            name[0] = '\0';
        }
        snprintf(word, sizeof(word), " %s ", name);
        if ((name[0] != '\0') && (strstr(seen, word) == NULL)) {
            snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s", word);
            security->fn(security->arg, "rdma", name,
                         "a host that reaches the ports in use may write to the process: a trusted fabric only");
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* ---- the settings that matter ---- */

static void take_wire(void *arg, const kvcl_setting_info_t *info)
{
    security_t *security = arg;

    if (strcmp(info->name, "KVCL_WIRE") == 0) {
        snprintf(security->wire, sizeof(security->wire), "%s", info->value);
    }
}

bool info_security(const job_t *job, door_fn_t fn, void *arg)
{
    security_t *security = calloc(1, sizeof(*security));
    bool       good      = job_ok(job, (security != NULL) ? KVCL_OK : KVCL_ERR_NO_MEMORY, "security");

    if (good) {
        snprintf(security->wire, sizeof(security->wire), "ucx");
        good = job_ok(job, kvcl_query_settings(take_wire, security), "settings");
    }
    if (good) {
        security->fn  = fn;
        security->arg = arg;
        find_sockets(&security->own);
        list_tcp(security, "/proc/self/net/tcp");
        list_tcp(security, "/proc/self/net/tcp6");
        list_unix(security);
        list_rdma(security);
        list_memory(security);
    }
    free(security);
    return good;
}
