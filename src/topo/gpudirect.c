/*
 * GPUDirect RDMA (gpudirect.h), from the modules that are loaded. A port reaches a GPU's memory by nvidia_peermem
 * (formerly nv_peer_mem), or by dmabuf, which the kernel has since 5.12 and NVIDIA's open module exports.
 *
 * Everything is read from files below the root given, so a test makes a tree of its own. No state, no lock.
 */
#include "config.h"
#include "topo/gpudirect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool exists(const char *root, const char *path)
{
    char full[512];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    return access(full, F_OK) == 0;
}

static bool read_line(const char *root, const char *path, char *line, size_t cap)
{
    char full[512];
    FILE *file;
    bool got;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    file = fopen(full, "re");
    got  = (file != NULL) && (fgets(line, (int)cap, file) != NULL);
    if (file != NULL) {
        fclose(file);
    }
    return got;
}

static bool is_older(const char *version, unsigned major, unsigned minor)
{
    unsigned has_major = 0, has_minor = 0;

    return (sscanf(version, "%u.%u", &has_major, &has_minor) != 2) || (has_major < major) ||
           ((has_major == major) && (has_minor < minor));
}

static bool __attribute__((format(printf, 4, 5))) say(bool can, char *buf, size_t cap, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, cap, fmt, ap);
    va_end(ap);
    return can;
}

bool kvcl_gpudirect(const char *root, const char *ucx, char *buf, size_t cap)
{
    char line[256];

    if (!exists(root, "dev/nvidiactl")) {
        return say(false, buf, cap, "no: no NVIDIA driver is loaded here");
    }
    if (is_older(ucx, 1, 16)) {
        return say(false, buf, cap, "no: UCX %s copies a GPU's memory by the processor; it takes 1.16 or later", ucx);
    }
    if (exists(root, "sys/module/nvidia_peermem/version") || exists(root, "sys/module/nv_peer_mem/version") ||
        exists(root, "sys/kernel/mm/memory_peers/nv_mem/version")) {
        return say(true, buf, cap, "yes (peermem)");
    }
    if (!read_line(root, "proc/driver/nvidia/version", line, sizeof(line)) || (strstr(line, "Open") == NULL)) {
        return say(false, buf, cap, "no: nvidia_peermem is not loaded, and only NVIDIA's open module has dmabuf");
    }
    if (!read_line(root, "proc/sys/kernel/osrelease", line, sizeof(line)) || is_older(line, 5, 12)) {
        return say(false, buf, cap, "no: nvidia_peermem is not loaded, and dmabuf takes Linux 5.12 or later");
    }
    return say(true, buf, cap, "yes (dmabuf, where the port's driver has it)");
}
