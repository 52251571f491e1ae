/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates objects in blocks that are freed together, and counts memory, steps and time. */
#include "lib/jinja/value/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

#define BLOCK_BYTES ((size_t)16 << 10)
#define PULSE_STEPS 20000 /* about 1 ms */

struct jheap_block {
    struct jheap_block *before;
    size_t unused; /* keeps what follows aligned to 16 */
};

void jheap_init(struct jheap *h, size_t bytes_max, uint64_t steps_max, unsigned depth_max)
{
    memset(h, 0, sizeof *h);
    h->bytes_max = bytes_max;
    h->steps_max = steps_max;
    h->depth_max = depth_max;
}

/* Of the thread, not of the wall clock: a render is not longer because others use the processor. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void jheap_set_clock(struct jheap *h, uint64_t limit_ns, void (*beat)(void *arg), void *arg)
{
    h->cpu_ns_end = limit_ns > 0 ? cpu_ns() + limit_ns : 0;
    h->beat = beat;
    h->beat_arg = arg;
}

void jheap_pulse(struct jheap *h)
{
    if (h->steps > h->steps_max)
        jheap_fail(h, "the template takes too many steps");
    if (h->beat)
        h->beat(h->beat_arg);
    if (h->cpu_ns_end > 0 && cpu_ns() > h->cpu_ns_end)
        jheap_fail(h, "the template takes too long");
    uint64_t left = h->steps_max - h->steps;
    h->steps_seen = h->steps + (left < PULSE_STEPS ? left : PULSE_STEPS);
}

void jheap_free(struct jheap *h)
{
    for (struct jheap_block *b = h->blocks, *before; b; b = before) {
        before = b->before;
        free(b);
    }
    h->blocks = NULL;
    h->next = h->end = NULL;
    h->joined = NULL;
    h->bytes = 0;
}

int jheap_try(struct jheap *h, void (*work)(void *), void *arg, struct error *error)
{
    h->error = error;
    if (setjmp(h->failed) != 0)
        return -1;
    work(arg);
    return 0;
}

_Noreturn void jheap_fail(struct jheap *h, const char *fmt, ...)
{
    char text[sizeof h->error->text - 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    if (h->line > 0)
        error_set(h->error, ERR_BAD_INPUT, "chat template, line %u: %s", h->line, text);
    else
        error_set(h->error, ERR_BAD_INPUT, "chat template: %s", text);
    longjmp(h->failed, 1);
}

static _Noreturn void fail_memory(struct jheap *h)
{
    error_set(h->error, ERR_NO_MEMORY, "out of memory (chat template)");
    longjmp(h->failed, 1);
}

static void add_block(struct jheap *h, size_t bytes)
{
    size_t size = sizeof(struct jheap_block) + (bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
    if (size > h->bytes_max - h->bytes)
        jheap_fail(h, "the template needs too much memory");
    struct jheap_block *b = malloc(size);
    if (!b)
        fail_memory(h);
    b->before = h->blocks;
    h->blocks = b;
    h->bytes += size;
    h->next = (char *)(b + 1);
    h->end = (char *)b + size;
}

void *jheap_get(struct jheap *h, size_t bytes)
{
    if (bytes > h->bytes_max)
        jheap_fail(h, "the template needs too much memory");
    bytes = (bytes + 7) & ~(size_t)7;
    if (bytes > (size_t)(h->end - h->next))
        add_block(h, bytes);
    h->steps += bytes / 256; /* zeroed; the next step checks the limit */
    void *at = h->next;
    h->next += bytes;
    return memset(at, 0, bytes);
}

void *jheap_array(struct jheap *h, size_t count, size_t size)
{
    if (count > h->bytes_max / size)
        jheap_fail(h, "the template needs too much memory");
    return jheap_get(h, count * size);
}

void *jheap_grow(struct jheap *h, void *at, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return at;
    size_t larger = *capacity < 4 ? 4 : *capacity * 2;
    void *copy = jheap_array(h, larger, size);
    if (count > 0)
        memcpy(copy, at, count * size);
    *capacity = larger;
    return copy;
}
