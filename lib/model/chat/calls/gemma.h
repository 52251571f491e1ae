/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as Gemma 4 writes them: keys without quotes, and texts between two marks. */
#ifndef SLUICE_MODEL_CHAT_CALLS_GEMMA_H
#define SLUICE_MODEL_CHAT_CALLS_GEMMA_H

#include <jansson.h>

#include "lib/model/chat/calls/cursor.h"

/* Reads an object from behind its first brace up to and with its last one. The caller owns it.
 * NULL: it is none, a key occurs twice, it is beyond the bounds, or memory is short. */
json_t *gemma_object(struct cursor *c);

#endif
