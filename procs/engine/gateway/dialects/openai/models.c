/* SPDX-License-Identifier: Apache-2.0 */
/* The model, and questions about prompts, in the forms of OpenAI's API and of llama.cpp's
 * server. */
#include "procs/engine/gateway/api/request.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

static json_t *model(const struct api_model *m)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:I, s:I, s:I}}", "id", m->name, "object", "model",
                     "created", (json_int_t)m->started, "owned_by", "sluice", "meta", "n_ctx",
                     (json_int_t)m->context, "n_params", (json_int_t)m->parameters, "size",
                     (json_int_t)m->bytes);
}

static json_t *models(const struct api_model *m)
{
    return json_pack("{s:s, s:[o]}", "object", "list", "data", model(m));
}

static json_t *props(const struct api_model *m)
{
    return json_pack("{s:{s:I}, s:I, s:s, s:s, s:s, s:{s:b, s:b}}", "default_generation_settings",
                     "n_ctx", (json_int_t)m->context, "total_slots", (json_int_t)m->slots,
                     "model_alias", m->name, "model_path", m->name, "build_info",
                     "sluice " SLUICE_VERSION, "modalities", "vision", 0, "audio", 0);
}

/* The token that the tokenizer adds is left out unless it is wanted. */
static json_t *tokens(const struct api_request *r, const json_t *reply)
{
    json_t *ids = json_copy(json_object_get(reply, "ids"));
    if (json_is_true(json_object_get(reply, "bos")) && !(r->wants & OPENAI_BOS))
        json_array_remove(ids, 0);
    return json_pack("{s:o}", "tokens", ids);
}

static json_t *content(const struct api_request *r, const json_t *reply)
{
    if (r->nothing)
        return json_pack("{s:s}", "content", "");
    return json_pack("{s:O}", "content", json_object_get(reply, "text"));
}

static json_t *prompt(const struct api_request *r, const json_t *reply)
{
    (void)reply;
    return json_pack("{s:o}", "prompt", json_stringn(r->prompt, r->prompt_bytes));
}

const struct dialect openai_models = {.error = openai_error, .describe = models};
const struct dialect openai_model = {.error = openai_error, .describe = model};
const struct dialect openai_props = {.error = openai_error, .describe = props};

const struct dialect openai_tokenize = {
    .error = openai_error, .parse = openai_tokenize_parse, .question = "encode", .reply = tokens};

const struct dialect openai_detokenize = {.error = openai_error,
                                          .ids_max = ENGINE_PROMPT_IDS_MAX,
                                          .parse = openai_detokenize_parse,
                                          .question = "decode",
                                          .reply = content};

const struct dialect openai_template = {
    .error = openai_error, .parse = openai_chat_parse, .reply = prompt};
