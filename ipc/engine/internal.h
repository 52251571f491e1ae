/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of both sides of the engine's calls. */
#ifndef SLUICE_IPC_ENGINE_INTERNAL_H
#define SLUICE_IPC_ENGINE_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/error.h"

/* Adds a value; fails for NULL (out of memory). */
bool engine_json_put(json_t *object, const char *name, json_t *value);

/* An array of numbers, a new reference; NULL: out of memory. */
json_t *engine_json_ids(const uint32_t *ids, size_t count);

/* Bytes as hexadecimal digits, and the reverse into room for half as many bytes as the text has
 * digits; false: other characters. */
json_t *engine_json_hex(const char *bytes, size_t count);
bool engine_read_hex(const json_t *text, char *out);

/* constraints.c: members of a submit, NULL: out of memory; their check, -1 with ERR_BAD_INPUT or
 * ERR_NO_MEMORY; the member of a reply, and it again (next->top, newly allocated). */
json_t *engine_grammar_json(const struct grammar_source *g);
json_t *engine_bias_json(const struct sampler_bias *bias, size_t count);
int engine_constraints_parse(const json_t *body, struct engine_submit *out, struct error *error);
json_t *engine_top_json(const struct engine_next *next);
int engine_top_read(struct engine_next *next, struct error *error);

/* Fields of a call, checked: -1 with ERR_BAD_INPUT naming the field. An absent one leaves *out. */
int engine_json_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out,
                    struct error *error);
int engine_json_bool(const json_t *body, const char *name, bool *out, struct error *error);
/* The sequence that a call names; it must be there. */
int engine_json_sequence(const json_t *body, uint64_t *id, struct error *error);

#endif
