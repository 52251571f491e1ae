/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: an interpreter of the part of Jinja that templates of models use, with the
 * settings of Hugging Face transformers (trim_blocks, lstrip_blocks, the immutable sandbox, `break`
 * and `continue`, `generation` blocks, its `tojson`, `raise_exception`, `strftime_now`). Reference:
 * Python's jinja2 3.1. A template sees its input and nothing else. What it costs is bounded: a
 * template that loops, recurses or grows without end is an error. Pure functions. */
#ifndef SLUICE_JINJA_JINJA_H
#define SLUICE_JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "lib/base/error.h"
#include "lib/text/ranges.h"

struct jinja_limits {
    size_t memory_bytes; /* of the syntax tree; of the values of one rendering */
    uint64_t steps;      /* 50 ns each at most; README.md has what an operation takes */
    unsigned
        depth; /* of calls, loops, brackets and values in each other; about 1 KiB of stack each */
    size_t output_bytes;
    uint64_t cpu_ns; /* of the thread's processor time; 0: no limit */
    /* Called every few milliseconds of a rendering, so that its process is known to work. NULL:
     * none. */
    void (*beat)(void *arg);
    void *beat_arg;
};
#define JINJA_LIMITS_DEFAULT                                                                       \
    {                                                                                              \
        .memory_bytes = (size_t)64 << 20, .steps = 20 * 1000 * 1000, .depth = 500,                 \
        .output_bytes = (size_t)16 << 20                                                           \
    }

struct jinja_template;

/* Parses a template; the text is copied. NULL with ERR_BAD_INPUT (the line and the reason) or
 * ERR_NO_MEMORY. Filters and tests are looked up when they are used. */
struct jinja_template *jinja_compile(const char *text, size_t bytes,
                                     const struct jinja_limits *limits, struct error *error);
void jinja_template_free(struct jinja_template *t);

struct jinja_input {
    /* Objects whose members are the template's variables; NULL: none. Strings of `own` count as
     * written by the template (bos_token), those of `messages` do not. A name in both: own. */
    const json_t *own, *messages;
    /* NULL-terminated, or NULL: a member "role" of an element of a list in `messages` that equals
     * one of these words counts as written by the template, which may make a control token of
     * it. */
    const char *const *roles;
    struct tm now; /* for strftime_now */
};

struct jinja_output {
    char *text; /* malloc'ed, NUL-terminated; may hold other NULs if the input does */
    size_t bytes;
    struct text_ranges written; /* by the template */
    uint64_t steps;             /* that it took, also when it failed */
};
void jinja_output_free(struct jinja_output *out);

/* Renders. The template may be used by several threads at once. 0; -1 with ERR_NO_MEMORY, or with
 * ERR_BAD_INPUT: the template raised an exception, failed, or exceeded a limit. */
int jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                 const struct jinja_limits *limits, struct jinja_output *out, struct error *error);

#endif
