/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the types that the schemas of a request's tools state for arguments, in a few bytes: models
 * that write arguments one by one write no types. Made once from a request, so that an answer needs
 * nothing of the request's JSON. */
#ifndef SLUICE_MODEL_CHAT_TYPES_H
#define SLUICE_MODEL_CHAT_TYPES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct chat_types;

/* Makes the types of an array of tools in OpenAI's form. *bytes: its size, at most that of the JSON
 * text; caller frees with chat_types_free. NULL: there is nothing to be stated (*bytes 0), or out
 * of memory (*bytes above 0). */
struct chat_types *chat_types_new(const json_t *tools, size_t *bytes);
void chat_types_free(struct chat_types *t);

/* Whether an argument is JSON: its schema permits no text. false: a text, or nothing is stated; t
 * may be NULL. */
bool chat_types_json(const struct chat_types *t, const char *tool, size_t tool_bytes,
                     const char *key, size_t key_bytes);

#endif
