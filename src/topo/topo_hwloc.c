/*
 * The model from hwloc: the only file that includes hwloc.h.
 *
 * Owns the hwloc topology (topo->source), kept for queries of a page's node and the process's binding. It lacks objects
 * that the process may not use (cgroup, affinity of the container), as is hwloc's default. I/O objects are those that
 * hwloc calls important. A PCI device becomes one device of the model, named by the best of its OS devices: mlx5_0
 * before eth0, cuda0 before card0. A GPU that no driver names keeps its address.
 */
#include "config.h"

#include "topo/topo.h"

#include "base/error.h"

#include <hwloc.h>

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PCI_CLASS_NETWORK = 0x02, PCI_CLASS_DISPLAY = 0x03 };

static int hwloc_current_cpu(const kvcl_topo_t *topo)
{
    (void)topo;
    return sched_getcpu();
}

static int no_cpu(const kvcl_topo_t *topo)
{
    (void)topo;
    return -1;
}

/* The first NUMA node in a set, -1 if it has none or several. */
static int only_node(hwloc_const_nodeset_t set)
{
    return (hwloc_bitmap_weight(set) == 1) ? hwloc_bitmap_first(set) : -1;
}

static int hwloc_address_numa(const kvcl_topo_t *topo, const void *addr)
{
    hwloc_topology_t hw   = topo->source;
    hwloc_bitmap_t   set  = hwloc_bitmap_alloc();
    int              numa = -1;

    if ((set != NULL) && (hwloc_get_area_memlocation(hw, addr, 1, set, HWLOC_MEMBIND_BYNODESET) == 0)) {
        numa = only_node(set);
    }
    hwloc_bitmap_free(set);
    return numa;
}

static int no_numa(const kvcl_topo_t *topo, const void *addr)
{
    (void)topo;
    (void)addr;
    return -1;
}

static void hwloc_bound_nodes(const kvcl_topo_t *topo, kvcl_nodeset_t *nodes)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    size_t         i;

    if ((set == NULL) || (hwloc_get_cpubind(topo->source, set, HWLOC_CPUBIND_PROCESS) != 0)) {
        kvcl_topo_cpu_nodes(topo, nodes);
    } else {
        memset(nodes, 0, sizeof(*nodes));
        for (i = 0; i < topo->ncpus; ++i) {
            if (hwloc_bitmap_isset(set, (unsigned)topo->cpus[i].cpu)) {
                kvcl_nodeset_add(nodes, topo->cpus[i].numa);
            }
        }
    }
    hwloc_bitmap_free(set);
}

static void hwloc_close(kvcl_topo_t *topo)
{
    if (topo->source != NULL) {
        hwloc_topology_destroy(topo->source);
    }
}

static const kvcl_topo_ops_t hwloc_ops = {
    .name         = "hwloc",
    .current_cpu  = hwloc_current_cpu,
    .address_numa = hwloc_address_numa,
    .bound_nodes  = hwloc_bound_nodes,
    .close        = hwloc_close,
};

static const kvcl_topo_ops_t synthetic_ops = {
    .name         = "hwloc, synthetic",
    .current_cpu  = no_cpu,
    .address_numa = no_numa,
    .bound_nodes  = kvcl_topo_cpu_nodes,
    .close        = hwloc_close,
};

/* The system's number of an object's ancestor of a type, -1 without one. */
static int ancestor_number(hwloc_topology_t hw, hwloc_obj_t obj, hwloc_obj_type_t type)
{
    hwloc_obj_t up = hwloc_get_ancestor_obj_by_type(hw, type, obj);

    if (up == NULL) {
        return -1;
    }
    return (up->os_index == HWLOC_UNKNOWN_INDEX) ? (int)up->logical_index : (int)up->os_index;
}

/* The package of all cpus of a NUMA node, -1 if there is no single one. */
static int package_of_node(hwloc_topology_t hw, hwloc_obj_t node)
{
    hwloc_obj_t pack = NULL;

    while ((pack = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_PACKAGE, pack)) != NULL) {
        if (!hwloc_bitmap_iszero(node->cpuset) && hwloc_bitmap_isincluded(node->cpuset, pack->cpuset)) {
            return (pack->os_index == HWLOC_UNKNOWN_INDEX) ? (int)pack->logical_index : (int)pack->os_index;
        }
    }
    return -1;
}

static void add_nodes(hwloc_topology_t hw, kvcl_topo_t *topo)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        topo->nodes[topo->nnodes++] = (kvcl_topo_node_t){
            .numa    = (int)node->os_index,
            .package = package_of_node(hw, node),
            .bytes   = node->attr->numanode.local_memory,
        };
    }
}

static void add_cpus(hwloc_topology_t hw, kvcl_topo_t *topo)
{
    hwloc_obj_t pu = NULL;

    while ((pu = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_PU, pu)) != NULL) {
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(hw, HWLOC_OBJ_CORE, pu);

        topo->cpus[topo->ncpus++] = (kvcl_topo_cpu_t){
            .cpu     = (int)pu->os_index,
            .core    = (int)((core == NULL) ? pu->logical_index : core->logical_index),
            /* with memory-side or high-bandwidth nodes a cpu has several: the first is the plain one */
            .numa    = hwloc_bitmap_first(pu->nodeset),
            .package = ancestor_number(hw, pu, HWLOC_OBJ_PACKAGE),
        };
    }
}

/* How good a name an OS device gives to the PCI device it belongs to; 0: none for this kind. */
static int name_quality(kvcl_topo_device_kind_t kind, const hwloc_obj_t osdev)
{
    hwloc_obj_osdev_type_t type = osdev->attr->osdev.type;

    if (kind == KVCL_TOPO_NIC) {
        return (type == HWLOC_OBJ_OSDEV_OPENFABRICS) ? 2 : (type == HWLOC_OBJ_OSDEV_NETWORK) ? 1 : 0;
    }
    return (type == HWLOC_OBJ_OSDEV_COPROC) ? 2 : (type == HWLOC_OBJ_OSDEV_GPU) ? 1 : 0;
}

static void add_device(hwloc_topology_t hw, kvcl_topo_t *topo, hwloc_obj_t pci, kvcl_topo_device_kind_t kind)
{
    hwloc_obj_t         near   = hwloc_get_non_io_ancestor_obj(hw, pci);
    kvcl_topo_device_t *device = &topo->devices[topo->ndevices++];
    hwloc_obj_t         osdev;
    int                 best = 0;

    memset(device, 0, sizeof(*device));
    device->kind    = kind;
    device->numa    = (near == NULL) ? -1 : only_node(near->nodeset);
    device->package = -1;
    if (near != NULL) {
        device->package = (near->type == HWLOC_OBJ_PACKAGE) ? (int)near->os_index :
                                                              ancestor_number(hw, near, HWLOC_OBJ_PACKAGE);
    }
    snprintf(device->what, sizeof(device->what), "%04x:%02x:%02x.%x", pci->attr->pcidev.domain, pci->attr->pcidev.bus,
             pci->attr->pcidev.dev, pci->attr->pcidev.func);
    snprintf(device->name, sizeof(device->name), "%s", device->what);
    for (osdev = pci->io_first_child; osdev != NULL; osdev = osdev->next_sibling) {
        if ((osdev->type == HWLOC_OBJ_OS_DEVICE) && (osdev->name != NULL) && (name_quality(kind, osdev) > best)) {
            best = name_quality(kind, osdev);
            snprintf(device->name, sizeof(device->name), "%.*s", KVCL_TOPO_NAME_MAX - 1, osdev->name);
        }
    }
}

/* Network and display classes, and whatever carries an OS device of these kinds (an accelerator). */
static void add_devices(hwloc_topology_t hw, kvcl_topo_t *topo)
{
    hwloc_obj_t pci = NULL, osdev;

    while ((pci = hwloc_get_next_pcidev(hw, pci)) != NULL) {
        int base   = pci->attr->pcidev.class_id >> 8;
        int is_nic = (base == PCI_CLASS_NETWORK);
        int is_gpu = (base == PCI_CLASS_DISPLAY);

        for (osdev = pci->io_first_child; osdev != NULL; osdev = osdev->next_sibling) {
            is_nic |= (name_quality(KVCL_TOPO_NIC, osdev) > 0);
            is_gpu |= (name_quality(KVCL_TOPO_GPU, osdev) > 0);
        }
        if (is_nic || is_gpu) {
            add_device(hw, topo, pci, is_nic ? KVCL_TOPO_NIC : KVCL_TOPO_GPU);
        }
    }
}

static size_t count_of(hwloc_topology_t hw, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(hw, type);

    return (n > 0) ? (size_t)n : 0;
}

static kvcl_status_t fill(kvcl_topo_t *topo, hwloc_topology_t hw)
{
    topo->cpus    = calloc(count_of(hw, HWLOC_OBJ_PU) + 1, sizeof(*topo->cpus));
    topo->nodes   = calloc(count_of(hw, HWLOC_OBJ_NUMANODE) + 1, sizeof(*topo->nodes));
    topo->devices = calloc(count_of(hw, HWLOC_OBJ_PCI_DEVICE) + 1, sizeof(*topo->devices));
    if ((topo->cpus == NULL) || (topo->nodes == NULL) || (topo->devices == NULL)) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for the topology");
    }
    add_nodes(hw, topo);
    add_cpus(hw, topo);
    add_devices(hw, topo);
    return KVCL_OK;
}

/*
 * Components we do without. gl asks X servers, opencl loads every vendor's driver: neither belongs into
 * the start of a communication library. pci (a plugin over libpciaccess) leaks memory at each load, and on Linux
 * hwloc's own reader of sysfs finds the same devices when it is away. One that is not there cannot be left out: fine.
 */
static void leave_out_components(hwloc_topology_t hw)
{
    static const char *const names[] = {"gl", "opencl", "pci"};
    size_t                   i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        (void)hwloc_topology_set_components(hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
    }
}

static int load(hwloc_topology_t hw)
{
    leave_out_components(hw);
    if (hwloc_topology_set_io_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0) {
        return -1;
    }
    return hwloc_topology_load(hw);
}

/* synthetic: NULL for this machine. */
static kvcl_status_t open_topology(const char *synthetic, kvcl_topo_t **topo_p)
{
    kvcl_topo_t  *topo = calloc(1, sizeof(*topo));
    kvcl_status_t status;

    if (topo == NULL) {
        return kvcl_fail(KVCL_ERR_NO_MEMORY, "out of memory for the topology");
    }
    topo->ops = (synthetic == NULL) ? &hwloc_ops : &synthetic_ops;
    if (hwloc_topology_init((hwloc_topology_t *)&topo->source) != 0) {
        topo->source = NULL;
        status       = kvcl_fail(KVCL_ERR_NO_MEMORY, "hwloc does not start");
    } else if ((synthetic != NULL) && (hwloc_topology_set_synthetic(topo->source, synthetic) != 0)) {
        status = kvcl_fail(KVCL_ERR_INVALID_PARAM, "'%s' is no synthetic topology of hwloc", synthetic);
    } else if (load(topo->source) != 0) {
        status = kvcl_fail_errno(KVCL_ERR_IO, errno, "hwloc cannot read this machine's topology");
    } else {
        status = fill(topo, topo->source);
    }
    if (status != KVCL_OK) {
        kvcl_topo_close(topo);
        return status;
    }
    *topo_p = topo;
    return KVCL_OK;
}

kvcl_status_t kvcl_topo_open_hwloc(kvcl_topo_t **topo_p)
{
    return open_topology(NULL, topo_p);
}

kvcl_status_t kvcl_topo_open_synthetic(const char *text, kvcl_topo_t **topo_p)
{
    return open_topology(text, topo_p);
}
