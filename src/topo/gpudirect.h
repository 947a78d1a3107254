/*
 * Whether an RDMA port of this host can read and write a GPU's memory by itself.
 */
#ifndef KVCL_TOPO_GPUDIRECT_H
#define KVCL_TOPO_GPUDIRECT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * root: "" for this machine; below it dev/, proc/ and sys/ are read. ucx: the version, "1.18.0". buf: "yes (peermem)",
 * "yes (dmabuf ...)" or "no: WHY".
 */
bool kvcl_gpudirect(const char *root, const char *ucx, char *buf, size_t cap);

#endif
