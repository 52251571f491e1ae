/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of both sides of the engine's calls. */
#ifndef SLUICE_IPC_ENGINE_INTERNAL_H
#define SLUICE_IPC_ENGINE_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Adds a value; fails for NULL (out of memory). */
bool engine_json_put(json_t *object, const char *name, json_t *value);

/* An array of numbers, a new reference; NULL: out of memory. */
json_t *engine_json_ids(const uint32_t *ids, size_t count);

/* Fields of a call, checked: -1 with ERR_BAD_INPUT naming the field. An absent one leaves *out. */
int engine_json_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out,
                    struct error *error);
int engine_json_bool(const json_t *body, const char *name, bool *out, struct error *error);
/* The sequence that a call names; it must be there. */
int engine_json_sequence(const json_t *body, uint64_t *id, struct error *error);

#endif
