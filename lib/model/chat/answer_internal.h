/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that split answers. */
#ifndef SLUICE_MODEL_CHAT_ANSWER_INTERNAL_H
#define SLUICE_MODEL_CHAT_ANSWER_INTERNAL_H

#include <jansson.h>

#include "lib/model/chat/answer.h"

/* calls.c: the calls that a template's text shows; open == NULL: none. */
struct answer_call answer_call_of(const char *chat_template, size_t bytes);

/* The calls of a text, all of it: an array of {"name": text, "arguments": text}, with "id" where
 * the model wrote one; NULL: it is something else, or out of memory. types: of arguments; may be
 * NULL. */
json_t *answer_calls(const struct answer_call *f, const struct chat_types *types, const char *text,
                     size_t bytes);

/* The mark of a call that is one without `open` before it; NULL: none. */
const char *answer_bare_mark(const struct answer_call *f);
/* The bytes of the calls at the start of a text, the closing mark after them included, which may
 * be missing; SIZE_MAX: more bytes are needed, or, at the end, there is no whole call. *marked:
 * bytes of that mark. */
size_t answer_bare_end(const struct answer_call *f, const char *text, size_t bytes, bool end,
                       size_t *marked);

/* Makes one call from its name and the text of its arguments. */
json_t *answer_call_of_name(const char *name, size_t n, const char *text, size_t bytes);

/* answer.c: hands out the first n bytes and drops them; drops them. */
void answer_give(struct answer *a, enum answer_part part, size_t n);
void answer_drop(struct answer *a, size_t n);
/* Hands out calls and frees them; false: NULL. */
bool answer_give_calls(struct answer *a, json_t *calls);

/* channels.c: mark number i, NULL after the last. */
const char *answer_channel_mark(size_t i);

/* channels.c: steps of an answer in channels; whether the state changed. */
bool answer_in_header(struct answer *a, bool end);
bool answer_in_message(struct answer *a, bool end);

#endif
