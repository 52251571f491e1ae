/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of messages with calls that a template takes: it renders one conversation in each shape
 * until its call is in the text as a model would write it. */
#include <string.h>

#include "lib/jinja/jinja.h"
#include "lib/model/chat/format.h"

#define STEPS        200000
#define MEMORY_BYTES ((size_t)2 << 20)
#define OUTPUT_BYTES ((size_t)256 << 10)
#define ARGUMENT     "tried_argument"
#define VALUE        "tried_value"
#define THOUGHT      "tried_thought"

#define CALLED(id)                                                                                 \
    "[{\"role\":\"user\",\"content\":\"Look.\"},"                                                  \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id "\",\"type\":"        \
    "\"function\",\"function\":{\"name\":\"look\",\"arguments\":{\"" ARGUMENT "\":\"" VALUE        \
    "\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"" id                                            \
    "\",\"name\":\"look\",\"content\":\"here\"}]"
static const char called[] = CALLED("call00001"), called_long[] = CALLED("call_tried_00001");
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

static bool takes(const struct jinja_template *program, const struct model_chat *model,
                  const struct chat_shape *shape, const char *conversation,
                  bool (*good_text)(const char *text))
{
    struct error error;
    struct jinja_output out = {0};
    struct jinja_limits bounds = JINJA_LIMITS_DEFAULT;
    json_t *given = json_loads(conversation, 0, NULL);
    json_t *messages = chat_messages(given, false, shape, (enum chat_family)model->family, &error);
    json_t *all = json_pack("{so, so}", "messages", messages, "tools", json_loads(tools, 0, NULL));
    json_t *own = json_pack("{ss, ss, sb}", "bos_token", model->bos, "eos_token", model->eos,
                            "add_generation_prompt", 1);
    struct jinja_input input = {.own = own, .messages = all, .roles = chat_roles};
    bounds.steps = STEPS;
    bounds.memory_bytes = MEMORY_BYTES;
    bounds.output_bytes = OUTPUT_BYTES;
    bool good = all && own && jinja_render(program, &input, &bounds, &out, &error) == 0 &&
                good_text(out.text);
    jinja_output_free(&out);
    json_decref(given);
    json_decref(all);
    json_decref(own);
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

/* Most templates take reasoning as a member of the message. */
struct chat_shape chat_shape_of(const struct jinja_template *program,
                                const struct model_chat *model)
{
    struct chat_shape shape = shape_of_calls(program, model), parts = shape;
    parts.thinking_parts = true;
    return !takes(program, model, &shape, thoughtful, has_thoughts) &&
                   takes(program, model, &parts, thoughtful, has_thoughts)
               ? parts
               : shape;
}
