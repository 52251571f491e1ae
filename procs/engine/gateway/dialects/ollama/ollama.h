/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's API: conversations, continuations of texts, and what it says about models. */
#ifndef SLUICE_ENGINE_GATEWAY_DIALECTS_OLLAMA_H
#define SLUICE_ENGINE_GATEWAY_DIALECTS_OLLAMA_H

#include "procs/engine/gateway/api/dialect.h"
#include "procs/engine/gateway/api/fields.h"

/* answer.c. `ollama` is that of paths without a body or without an answer. */
extern const struct dialect ollama, ollama_chat, ollama_generate;

/* models.c */
extern const struct dialect ollama_tags, ollama_show, ollama_ps, ollama_version;
/* A time in UTC, as the API writes it. */
json_t *ollama_time(int64_t seconds);
/* answer.c: of all these dialects. */
json_t *ollama_error(unsigned status, const struct error *error, const char *param);

/* Flags of api_request.wants. */
enum {
    OLLAMA_UNLOAD = 1, /* keep_alive is 0: with a request of nothing, the model is to be unloaded */
};

/* request.c: `parse` of the two dialects. */
int ollama_chat_parse(const struct api_body *body, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error);
int ollama_generate_parse(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error);

/* messages.c: messages in the form of lib/model/chat/format.h. A new reference; NULL with an
 * error. */
json_t *ollama_conversation(const json_t *messages, struct error *error);

#endif
