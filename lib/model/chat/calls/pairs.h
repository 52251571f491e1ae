/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that are written one by one, each with marks around its key and its value. */
#ifndef SLUICE_MODEL_CHAT_CALLS_PAIRS_H
#define SLUICE_MODEL_CHAT_CALLS_PAIRS_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/model/chat/calls/cursor.h"
#include "lib/model/chat/calls/form.h"
#include "lib/model/chat/calls/types.h"

/* JSON if the argument may be JSON and the text is; else the text. The caller owns it. NULL: no
 * memory, or the text is no UTF-8. */
json_t *pair_value(bool json, const struct cursor *text);
/* A key with a part of a mark is one whose end is missing. */
bool pair_is_key(const struct cursor *key);
/* Cuts a name or a key at the quote that ends its attribute, and returns what was behind it. */
struct cursor pair_cut(const struct answer_call *f, struct cursor *text);
/* Adds the argument behind key_open, of the tool `name`, and takes it. False: it has no such form,
 * or there is one with this key. */
bool pair_read(const struct answer_call *f, const struct chat_types *types, struct cursor *c,
               const struct cursor *name, json_t *arguments);

#endif
