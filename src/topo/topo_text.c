/*
 * A machine from a text (grammar in topo.h): any topology for tests, without the machine.
 *
 * topo->source is a source_t in the heap.
 */
#include "config.h"

#include "topo/topo.h"

#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 256, WORDS_MAX = 8, CPUS_MAX = 65536 };

typedef struct source {
    int here;        /* the cpu that asks */
    int first, last; /* the cpus that the process is bound to */
} source_t;

typedef struct line {
    char  text[LINE_MAX_BYTES];
    char *words[WORDS_MAX];
    int   nwords;
    int   number; /* from 1 */
} line_t;

static int text_current_cpu(const kvcl_topo_t *topo)
{
    return ((const source_t *)topo->source)->here;
}

static int text_address_numa(const kvcl_topo_t *topo, const void *addr)
{
    (void)addr;
    return kvcl_topo_here(topo, 0).numa;
}

static void text_bound_nodes(const kvcl_topo_t *topo, kvcl_nodeset_t *nodes)
{
    const source_t *source = topo->source;
    size_t         i;

    memset(nodes, 0, sizeof(*nodes));
    for (i = 0; i < topo->ncpus; ++i) {
        if ((topo->cpus[i].cpu >= source->first) && (topo->cpus[i].cpu <= source->last)) {
            kvcl_nodeset_add(nodes, topo->cpus[i].numa);
        }
    }
}

static void text_close(kvcl_topo_t *topo)
{
    free(topo->source);
}

static const kvcl_topo_ops_t text_ops = {
    .name         = "text",
    .current_cpu  = text_current_cpu,
    .address_numa = text_address_numa,
    .bound_nodes  = text_bound_nodes,
    .close        = text_close,
};

static kvcl_status_t refuse(const line_t *line, const char *what)
{
    return kvcl_fail(KVCL_ERR_INVALID_PARAM, "topology text, line %d: %s", line->number, what);
}

/* A decimal int in [min, INT_MAX/2] that is the whole string up to `stop`. */
static int parse_int(const char *text, char stop, int min, int *value_p, const char **end_p)
{
    char *end;
    long  value;

    errno = 0;
    value = strtol(text, &end, 10);
    if ((end == text) || (*end != stop) || (errno != 0) || (value < min) || (value > INT_MAX / 2)) {
        return 0;
    }
    *value_p = (int)value;
    if (end_p != NULL) {
        *end_p = end;
    }
    return 1;
}

static void *grow(void *array, size_t count, size_t size)
{
    return realloc(array, (count + 1) * size);
}

/* "3" or "0-3". */
static int parse_range(const char *text, int *first_p, int *last_p)
{
    const char *end;

    if (parse_int(text, '\0', 0, first_p, NULL)) {
        *last_p = *first_p;
        return 1;
    }
    return parse_int(text, '-', 0, first_p, &end) && parse_int(end + 1, '\0', *first_p, last_p, NULL);
}

static kvcl_status_t add_cpus(kvcl_topo_t *topo, const line_t *line, const char *range, int numa, int package)
{
    int    first, last, i;
    size_t j;

    if (!parse_range(range, &first, &last)) {
        return refuse(line, "cpus is a number or a range first-last");
    }
    if (last - first >= CPUS_MAX) {
        return refuse(line, "more cpus than any machine has");
    }
    for (i = first; i <= last; ++i) {
        kvcl_topo_cpu_t *cpus = grow(topo->cpus, topo->ncpus, sizeof(*cpus));

        if (cpus == NULL) {
            return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a topology");
        }
        topo->cpus = cpus;
        for (j = 0; j < topo->ncpus; ++j) {
            if (cpus[j].cpu == i) {
                return refuse(line, "a cpu is named twice");
            }
        }
        cpus[topo->ncpus++] = (kvcl_topo_cpu_t){.cpu = i, .core = i, .numa = numa, .package = package};
    }
    return KVCL_OK;
}

/* node N package P cpus A-B [mem SIZE] */
static kvcl_status_t take_node(kvcl_topo_t *topo, const line_t *line)
{
    kvcl_topo_node_t *nodes, node = {.bytes = 0};
    size_t            i;

    if (((line->nwords != 6) && (line->nwords != 8)) || (strcmp(line->words[2], "package") != 0) ||
        (strcmp(line->words[4], "cpus") != 0) || ((line->nwords == 8) && (strcmp(line->words[6], "mem") != 0))) {
        return refuse(line, "a node is: node N package P cpus A-B [mem SIZE]");
    }
    if (!parse_int(line->words[1], '\0', 0, &node.numa, NULL) ||
        !parse_int(line->words[3], '\0', 0, &node.package, NULL)) {
        return refuse(line, "node and package are numbers from 0 on");
    }
    if ((line->nwords == 8) && (kvcl_size_parse(line->words[7], &node.bytes) != KVCL_OK)) {
        return refuse(line, "mem is a size, as 64G");
    }
    for (i = 0; i < topo->nnodes; ++i) {
        if (topo->nodes[i].numa == node.numa) {
            return refuse(line, "a node is named twice");
        }
    }
    nodes = grow(topo->nodes, topo->nnodes, sizeof(*nodes));
    if (nodes == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a topology");
    }
    topo->nodes           = nodes;
    nodes[topo->nnodes++] = node;
    return add_cpus(topo, line, line->words[5], node.numa, node.package);
}

/* nic|gpu NAME node N [WORD] */
static kvcl_status_t take_device(kvcl_topo_t *topo, const line_t *line)
{
    kvcl_topo_device_t *devices, device;
    size_t              i;

    memset(&device, 0, sizeof(device));
    if (((line->nwords != 4) && (line->nwords != 5)) || (strcmp(line->words[2], "node") != 0) ||
        !parse_int(line->words[3], '\0', -1, &device.numa, NULL)) {
        return refuse(line, "a device is: nic|gpu NAME node N [WORD]");
    }
    device.kind    = (strcmp(line->words[0], "nic") == 0) ? KVCL_TOPO_NIC : KVCL_TOPO_GPU;
    device.package = -1;
    snprintf(device.name, sizeof(device.name), "%.*s", KVCL_TOPO_NAME_MAX - 1, line->words[1]);
    snprintf(device.what, sizeof(device.what), "%.*s", KVCL_TOPO_NAME_MAX - 1,
             (line->nwords == 5) ? line->words[4] : "");
    for (i = 0; (i < topo->nnodes) && (topo->nodes[i].numa != device.numa); ++i) {
    }
    if (i < topo->nnodes) {
        device.package = topo->nodes[i].package;
    } else if (device.numa >= 0) {
        return refuse(line, "the device's node must stand above it");
    }
    devices = grow(topo->devices, topo->ndevices, sizeof(*devices));
    if (devices == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a topology");
    }
    topo->devices             = devices;
    devices[topo->ndevices++] = device;
    return KVCL_OK;
}

static kvcl_status_t take_line(kvcl_topo_t *topo, const line_t *line)
{
    source_t *source = topo->source;

    if (line->nwords == 0) {
        return KVCL_OK;
    }
    if (strcmp(line->words[0], "node") == 0) {
        return take_node(topo, line);
    }
    if ((strcmp(line->words[0], "nic") == 0) || (strcmp(line->words[0], "gpu") == 0)) {
        return take_device(topo, line);
    }
    if (strcmp(line->words[0], "here") == 0) {
        return ((line->nwords == 2) && parse_int(line->words[1], '\0', 0, &source->here, NULL)) ?
                       KVCL_OK :
                       refuse(line, "here is followed by a cpu's number");
    }
    if (strcmp(line->words[0], "bound") == 0) {
        return ((line->nwords == 2) && parse_range(line->words[1], &source->first, &source->last)) ?
                       KVCL_OK :
                       refuse(line, "bound is followed by cpus, as 0-3");
    }
    return refuse(line, "a line begins with node, nic, gpu, here or bound");
}

/* Cut the line at *text_p into words, and go on to the next one. */
static kvcl_status_t split_line(const char **text_p, line_t *line)
{
    size_t len = strcspn(*text_p, "\n");
    char  *save, *word;

    ++line->number;
    line->nwords = 0;
    if (len >= sizeof(line->text)) {
        return refuse(line, "the line is too long");
    }
    memcpy(line->text, *text_p, len);
    line->text[len] = '\0';
    *text_p += len + ((*text_p)[len] == '\n');
    line->text[strcspn(line->text, "#")] = '\0';
    for (word = strtok_r(line->text, " \t\r", &save); word != NULL; word = strtok_r(NULL, " \t\r", &save)) {
        if (line->nwords == WORDS_MAX) {
            return refuse(line, "too many words");
        }
        line->words[line->nwords++] = word;
    }
    return KVCL_OK;
}

static kvcl_status_t take_text(kvcl_topo_t *topo, const char *text)
{
    line_t        line    = {.number = 0};
    source_t      *source = topo->source;
    kvcl_status_t status  = KVCL_OK;

    while ((*text != '\0') && (status == KVCL_OK)) {
        status = split_line(&text, &line);
        if (status == KVCL_OK) {
            status = take_line(topo, &line);
        }
    }
    if ((status == KVCL_OK) && (topo->nnodes == 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "topology text: no node");
    }
    if ((status == KVCL_OK) && (source->here < 0)) {
        source->here = topo->cpus[0].cpu;
    }
    return status;
}

kvcl_status_t kvcl_topo_open_text(const char *text, kvcl_topo_t **topo_p)
{
    kvcl_topo_t  *topo   = calloc(1, sizeof(*topo));
    source_t     *source = malloc(sizeof(*source));
    kvcl_status_t status;

    if ((topo == NULL) || (source == NULL)) {
        free(topo);
        free(source);
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for a topology");
    }
    *source      = (source_t){.here = -1, .first = 0, .last = INT_MAX};
    topo->ops    = &text_ops;
    topo->source = source;
    status       = take_text(topo, text);
    if (status != KVCL_OK) {
        kvcl_topo_close(topo);
        return status;
    }
    *topo_p = topo;
    return KVCL_OK;
}
