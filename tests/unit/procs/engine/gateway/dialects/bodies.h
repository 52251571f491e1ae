/* SPDX-License-Identifier: Apache-2.0 */
/* Reads bodies with a template that writes all that it gets as JSON, for tests of parsers. */
#ifndef SLUICE_TESTS_UNIT_GATEWAY_BODIES_H
#define SLUICE_TESTS_UNIT_GATEWAY_BODIES_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/request.h"

/* The marks are there so that calls and reasoning are split off; the last message is written by
 * itself, because an answer may continue it. */
#define BODIES_TEMPLATE                                                                            \
    "{# <think></think><tool_call></tool_call> #}{% for m in messages %}"                          \
    "{{ 'A' + m.content if loop.last and m.role == 'assistant' else m | tojson }}{% endfor %}"     \
    "{% if tools %}T{{ tools | tojson }}{% endif %}"                                               \
    "{% if enable_thinking is defined %}E{{ enable_thinking }}{% endif %}"                         \
    "{% if reasoning_effort is defined %}R{{ reasoning_effort }}{% endif %}"

struct bodies {
    struct chat_format format;
    struct api_limits limits;
    struct api_request request; /* of the last body */
    struct error error;
    char param[API_PARAM_BYTES], ignored[200];
};

static inline void bodies_note_ignored(void *arg, const char *name)
{
    struct bodies *b = arg;
    size_t n = strlen(b->ignored);
    snprintf(b->ignored + n, sizeof b->ignored - n, "%s,", name);
}

/* chat_template NULL: a model without one. */
static inline void bodies_open(struct bodies *b, const char *chat_template)
{
    struct model_chat model = {.family = CHAT_PLAIN};
    *b = (struct bodies){.limits = {.prompt_bytes = 4096}};
    b->limits.chat = &b->format;
    b->limits.ignored = bodies_note_ignored;
    b->limits.ignored_arg = b;
    if (chat_template)
        ck_assert_msg(chat_format_set(&b->format, &model, chat_template, strlen(chat_template),
                                      &b->error) == 0,
                      "%s", b->error.text);
}

static inline int bodies_parse(struct bodies *b, const struct dialect *dialect, const char *body)
{
    api_request_free(&b->request);
    b->ignored[0] = 0;
    b->error.text[0] = 0;
    return api_request_parse(dialect, body, strlen(body), &b->limits, &b->request, b->param,
                             &b->error);
}

/* The body is read, and its prompt is this. */
static inline void bodies_check(struct bodies *b, const struct dialect *dialect, const char *body,
                                const char *prompt)
{
    int rc = bodies_parse(b, dialect, body);
    ck_assert_msg(rc == 0, "%s: %s", body, b->error.text);
    ck_assert_str_eq(b->request.prompt, prompt);
}

/* It is rejected with a message that contains the text, and the name of the field. */
static inline void bodies_reject(struct bodies *b, const struct dialect *dialect, const char *body,
                                 const char *param, const char *text)
{
    ck_assert_msg(bodies_parse(b, dialect, body) == -1, "%.200s is taken", body);
    ck_assert_int_eq(b->error.code, ERR_BAD_INPUT);
    ck_assert_msg(strcmp(b->param, param) == 0, "%.200s: '%s'", body, b->param);
    ck_assert_msg(strstr(b->error.text, text) != NULL, "%.200s: %s", body, b->error.text);
}

static inline void bodies_close(struct bodies *b)
{
    api_request_free(&b->request);
    chat_format_free(&b->format);
}

/* `count` copies of an item between two texts, separated by commas; malloc'ed. */
static inline char *bodies_repeat(const char *before, const char *item, size_t count,
                                  const char *after)
{
    char *body = malloc(strlen(before) + count * (strlen(item) + 1) + strlen(after) + 1);
    char *at = stpcpy(body, before);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(stpcpy(at, i > 0 ? "," : ""), item);
    stpcpy(at, after);
    return body;
}

/* One message more than a conversation may have is rejected, with a template and without one, and
 * wherever it comes from; CHAT_MESSAGES_MAX are taken. `own`: those of `before`. */
static inline void bodies_check_count(const struct dialect *dialect, const char *before, size_t own,
                                      const char *item, const char *after, const char *param)
{
    for (int template = 0; template <2; template ++)
        for (size_t more = 0; more < 2; more++) {
            struct bodies b;
            bodies_open(&b, template ? BODIES_TEMPLATE : NULL);
            b.limits.prompt_bytes = 1 << 20;
            char *body = bodies_repeat(before, item, CHAT_MESSAGES_MAX - own + more, after);
            if (more)
                bodies_reject(&b, dialect, body, param, "messages");
            else
                ck_assert_msg(bodies_parse(&b, dialect, body) == 0, "%s", b.error.text);
            free(body);
            bodies_close(&b);
        }
}

/* The values in arguments that are a text count, too. call: a message with a call, with %s for the
 * arguments. */
static inline void bodies_check_values(const struct dialect *dialect, const char *before,
                                       const char *call, const char *after, const char *param)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    b.limits.prompt_bytes = 1 << 20;
    for (size_t more = 0; more < 2; more++) {
        size_t count = more ? API_VALUES_MAX : API_VALUES_MAX - 100;
        char *arguments = bodies_repeat("{\\\"a\\\":[", "0", count, "]}");
        char *message = malloc(strlen(arguments) + strlen(call) + 1);
        sprintf(message, call, arguments);
        char *body = bodies_repeat(before, message, 1, after);
        if (more)
            bodies_reject(&b, dialect, body, param, "'arguments'");
        else
            ck_assert_msg(bodies_parse(&b, dialect, body) == 0, "%s", b.error.text);
        free(body);
        free(message);
        free(arguments);
    }
    bodies_close(&b);
}

#endif
