/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the types that the schemas of a request's tools state for arguments, in a few bytes: models
 * that write arguments one by one write no types. Made once from a request, so that an answer needs
 * nothing of the request's JSON. */
#ifndef SLUICE_MODEL_CHAT_TYPES_H
#define SLUICE_MODEL_CHAT_TYPES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat_types;

/* Whether a schema permits a text, or states nothing. The reader of answers and the grammar of
 * calls (procs/engine/gateway/api/constraints) both decide by it how an argument is written, so
 * that they agree. root: what references lead into. *left: how many schemas may be looked at,
 * because references may be circles, CHAT_TYPES_SCHEMAS_MAX for one argument; it is reduced, and
 * what is beyond it is a text. */
#define CHAT_TYPES_SCHEMAS_MAX 256
bool chat_types_takes_text(const json_t *root, const json_t *schema, unsigned *left);
/* The schema that "#/a/b" refers to; NULL: none. */
const json_t *chat_types_referred(const json_t *root, const char *path);

/* Makes the types of an array of tools in OpenAI's form; the caller calls chat_types_free. *bytes
 * gets their size, which is at most that of the JSON text, but for what references repeat. NULL:
 * the tools state no types (*bytes is 0), or memory is short (*bytes is above 0). */
struct chat_types *chat_types_new(const json_t *tools, size_t *bytes);
void chat_types_free(struct chat_types *t);

/* Whether an argument is JSON, because its schema permits no text. False: it is a text, or no type
 * is stated for it. t may be NULL. */
bool chat_types_json(const struct chat_types *t, const char *tool, size_t tool_bytes,
                     const char *key, size_t key_bytes);

/* The same for values within others: places of what is no text. The place of a tool is one within
 * CHAT_TYPES_TOOLS, that of an argument within the tool, and so on; what an array has is `item`.
 * CHAT_TYPES_NONE: it is a text, or no type is stated for it. t may be NULL. */
#define CHAT_TYPES_NONE  SIZE_MAX
#define CHAT_TYPES_TOOLS (SIZE_MAX - 1)
enum chat_type { CHAT_TEXT, CHAT_JSON, CHAT_OBJECT, CHAT_ARRAY };
size_t chat_types_find(const struct chat_types *t, size_t within, const char *name, size_t bytes);
enum chat_type chat_types_of(const struct chat_types *t, size_t at);

#endif
