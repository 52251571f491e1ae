/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API: completions of texts and of conversations, and the list of models. Fields and
 * events that llama.cpp's server and vLLM add to it are taken and sent, too. */
#ifndef SLUICE_ENGINE_GATEWAY_DIALECTS_OPENAI_H
#define SLUICE_ENGINE_GATEWAY_DIALECTS_OPENAI_H

#include "procs/engine/gateway/api/dialect.h"

struct writer;

/* answer.c. `openai` is that of paths without completions. */
extern const struct dialect openai, openai_completion, openai_chat;
/* models.c: what is asked about the model and its prompts, as llama.cpp's server answers it. */
extern const struct dialect openai_models, openai_model, openai_props, openai_tokenize,
    openai_detokenize, openai_template;
json_t *openai_error(unsigned status, const struct error *error, const char *param);
/* Tokens of a content with their log-probabilities and alternatives: an array, as in conversations.
 * NULL: no memory. */
json_t *openai_logprobs(const struct buffer *tokens);
/* Writes that array behind `before`, which ends with its bracket, token by token: as values, an
 * answer of many tokens takes more memory than is reserved. */
void openai_put_logprobs(struct writer *w, const char *before, const struct buffer *tokens);

/* Flags of api_request.wants. */
enum {
    OPENAI_USAGE = 1,    /* stream_options.include_usage: an event with the numbers of tokens */
    OPENAI_PROGRESS = 2, /* return_progress: the progress of the prompt as events, not comments */
    OPENAI_BOS = 4,      /* add_special: the token that the tokenizer adds is wanted, too */
};

/* request.c: `parse` of the two dialects. */
int openai_completion_parse(const struct api_body *body, struct api_request *out,
                            char param[API_PARAM_BYTES], struct error *error);
int openai_chat_parse(const struct api_body *body, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error);
int openai_tokenize_parse(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error);
int openai_detokenize_parse(const struct api_body *body, struct api_request *out,
                            char param[API_PARAM_BYTES], struct error *error);

#endif
