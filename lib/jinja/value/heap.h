/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and limits of one compilation or rendering. All its objects are in one heap and are freed
 * together. What exceeds a limit, and every error of a template, ends the work with jheap_fail,
 * which jumps to the caller of jheap_try: so no function in between has an error to pass on. */
#ifndef SLUICE_JINJA_VALUE_HEAP_H
#define SLUICE_JINJA_VALUE_HEAP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct jheap_block;
struct jbuffer;

struct jheap {
    struct jheap_block *blocks; /* the last one has free space */
    char *next, *end;           /* free bytes of that block */
    size_t bytes, bytes_max;    /* of all blocks */
    uint64_t steps, steps_max;
    uint64_t steps_seen; /* at the next step beyond it, jheap_pulse checks the limits */
    uint64_t cpu_ns_end; /* of the thread's processor time; 0: no limit */
    void (*beat)(void *arg);
    void *beat_arg;
    unsigned depth, depth_max;
    unsigned line;          /* of the template, for the text of errors; 0: none */
    struct jbuffer *joined; /* the buffer of the last string that was joined (string.c) */
    struct error *error;
    jmp_buf failed;
};

void jheap_init(struct jheap *h, size_t bytes_max, uint64_t steps_max, unsigned depth_max);

/* From now on, the work ends after cpu_ns of this thread's processor time (0: no limit), and beat
 * (NULL: none) is called every few milliseconds of it. */
void jheap_set_clock(struct jheap *h, uint64_t cpu_ns, void (*beat)(void *arg), void *arg);
void jheap_free(struct jheap *h);

/* Calls work(arg). 0, or -1 with *error when it ended with jheap_fail. */
int jheap_try(struct jheap *h, void (*work)(void *), void *arg, struct error *error);

/* ERR_BAD_INPUT with the line of the template and this text, control characters replaced. */
_Noreturn void jheap_fail(struct jheap *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Never NULL; zeroed, aligned to 8 bytes. Freed with the heap. */
void *jheap_get(struct jheap *h, size_t bytes);

/* count * size bytes. */
void *jheap_array(struct jheap *h, size_t count, size_t size);

/* An array of `count` elements grown so that another one fits; *capacity is updated. */
void *jheap_grow(struct jheap *h, void *at, size_t count, size_t *capacity, size_t size);

/* Fails where a limit is exceeded, and beats. */
void jheap_pulse(struct jheap *h);

static inline void jheap_step(struct jheap *h)
{
    if (__builtin_expect(++h->steps > h->steps_seen, 0))
        jheap_pulse(h);
}

/* Counts the work of an operation beyond its step, so that the steps cover its time for any
 * operand: elements that it visits, or bytes that it takes one by one (1 / 16 of a step each). */
static inline void jheap_work(struct jheap *h, size_t units)
{
    h->steps += units / 16;
    jheap_step(h);
}

/* and bytes that it copies or compares as a block (1 / 256 of a step each). */
static inline void jheap_block(struct jheap *h, size_t bytes)
{
    h->steps += bytes / 256;
    jheap_step(h);
}

/* Around everything that calls itself. */
static inline void jheap_enter(struct jheap *h)
{
    if (++h->depth > h->depth_max)
        jheap_fail(h, "nested too deeply");
}

static inline void jheap_leave(struct jheap *h)
{
    h->depth--;
}

#endif
