/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the body of a response member by member: a long answer as JSON values, all at once, may
 * take more memory than is reserved for the gateway. */
#ifndef SLUICE_ENGINE_GATEWAY_API_WRITER_H
#define SLUICE_ENGINE_GATEWAY_API_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct writer {
    FILE *out;
    size_t limit; /* bytes; a body that is longer fails */
    bool failed;  /* the body is incomplete */
};

/* Writes `before`, then the value, which is stolen; NULL: no memory. */
void writer_put(struct writer *w, const char *before, json_t *value);
/* Writes `before`, then the members of the object without its braces, so that more can follow them;
 * steals the object, which has members; NULL: no memory. */
void writer_members(struct writer *w, const char *before, json_t *object);

#endif
