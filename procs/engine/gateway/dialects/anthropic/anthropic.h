/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's API: messages, and the number of tokens of a request. */
#ifndef SLUICE_ENGINE_GATEWAY_DIALECTS_ANTHROPIC_H
#define SLUICE_ENGINE_GATEWAY_DIALECTS_ANTHROPIC_H

#include "procs/engine/gateway/api/dialect.h"
#include "procs/engine/gateway/api/fields.h"

/* answer.c */
extern const struct dialect anthropic_messages, anthropic_count;

/* request.c: `parse` of the two dialects. */
int anthropic_parse(const struct api_body *body, struct api_request *out,
                    char param[API_PARAM_BYTES], struct error *error);
int anthropic_parse_count(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error);

/* blocks.c: messages and tools in the form of lib/model/chat/format.h. New references; NULL with an
 * error. system: a text or an array of blocks; NULL: none. */
json_t *anthropic_conversation(const json_t *system, const json_t *messages, struct error *error);
/* Tools that a server would execute are left out, and told to limits->ignored. */
json_t *anthropic_tools(const struct taker *t, const json_t *tools);

#endif
