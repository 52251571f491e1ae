/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/cuda/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/tagged.h"

#define ALIGN 256
#define LOST  719 /* cudaErrorLaunchFailure */

struct allocation {
    uint8_t *memory;
    size_t bytes;
};

struct pending { /* a download: its bytes as they were when it was submitted */
    void *to;
    uint8_t *data;
    size_t bytes;
};

static struct {
    struct allocation *all;
    size_t count, space, bytes, limit;
    struct pending *pending;
    size_t waiting, pending_space;
    const char *fail_file, *busy_file;
} fake;

static bool within(const void *p, size_t bytes)
{
    for (size_t i = 0; i < fake.count; i++) {
        uintptr_t begin = (uintptr_t)fake.all[i].memory, at = (uintptr_t)p;
        if (at >= begin && at + bytes <= begin + fake.all[i].bytes)
            return true;
    }
    return false;
}

int fake_allocate(size_t bytes, void **out)
{
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (fake.limit != 0 && fake.bytes + bytes > fake.limit)
        return 2; /* cudaErrorMemoryAllocation */
    if (fake.count == fake.space) {
        fake.space = fake.space * 2 + 64;
        fake.all = realloc(fake.all, fake.space * sizeof *fake.all);
        sl_assert(fake.all);
    }
    uint8_t *memory = aligned_alloc(ALIGN, bytes);
    sl_assert(memory);
    memset(memory, 0xff, bytes);
    fake.all[fake.count++] = (struct allocation){memory, bytes};
    fake.bytes += bytes;
    *out = memory;
    return 0;
}

int fake_release(void *memory)
{
    fake_wait();
    for (size_t i = 0; i < fake.count; i++) {
        if (fake.all[i].memory != memory)
            continue;
        fake.bytes -= fake.all[i].bytes;
        fake.all[i] = fake.all[--fake.count];
        free(memory);
        return 0;
    }
    return memory ? 1 : 0;
}

static void run_first(void)
{
    struct pending *p = &fake.pending[0];
    memcpy(p->to, p->data, p->bytes);
    free(p->data);
    memmove(p, p + 1, --fake.waiting * sizeof *p);
}

/* Some of what waits, in its order. */
static void run_some(void)
{
    for (uint32_t n = fibres_draw(3); n > 0 && fake.waiting > 0; n--)
        run_first();
}

int fake_upload(void *to, const void *from, size_t bytes)
{
    run_some();
    if (!within(to, bytes))
        return 1;
    memcpy(to, untagged(from), bytes);
    return 0;
}

int fake_download(void *to, const void *from, size_t bytes)
{
    run_some();
    if (!within(from, bytes))
        return 1;
    if (fake.waiting == fake.pending_space) {
        fake.pending_space = fake.pending_space * 2 + 64;
        fake.pending = realloc(fake.pending, fake.pending_space * sizeof *fake.pending);
        sl_assert(fake.pending);
    }
    uint8_t *data = malloc(bytes + 1);
    sl_assert(data);
    memcpy(data, from, bytes);
    fake.pending[fake.waiting++] = (struct pending){untagged(to), data, bytes};
    run_some();
    return 0;
}

int fake_fill(void *to, int value, size_t bytes)
{
    run_some();
    if (!within(to, bytes))
        return 1;
    memset(to, value, bytes);
    return 0;
}

void fake_fail_if(const char *file)
{
    fake.fail_file = file;
}

void fake_busy_if(const char *file)
{
    fake.busy_file = file;
}

int fake_wait(void)
{
    if (fake.fail_file && access(fake.fail_file, F_OK) == 0)
        return LOST;
    while (fake.waiting > 0)
        run_first();
    return 0;
}

#define WITHOUT_LIMIT ((size_t)64 << 30) /* as stated */

int fake_memory(size_t *unused, size_t *total)
{
    *total = fake.limit != 0 ? fake.limit : WITHOUT_LIMIT;
    bool busy = fake.busy_file && access(fake.busy_file, F_OK) == 0;
    *unused = busy ? 0 : *total - fake.bytes;
    return 0;
}

const char *fake_error_text(void)
{
    const char *text = fibres_error();
    return text ? text : "a copy that is not within one allocation";
}

size_t fake_bytes(void)
{
    return fake.bytes;
}

uint32_t fake_pending(void)
{
    return (uint32_t)fake.waiting;
}

void fake_limit(size_t bytes)
{
    fake.limit = bytes;
}
