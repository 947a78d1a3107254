/*
 * The memory of the driver without a device (fake_cuda.h): the allocations, and the rules of access.
 */
#include "test/unit/fake_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMS = 4096 };

typedef struct mem {
    char   *addr;  /* as seen by the program */
    char   *bytes; /* the memory behind it */
    size_t len;
    int    device; /* -1: pinned */
} mem_t;

pthread_mutex_t fake_cuda_lock = PTHREAD_MUTEX_INITIALIZER;

static mem_t    mems[MEMS];
static unsigned n_mems;

static mem_t *find(uint64_t addr, uint64_t len)
{
    unsigned i;

    for (i = 0; i < n_mems; ++i) {
        mem_t *mem = &mems[i];
        if ((mem->addr != NULL) && (addr >= (uintptr_t)mem->addr) && (addr < (uintptr_t)mem->addr + mem->len)) {
            return (len <= mem->len - (addr - (uintptr_t)mem->addr)) ? mem : NULL;
        }
    }
    return NULL;
}

uint64_t fake_cuda_range(uint64_t addr, size_t *size_p)
{
    const mem_t *mem = find(addr, 1);

    *size_p = mem->len;
    return (uintptr_t)mem->addr;
}

static void *behind(const mem_t *mem, uint64_t addr)
{
    return mem->bytes + (addr - (uintptr_t)mem->addr);
}

void fake_cuda_add(char *addr, char *bytes, size_t len, int device)
{
    unsigned i;

    for (i = 0; (i < n_mems) && (mems[i].addr != NULL); ++i) {
    }
    assert(i < MEMS);
    mems[i] = (mem_t){addr, bytes, len, device};
    n_mems  = (i == n_mems) ? i + 1 : n_mems;
}

void *fake_cuda_malloc(int device, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (len + page - 1) & ~(page - 1);
    int    fd   = memfd_create("device", 0);
    mem_t  mem  = {.len = room, .device = device};

    if ((fd < 0) || (ftruncate(fd, (off_t)room) != 0)) {
        return NULL;
    }
    mem.addr  = mmap(NULL, room, PROT_NONE, MAP_SHARED, fd, 0);
    mem.bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert((mem.addr != MAP_FAILED) && (mem.bytes != MAP_FAILED));
    pthread_mutex_lock(&fake_cuda_lock);
    fake_cuda_add(mem.addr, mem.bytes, mem.len, mem.device);
    pthread_mutex_unlock(&fake_cuda_lock);
    return mem.addr;
}

void fake_cuda_drop(const void *ptr)
{
    mem_t *mem = find((uintptr_t)ptr, 1);

    assert((mem != NULL) && (mem->addr == ptr));
    if (mem->device < 0) {
        free(mem->addr);
    } else {
        munmap(mem->addr, mem->len);
        munmap(mem->bytes, mem->len);
    }
    memset(mem, 0, sizeof(*mem));
}

void fake_cuda_free(void *ptr)
{
    pthread_mutex_lock(&fake_cuda_lock);
    fake_cuda_drop(ptr);
    pthread_mutex_unlock(&fake_cuda_lock);
}

void *fake_cuda_bytes(const void *ptr)
{
    mem_t *mem;
    void  *bytes;

    pthread_mutex_lock(&fake_cuda_lock);
    mem = find((uintptr_t)ptr, 1);
    assert(mem != NULL);
    bytes = behind(mem, (uintptr_t)ptr);
    pthread_mutex_unlock(&fake_cuda_lock);
    return bytes;
}

bool fake_cuda_whose(uint64_t addr, int *device)
{
    mem_t *mem = find(addr, 1);

    *device = (mem != NULL) ? mem->device : -1;
    return mem != NULL;
}

/* The address for cuMemcpyAsync: any memory, host memory unchanged. NULL: the range leaves its allocation. */
void *fake_cuda_for_copy(uint64_t addr, uint64_t len)
{
    mem_t *mem = find(addr, 1);

    if (mem == NULL) {
        return (void *)(uintptr_t)addr;
    }
    return (find(addr, len) != NULL) ? behind(mem, addr) : NULL;
}

/* The address for a kernel on a device: that device's memory, and pinned memory. */
void *fake_cuda_for_kernel(uint64_t addr, uint64_t len, int device)
{
    mem_t *mem = find(addr, (len == 0) ? 1 : len);

    return ((mem != NULL) && ((mem->device < 0) || (mem->device == device))) ? behind(mem, addr) : NULL;
}
