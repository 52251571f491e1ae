/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that split answers. */
#ifndef SLUICE_MODEL_CHAT_ANSWER_INTERNAL_H
#define SLUICE_MODEL_CHAT_ANSWER_INTERNAL_H

#include <jansson.h>

#include "lib/model/chat/answer.h"

/* calls.c: the form of calls that a template's text shows; its `open` is NULL if it shows none. */
struct answer_call answer_call_of(const char *chat_template, size_t bytes);

/* The calls that make up a whole text, as an array of {"name": text, "arguments": text}, with "id"
 * where the model wrote one. NULL: the text is something else, or memory is short. */
json_t *answer_calls(const struct answer_form *form, const char *text, size_t bytes);

/* Whether calls without marks begin with the first character of a text: 1, 0, or -1: more bytes may
 * change that. What begins so may still turn out to be none. */
int answer_call_begins(const struct answer_form *form, const char *text, size_t bytes);

/* The mark that begins a call which has no `open` before it; NULL: the form has no such calls. */
const char *answer_bare_mark(const struct answer_call *f);
/* The number of bytes of the calls at the start of a text, with the closing mark after them, which
 * may be missing; *marked gets the bytes of that mark. SIZE_MAX: more bytes are needed, or, if the
 * text has ended, there is no whole call. */
size_t answer_bare_end(const struct answer_call *f, const char *text, size_t bytes, bool end,
                       size_t *marked);

/* Makes one call from its name and the text of its arguments, which may be empty if a mark ended
 * the call; else it was cut off before them. */
json_t *answer_call_of_name(const char *name, size_t n, const char *text, size_t bytes, bool ended);

/* answer.c: hands out the first n bytes that are held, and drops them; or only drops them. */
void answer_give(struct answer *a, enum answer_part part, size_t n);
void answer_drop(struct answer *a, size_t n);
/* Hands out calls and frees them. False: calls is NULL. */
bool answer_give_calls(struct answer *a, json_t *calls);

/* channels.c: the mark number i of channels; NULL after the last one. */
const char *answer_channel_mark(size_t i);

/* channels.c: one step of an answer in channels. True: the state has changed. */
bool answer_in_header(struct answer *a, bool end);
bool answer_in_message(struct answer *a, bool end);

#endif
