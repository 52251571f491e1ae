/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of messages that a template takes: it renders one conversation in each shape until its
 * call is in the text as a model would write it; the same for reasoning, for messages of the
 * system, and for the names of efforts. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/jinja.h"
#include "lib/model/chat/format.h"

#define STEPS        200000
#define MEMORY_BYTES ((size_t)2 << 20)
#define OUTPUT_BYTES ((size_t)256 << 10)
#define ARGUMENT     "tried_argument"
#define VALUE        "tried_value"
#define THOUGHT      "tried_thought"

#define CALLED_BESIDE(content, id)                                                                 \
    "[{\"role\":\"user\",\"content\":\"Look.\"},"                                                  \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"" id "\",\"type\":" \
    "\"function\",\"function\":{\"name\":\"look\",\"arguments\":{\"" ARGUMENT "\":\"" VALUE        \
    "\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"" id                                            \
    "\",\"name\":\"look\",\"content\":\"here\"}]"
#define CALLED(id)    CALLED_BESIDE("null", id)
#define THOUGHTS_(of) of ",\"reasoning_content\":\"" THOUGHT "\""
static const char called[] = CALLED("call00001"), called_long[] = CALLED("call_tried_00001");
/* Of a message with calls, without a content and with one. */
static const char called_thoughtful[] = CALLED_BESIDE(THOUGHTS_("null"), "call00001"),
                  called_wordy[] = CALLED_BESIDE(THOUGHTS_("\"Here.\""), "call00001");
static const char thoughtful[] =
    "[{\"role\":\"user\",\"content\":\"Look.\"},{\"role\":\"assistant\",\"content\":\"Here.\","
    "\"reasoning_content\":\"" THOUGHT "\"}]";
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{},\"required\":[]}}}]";

/* The call is there, neither as Python prints objects and null, nor as JSON within a text of
 * JSON. */
static bool well_written(const char *text)
{
    return strstr(text, ARGUMENT) && strstr(text, VALUE) && !strstr(text, "'" ARGUMENT "'") &&
           !strstr(text, "\\\"" ARGUMENT) && !strstr(text, "None");
}

/* The thoughts are there, not as a list is printed. */
static bool has_thoughts(const char *text)
{
    return strstr(text, THOUGHT) && !strstr(text, "'" THOUGHT "'") &&
           !strstr(text, "\"" THOUGHT "\"");
}

/* Renders a prompt, within small limits. Takes the reference to the variables. */
static bool render(const struct jinja_template *program, const struct model_chat *model,
                   json_t *variables, struct jinja_output *out)
{
    struct error error;
    struct jinja_limits bounds = JINJA_LIMITS_DEFAULT;
    json_t *own = json_pack("{ss, ss, sb}", "bos_token", model->bos, "eos_token", model->eos,
                            "add_generation_prompt", 1);
    struct jinja_input input = {.own = own, .messages = variables, .roles = chat_roles};
    bounds.steps = STEPS;
    bounds.memory_bytes = MEMORY_BYTES;
    bounds.output_bytes = OUTPUT_BYTES;
    bool good = variables && own && jinja_render(program, &input, &bounds, out, &error) == 0;
    json_decref(variables);
    json_decref(own);
    return good;
}

static bool render_messages(const struct jinja_template *program, const struct model_chat *model,
                            const struct chat_shape *shape, const char *conversation,
                            bool with_tools, struct jinja_output *out)
{
    struct error error;
    json_t *given = json_loads(conversation, 0, NULL);
    json_t *messages = chat_messages(given, false, shape, (enum chat_family)model->family, &error);
    json_t *all = json_pack("{so, so*}", "messages", messages, "tools",
                            with_tools ? json_loads(tools, 0, NULL) : NULL);
    json_decref(given);
    return render(program, model, all, out);
}

static bool takes(const struct jinja_template *program, const struct model_chat *model,
                  const struct chat_shape *shape, const char *conversation,
                  bool (*good_text)(const char *text))
{
    struct jinja_output out = {0};
    bool good = render_messages(program, model, shape, conversation, true, &out);
    good = good && good_text(out.text);
    jinja_output_free(&out);
    return good;
}

static struct chat_shape shape_of_calls(const struct jinja_template *program,
                                        const struct model_chat *model)
{
    static const struct chat_shape shapes[] = {
        {.null_content = true, .text_arguments = false},
        {.null_content = true, .text_arguments = true},
        {.null_content = false, .text_arguments = false},
        {.null_content = false, .text_arguments = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (takes(program, model, &shapes[i], called, well_written)) {
            struct chat_shape found = shapes[i], other = shapes[i];
            other.null_content = false;
            found.empty_is_null =
                found.null_content && !takes(program, model, &other, called, well_written);
            found.short_ids = !takes(program, model, &found, called_long, well_written);
            return found;
        }
    return (struct chat_shape){.null_content = false, .text_arguments = false};
}

static bool takes_thoughts(const struct jinja_template *program, const struct model_chat *model,
                           const struct chat_shape *shape)
{
    return takes(program, model, shape, thoughtful, has_thoughts) ||
           takes(program, model, shape, called_thoughtful, has_thoughts);
}

/* Most templates take reasoning as the member of the message that clients send. gpt-oss's writes
 * it of messages with calls only, and rejects those that have a content, too. */
static void fit_thoughts(const struct jinja_template *program, const struct model_chat *model,
                         struct chat_shape *shape)
{
    static const char *const members[] = {"thinking", "reasoning"};
    struct chat_shape other = *shape;
    if (takes_thoughts(program, model, shape))
        return;
    other.thinking_parts = true;
    if (takes(program, model, &other, thoughtful, has_thoughts))
        *shape = other;
    other.thinking_parts = false;
    for (size_t i = 0; i < ARRAY_LEN(members) && !shape->thinking_parts && !shape->thoughts; i++) {
        other.thoughts = members[i];
        if (takes_thoughts(program, model, &other))
            shape->thoughts = members[i];
    }
    other = *shape;
    other.thoughts_or_words = true;
    if (shape->thoughts && !takes(program, model, shape, called_wordy, has_thoughts) &&
        takes(program, model, &other, called_wordy, has_thoughts))
        *shape = other;
}

/* ---- messages of the system ------------------------------------------------------------------ */

#define SYSTEM           "tried_system"
#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define FIRST(role)      "[" SAID(role, SYSTEM) "," SAID("user", "tried_1") "]"
#define TWO(one, other)                                                                            \
    "[" SAID(one, SYSTEM) "," SAID(other, "tried_1") "," SAID("user", "tried_2") "]"
#define LATER(role)                                                                                \
    "[" SAID("system", SYSTEM) "," SAID("user", "tried_1") "," SAID(role, "tried_2") "," SAID(     \
        "assistant", "tried_3") "," SAID(role, "tried_4") "," SAID("user", "tried_5") "]"

/* Whether the text has what a conversation says: that of the first message anywhere, because some
 * templates write it into the last one of the user, and the others in their order. */
static bool says(const char *text, const char *conversation)
{
    char mark[] = "tried_1";
    if (!strstr(text, SYSTEM))
        return false;
    for (; strstr(conversation, mark); mark[strlen(mark) - 1]++) {
        text = strstr(text, mark);
        if (!text)
            return false;
    }
    return true;
}

/* How many of two prompts say it all: one with tools, for which templates have another text of the
 * system, and one without. */
static unsigned prompts_of(const struct jinja_template *program, const struct model_chat *model,
                           const struct chat_shape *shape, const char *conversation,
                           const char *expected)
{
    unsigned good = 0;
    for (int with_tools = 0; with_tools <= 1; with_tools++) {
        struct jinja_output out = {0};
        good += render_messages(program, model, shape, conversation, with_tools, &out) &&
                says(out.text, expected);
        jinja_output_free(&out);
    }
    return good;
}

/* Takes the other shape if a template does not write what is expected, and then all of the
 * conversation. */
static void improve(const struct jinja_template *program, const struct model_chat *model,
                    struct chat_shape *shape, const struct chat_shape *other,
                    const char *conversation, const char *expected)
{
    unsigned good = prompts_of(program, model, shape, conversation, expected);
    if (good < 2 && prompts_of(program, model, other, conversation, conversation) > good)
        *shape = *other;
}

static void fit_later(const struct jinja_template *program, const struct model_chat *model,
                      struct chat_shape *shape)
{
    static const char *const conversations[] = {LATER("system"), LATER("developer")};
    static const enum chat_later ways[] = {CHAT_LATER_USER, CHAT_LATER_JOINED};
    for (size_t i = 0; i < ARRAY_LEN(conversations); i++)
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
            struct chat_shape other = *shape;
            other.later = ways[k];
            improve(program, model, shape, &other, conversations[i], conversations[i]);
        }
}

/* Where the template does not name the role, it is none that the model knows, also if the message
 * is written. */
static void fit_developer(const struct jinja_template *program, const struct model_chat *model,
                          struct chat_shape *shape, bool named)
{
    static const char conversation[] = FIRST("developer");
    struct chat_shape other = *shape;
    other.no_developer = true;
    if (named)
        improve(program, model, shape, &other, conversation, SYSTEM);
    else if (prompts_of(program, model, &other, conversation, SYSTEM) >=
             prompts_of(program, model, shape, conversation, SYSTEM))
        *shape = other;
}

static void fit_system(const struct jinja_template *program, const struct model_chat *model,
                       struct chat_shape *shape, bool named)
{
    static const char *const twice[] = {TWO("system", "system"), TWO("system", "developer"),
                                        TWO("developer", "system")};
    struct chat_shape other = *shape;
    other.no_system = true;
    improve(program, model, shape, &other, FIRST("system"), SYSTEM);
    fit_developer(program, model, shape, named);
    for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
        other = *shape;
        other.one_system = true;
        improve(program, model, shape, &other, twice[i], twice[i]);
    }
    fit_later(program, model, shape);
}

static bool names_it(const char *text, size_t bytes, const char *name)
{
    return memmem(text, bytes, name, strlen(name)) != NULL;
}

struct chat_shape chat_shape_of(const struct jinja_template *program,
                                const struct model_chat *model, const char *text, size_t bytes)
{
    struct chat_shape shape = shape_of_calls(program, model);
    fit_thoughts(program, model, &shape);
    fit_system(program, model, &shape, names_it(text, bytes, "developer"));
    return shape;
}

/* ---- reasoning_effort ---- */

#define VARIABLE "reasoning_effort"

/* The names of OpenAI's API, and Hy3's for none. */
static const struct {
    const char *name;
    int level;
} names[] = {{"none", 0},   {"no_think", 0}, {"minimal", 1}, {"low", 2},
             {"medium", 3}, {"high", 4},     {"xhigh", 5},   {"max", 6}};

static bool accepts(const struct chat_effort *e, size_t i)
{
    return (e->accepted >> i & 1) != 0;
}

/* Whether the answer begins with reasoning; -1: the template raises an exception. effort NULL: the
 * variable is not set. */
static int thinks(const struct jinja_template *program, const struct model_chat *model,
                  const struct answer_form *answer, const char *effort)
{
    struct jinja_output out = {0};
    json_t *all = json_pack("{s:[{s:s, s:s}], s:s*}", "messages", "role", "user", "content",
                            "Hello", VARIABLE, effort);
    int found =
        render(program, model, all, &out) ? answer_front(answer, out.text, out.bytes) > 0 : -1;
    jinja_output_free(&out);
    return found;
}

struct chat_effort chat_effort_of(const struct jinja_template *program,
                                  const struct model_chat *model, const struct answer_form *answer,
                                  const char *text, size_t bytes)
{
    struct chat_effort e = {.accepted = 0};
    int usual = names_it(text, bytes, VARIABLE) ? thinks(program, model, answer, NULL) : -1;
    bool alone = !names_it(text, bytes, "enable_thinking"), all = true;
    for (size_t i = 0; i < ARRAY_LEN(names) && usual >= 0; i++) {
        int found = thinks(program, model, answer, names[i].name);
        e.accepted |= found >= 0 ? 1u << i : 0;
        all = all && found >= 0;
        if (alone && found == 0 && usual == 1 && !e.off)
            e.off = names[i].name;
        if (alone && found == 1 && usual == 0 && names[i].level <= 4)
            e.on = names[i].name;
    }
    if (all) /* any name is taken */
        e.accepted = 0;
    return e;
}

/* The name itself if the template takes it; else the nearest one that it takes, of two the
 * higher. */
static const char *nearest(const struct chat_effort *e, const char *effort)
{
    const char *best = effort;
    int level = -1, distance = 100;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i].name, effort) != 0)
            continue;
        if (accepts(e, i))
            return effort;
        level = names[i].level;
    }
    for (size_t i = 0; i < ARRAY_LEN(names) && level >= 0; i++) {
        int from = abs(names[i].level - level);
        if (accepts(e, i) && from <= distance) {
            best = names[i].name;
            distance = from;
        }
    }
    return best;
}

int chat_effort_fit(const struct chat_effort *e, json_t *variables)
{
    const json_t *given = json_object_get(variables, VARIABLE);
    const char *effort = json_string_value(given);
    const json_t *thinking = json_object_get(variables, "enable_thinking");
    const char *set = effort && e->accepted           ? nearest(e, effort)
                      : given && !json_is_null(given) ? effort
                      : json_is_true(thinking)        ? e->on
                      : json_is_false(thinking)       ? e->off
                                                      : NULL;
    return !set || set == effort ? 0 : json_object_set_new(variables, VARIABLE, json_string(set));
}
