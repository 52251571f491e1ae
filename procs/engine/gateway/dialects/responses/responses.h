/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API of responses: an input and an output of items. Nothing is stored. */
#ifndef SLUICE_ENGINE_GATEWAY_DIALECTS_RESPONSES_H
#define SLUICE_ENGINE_GATEWAY_DIALECTS_RESPONSES_H

#include "procs/engine/gateway/api/dialect.h"
#include "procs/engine/gateway/api/fields.h"

/* answer.c */
extern const struct dialect responses;

/* request.c */
int responses_parse(const struct api_body *body, struct api_request *out,
                    char param[API_PARAM_BYTES], struct error *error);

/* items.c: messages and tools in the form of lib/model/chat/format.h. New references; NULL with an
 * error. What cannot be served is left out, and told to limits->ignored. instructions: a text; NULL:
 * none. input: a text or an array of items. */
json_t *responses_conversation(const struct taker *t, const json_t *instructions,
                               const json_t *input);
json_t *responses_tools(const struct taker *t, const json_t *tools);

#endif
