/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's API of responses: an input and an output of items, which may be stored. */
#ifndef SLUICE_ENGINE_GATEWAY_DIALECTS_RESPONSES_H
#define SLUICE_ENGINE_GATEWAY_DIALECTS_RESPONSES_H

#include "procs/engine/gateway/api/dialect.h"
#include "procs/engine/gateway/api/fields.h"

/* answer.c */
extern const struct dialect responses, responses_stored;

/* history.c: conversations that are stored, as arrays of items. */
/* The items of the response that the request continues (NULL: none), and then its own: a text is a
 * message. Adds the number of their values. A new reference; NULL with an error, ERR_NOT_FOUND
 * where the response is not stored. */
json_t *responses_items(const struct taker *t, const json_t *previous, const json_t *input,
                        size_t *values);
/* Keeps the items in the request, to be stored with its response. -1 with an error. */
int responses_keep(const struct taker *t, const json_t *items);
/* Stores a response, if the request says so. */
void responses_store(const struct completion *c, const json_t *response);

/* request.c */
int responses_parse(const struct api_body *body, struct api_request *out,
                    char param[API_PARAM_BYTES], struct error *error);

/* tools.c. The names of tools that are in a namespace. */
#define TOOL_NAME_BYTES 512 /* of memory, besides the texts */
struct tool_names {
    json_t *known;  /* of the client: namespace: {name: name in the template} */
    json_t *flat;   /* of the template: name: [namespace, name] */
    json_t *strict; /* of the template: names of tools with `strict` */
    size_t bytes;   /* of `flat`, about */
};
/* The name in the template. space, name: of a client; space may be NULL. Borrowed. */
const json_t *tool_name_of(const struct tool_names *names, const json_t *space, const json_t *name);
/* *out: the same of a tool that the client chooses: -1 with an error where its namespace has none
 * of that name. */
int tool_name_chosen(const struct taker *t, const struct tool_names *names, const json_t *entry,
                     const json_t **out);
/* Whether one of the tools, in the form of templates, has `strict`: true. */
bool tool_names_strict(const struct tool_names *names, const json_t *tools);
void tool_names_free(struct tool_names *names);

/* Messages and tools in the form of lib/model/chat/format.h. New references; NULL with an error.
 * What cannot be served is left out, and told to limits->ignored. */
/* *names is freed by the caller in any case. */
json_t *responses_tools(const struct taker *t, const json_t *tools, struct tool_names *names);
/* items.c. instructions: a text; NULL: none. input: a text or an array of items. */
json_t *responses_conversation(const struct taker *t, const struct tool_names *names,
                               const json_t *instructions, const json_t *input);

#endif
