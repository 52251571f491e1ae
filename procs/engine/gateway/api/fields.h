/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a body. A dialect has a table of them: the name of each, and the function that takes
 * its value. The functions here are for what several dialects have; theirs are made of them.
 * Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_API_FIELDS_H
#define SLUICE_ENGINE_GATEWAY_API_FIELDS_H

#include "procs/engine/gateway/api/request.h"

struct taker {
    struct api_request *out;
    const struct api_body *body;
    unsigned where;   /* the endpoint, a bit */
    const char *name; /* of the current field */
    void *own;        /* of the dialect */
    struct error *error;
};

typedef int take_fn(struct taker *t, const json_t *value);

struct field {
    const char *name;
    unsigned where; /* bits of the endpoints that have it */
    take_fn *take;
};

/* Takes every field of an object; one that is null counts as absent. Those that the table has not
 * are ignored, and told to limits->ignored. -1 with the name of the field in `param`. */
int take_fields(struct taker *t, const json_t *object, const struct field *fields, size_t count,
                char param[API_PARAM_BYTES]);
/* Writes a name of a field to `param`; "" if it is too long. */
void take_param(char param[API_PARAM_BYTES], const char *name);

/* Errors: the current field must be `should`; `what` is said of it. Return -1. */
int take_wrong(const struct taker *t, const char *should);
int take_unable(const struct taker *t, const char *what);

/* Ignored. */
take_fn take_anything;
/* Tells limits->ignored that something is ignored. */
void take_ignored(const struct taker *t, const char *name);
/* Whether the model has a template, which takes what the field `name` states; else it is
 * ignored. */
bool take_for_template(const struct taker *t, const char *name);
/* Accepted only with the value that requests nothing. */
take_fn take_empty, take_zero, take_one, take_false;
/* A parameter of lib/sampling/sampling.h of that name, with its bounds. */
take_fn take_sampling;
/* A number of tokens, 0 or more. */
take_fn take_max_tokens;
/* Stop texts: one, or an array of them. */
take_fn take_stop;
take_fn take_stream, take_ignore_eos, take_cache_prompt;
/* A text; token ids. */
take_fn take_prompt_text, take_prompt_ids;
/* At most so many ids, and at least one. */
int take_ids(struct taker *t, const json_t *value, size_t max);
int take_bool(struct taker *t, const json_t *value, bool *out);
/* Makes the prompt one with a gap between it and `after`, a text that is not empty, which the
 * answer fills. -1 with an error: the model has no tokens for it, or the prompt is no text. */
int take_gap(struct taker *t, const json_t *after);
/* What OpenAI's `response_format` and its like demand: {"type": "text"}, "json_object" or
 * "json_schema" with a schema, also in a member of that name. */
int take_format(struct taker *t, const json_t *value, struct answer_shape *out);
/* An object, a JSON Schema. */
int take_schema(struct taker *t, const json_t *value, struct answer_shape *out);
/* OpenAI's choice of tools: "none", "auto", "required", the name of a function, or some of them. */
int take_choice(struct taker *t, const json_t *value, struct answer_shape *out);
/* Of tools in OpenAI's form, the ones that the choice allows; `allowed`: their names. A new
 * reference; NULL with an error. */
json_t *take_allowed_tools(const struct taker *t, const json_t *tools, const json_t *allowed);
/* Whether one of the tools has `strict`: true. */
bool take_strict(const json_t *tools);
/* Log-probabilities of tokens: whether; of how many alternatives, too. */
take_fn take_logprobs, take_top_logprobs;
/* Whether the answer ends with its first call. */
take_fn take_parallel_calls;
/* {"TOKEN": bias}: numbers from -100 to 100 that are added to logits. */
take_fn take_logit_bias;
/* A grammar in GBNF. */
take_fn take_grammar;
/* Checks the number of messages; the dialect keeps them. */
take_fn take_conversation;
/* Of a field that a request must have. Returns -1. */
int take_missing(const struct taker *t, const char *name, char param[API_PARAM_BYTES]);

#endif
