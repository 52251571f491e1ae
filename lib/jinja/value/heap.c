/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/jinja/value/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define BLOCK_BYTES ((size_t)16 << 10)

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

void jheap_work(struct jheap *h, size_t units)
{
    h->steps += units / 16;
    jheap_step(h);
}
