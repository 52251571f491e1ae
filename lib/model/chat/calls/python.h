/* SPDX-License-Identifier: Apache-2.0 */
/* Calls as Python writes them: [look(city="Paris", days=2), stop()]. */
#ifndef SLUICE_MODEL_CHAT_CALLS_PYTHON_H
#define SLUICE_MODEL_CHAT_CALLS_PYTHON_H

#include <jansson.h>

#include "lib/model/chat/calls/cursor.h"

/* Reads a list of calls, whose arguments are all named and are literals: texts between single or
 * double quotes, or three of them, with the escapes of Python and JSON; numbers as JSON has them;
 * True, False, None, also as JSON has them; lists, and dictionaries whose keys are texts. Returns a
 * new array of {"name": text, "arguments": object}, with the cursor behind the list; NULL: it is
 * none, a name occurs twice, it is beyond the bounds, or memory is short. The format: LFM2's and
 * Llama 4's chat templates, and test_lfm2_parser of llama.cpp. */
json_t *python_calls(struct cursor *c);

/* Whether a call can have this name. */
bool python_is_name(const char *name);

/* The name of a function that a list of calls begins with: 1, and *name and *bytes are it; 0: the
 * text begins with no call; -1: more bytes may change that. */
int python_first_name(const char *text, size_t bytes, const char **name, size_t *name_bytes);

/* What a name of Python stands for: True, False or None; NULL: it is none of them. */
json_t *python_named(const char *text, size_t bytes);

#endif
