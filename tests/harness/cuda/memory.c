/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates the memory of invented GPUs, and runs what was submitted to their streams at random
 * times. */
#include "tests/harness/cuda/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "tests/harness/cuda/streams.h"

#define ALIGN     256
#define LOST      719 /* cudaErrorLaunchFailure */
#define FORBIDDEN 304 /* cudaErrorOperatingSystem */

struct allocation {
    uint8_t *memory;
    size_t bytes;
};

struct allocations {
    struct allocation *all;
    size_t count, space;
};

struct gpu {
    struct allocations memory;
    size_t bytes, limit;
};

static struct {
    struct gpu gpu[FAKE_GPUS];
    struct allocations host; /* pinned */
    int shown;               /* whose memory can be used; that of the others faults */
    const char *fail_file, *busy_file, *prompt_file;
    int device; /* a descriptor that has calls, after the first fake_select */
} fake;

static _Thread_local int selected;

static void *wait_for_end(void *end)
{
    pthread_mutex_lock(end);
    pthread_mutex_unlock(end);
    return NULL;
}

/* Writes a file of that thread. */
static bool names_thread(void)
{
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&end);
    if (pthread_create(&thread, NULL, wait_for_end, &end) != 0)
        return false;
    bool named = pthread_setname_np(thread, "driver") == 0;
    pthread_mutex_unlock(&end);
    pthread_join(thread, NULL);
    return named;
}

static bool shares_memory(void)
{
    int fd = memfd_create("driver", MFD_CLOEXEC);
    bool shared = fd >= 0 && ftruncate(fd, PAGE_BYTES) == 0;
    if (fd >= 0)
        close(fd);
    return shared;
}

/* What a driver needs of the sandbox: calls of a device, locked and executable memory, names of its
 * threads. */
static bool has_driver_calls(void)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    bool has = mlock(page, PAGE_BYTES) == 0 && munlock(page, PAGE_BYTES) == 0;
    munmap(page, PAGE_BYTES);
    if (fake.device == 0)
        fake.device = eventfd(0, EFD_CLOEXEC);
    return has && shares_memory() && names_thread() && ioctl(fake.device, FIOCLEX) == 0;
}

int fake_select(int number)
{
    if (number < 0 || number >= FAKE_GPUS)
        return 101; /* cudaErrorInvalidDevice */
    if (!has_driver_calls())
        return FORBIDDEN;
    selected = number;
    return 0;
}

int fake_selected(void)
{
    return selected;
}

static void protect(int number, int access)
{
    const struct allocations *a = &fake.gpu[number].memory;
    for (size_t i = 0; i < a->count; i++)
        sl_assert(mprotect(a->all[i].memory, a->all[i].bytes, access) == 0);
}

void fake_show(int number)
{
    if (fake.shown == number)
        return;
    protect(fake.shown, PROT_NONE);
    protect(number, PROT_READ | PROT_WRITE);
    fake.shown = number;
}

static bool among(const struct allocations *a, const void *p, size_t bytes)
{
    for (size_t i = 0; i < a->count; i++) {
        uintptr_t begin = (uintptr_t)a->all[i].memory, at = (uintptr_t)p;
        if (at >= begin && at + bytes <= begin + a->all[i].bytes)
            return true;
    }
    return false;
}

bool fake_on_device(const void *p, size_t bytes)
{
    return among(&fake.gpu[selected].memory, p, bytes);
}

bool fake_pinned(const void *p, size_t bytes)
{
    return among(&fake.host, p, bytes);
}

static void *add(struct allocations *a, size_t bytes)
{
    if (a->count == a->space) {
        a->space = a->space * 2 + 64;
        a->all = realloc(a->all, a->space * sizeof *a->all);
        sl_assert(a->all);
    }
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sl_assert(memory != MAP_FAILED);
    memset(memory, 0xff, bytes);
    a->all[a->count++] = (struct allocation){memory, bytes};
    return memory;
}

/* Its bytes; 0: there is no such memory. */
static size_t drop(struct allocations *a, void *memory)
{
    for (size_t i = 0; i < a->count; i++) {
        size_t bytes = a->all[i].bytes;
        if (a->all[i].memory != memory)
            continue;
        a->all[i] = a->all[--a->count];
        sl_assert(munmap(memory, bytes) == 0);
        return bytes;
    }
    return 0;
}

int fake_allocate(size_t bytes, void **out)
{
    int status = fake_unless_recording("an allocation");
    if (status != 0)
        return status;
    struct gpu *g = &fake.gpu[selected];
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (g->limit != 0 && g->bytes + bytes > g->limit)
        return 2; /* cudaErrorMemoryAllocation */
    g->bytes += bytes;
    fake_show(selected);
    *out = add(&g->memory, bytes);
    return 0;
}

int fake_release(void *memory)
{
    int status = fake_unless_recording("a release");
    if (status != 0)
        return status;
    fake_run_all();
    size_t bytes = drop(&fake.gpu[selected].memory, memory);
    fake.gpu[selected].bytes -= bytes;
    return memory && bytes == 0 ? 1 : 0;
}

int fake_host_allocate(size_t bytes, void **out)
{
    int status = fake_unless_recording("an allocation");
    if (status != 0)
        return status;
    *out = add(&fake.host, (bytes + ALIGN - 1) / ALIGN * ALIGN);
    return 0;
}

int fake_host_release(void *memory)
{
    int status = fake_unless_recording("a release");
    if (status != 0)
        return status;
    fake_run_all();
    return drop(&fake.host, memory) == 0 ? 1 : 0;
}

void fake_fail_if(const char *file)
{
    fake.fail_file = file;
}

void fake_busy_if(const char *file)
{
    fake.busy_file = file;
}

void fake_prompt_if(const char *file)
{
    fake.prompt_file = file;
}

bool fake_prompt(void)
{
    return fake.prompt_file && access(fake.prompt_file, F_OK) == 0;
}

int fake_lost(void)
{
    int number = selected;
    if (fake.device > 0 && ioctl(fake.device, FIOCLEX) != 0)
        return FORBIDDEN;
    FILE *file = fake.fail_file ? fopen(fake.fail_file, "re") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%d", &number) != 1) /* empty */
        number = selected;
    fclose(file);
    return number == selected ? LOST : 0;
}

#define WITHOUT_LIMIT ((size_t)64 << 30) /* as stated; of the second half as much */

int fake_memory(size_t *unused, size_t *total)
{
    const struct gpu *g = &fake.gpu[selected];
    *total = g->limit != 0 ? g->limit : WITHOUT_LIMIT >> selected;
    bool busy = fake.busy_file && access(fake.busy_file, F_OK) == 0;
    *unused = busy ? 0 : *total - g->bytes;
    return 0;
}

size_t fake_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < FAKE_GPUS; i++)
        bytes += fake.gpu[i].bytes;
    return bytes;
}

void fake_limit(size_t bytes)
{
    fake.gpu[selected].limit = bytes;
}
