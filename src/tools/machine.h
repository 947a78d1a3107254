/*
 * What a measured figure depends on besides its options: processor, host, version and date (machine.c).
 */
#ifndef KVCL_TOOLS_MACHINE_H
#define KVCL_TOOLS_MACHINE_H

#include "tools/json_out.h"

#include <stddef.h>
#include <stdio.h>

typedef struct machine {
    char processor[160];
    char host[65];
    char version[32]; /* of the library that is loaded */
    char date[24];    /* UTC */
} machine_t;

void machine_read(machine_t *machine);
/* cpuinfo: as /proc/cpuinfo, or NULL; otherwise: the answer if it names no model. */
void machine_processor_of(FILE *cpuinfo, const char *otherwise, char *buf, size_t cap);
/* The members processor, host, version, date. */
void machine_json(json_out_t *json);

#endif
