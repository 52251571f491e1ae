/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: answers of models, split into parts. Input: a byte for the marks (bits 0 and 1: the
 * rows of reasoning, bit 2: calls; bits 5 to 7: other forms, form_of()) and whether the answer
 * starts inside reasoning (bit 3), a byte for the sizes of the pieces, then the text; 0xff stands
 * for 300 spaces or 40 KiB of 'x', by bit 4 of the first byte. The parts are the same whatever the
 * pieces. Without calls and reasoning the text is the content. What is held is bounded. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/chat/answer.h"
#include "lib/text/utf8.h"

#define BYTES_MAX   ((size_t)256 << 10)
#define MANY_BYTES  ((size_t)40 << 10)
#define MANY_SPACES 300
#define TOOLS                                                                                      \
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{\"type\":\"integer\"}}" \
    "}}}]"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct parts {
    FILE *out;       /* P bytes; C name 0 arguments 0 */
    const char *all; /* the answer, */
    size_t all_bytes;
    uint64_t given; /* and what of it the last piece ended with */
    char *text;
    size_t bytes, taken; /* taken: bytes of text in pieces */
    int last;
};

static void keep(void *arg, const struct answer_piece *p)
{
    struct parts *parts = arg;
    if (p->part == ANSWER_CALL) {
        json_t *arguments = json_loads(p->arguments, JSON_DECODE_ANY, NULL);
        sl_assert(!p->text && p->name && strlen(p->arguments) <= 8 * ANSWER_CALL_BYTES_MAX);
        json_decref(arguments); /* of a text anything */
        fprintf(parts->out, "\n%d %s %s", ANSWER_CALL, p->name, p->arguments);
    } else {
        sl_assert(p->bytes > 0 && !p->name && !p->arguments);
        sl_assert(p->part == ANSWER_REASONING || p->part == ANSWER_CONTENT);
        if (parts->last != (int)p->part)
            fprintf(parts->out, "\n%d ", p->part);
        sl_assert(p->from >= parts->given && p->from + p->bytes <= parts->all_bytes);
        sl_assert(memcmp(parts->all + p->from, p->text, p->bytes) == 0);
        parts->given = p->from + p->bytes;
        fwrite(p->text, 1, p->bytes, parts->out);
        parts->taken += p->bytes;
    }
    parts->last = (int)p->part;
}

/* In pieces of about so many bytes, whole characters; 0: at once. */
static void split(const struct answer_form *form, bool inside, const char *text, size_t bytes,
                  size_t piece, struct parts *parts)
{
    struct answer a;
    *parts = (struct parts){.last = -1, .all = text, .all_bytes = bytes};
    parts->out = open_memstream(&parts->text, &parts->bytes);
    sl_assert(parts->out);
    answer_open(&a, form, inside, keep, parts);
    for (size_t at = 0, n; at < bytes && piece > 0; at += n) {
        n = bytes - at < piece ? bytes - at : piece;
        n = at + n == bytes ? n : utf8_complete_prefix(text + at, n);
        n = n > 0 ? n : bytes - at < piece + 3 ? bytes - at : piece + 3;
        sl_assert(answer_take(&a, text + at, n, false) == 0);
        sl_assert(a.bytes <= a.capacity && a.capacity <= ANSWER_BYTES_MAX);
    }
    sl_assert(answer_take(&a, piece ? "" : text, piece ? 0 : bytes, true) == 0);
    answer_close(&a);
    fclose(parts->out);
    sl_assert(parts->taken <= bytes);
}

static size_t expand(const uint8_t *data, size_t size, bool many, char *text)
{
    size_t n = 0, more = many ? MANY_BYTES : MANY_SPACES;
    for (size_t i = 0; i < size; i++) {
        size_t count = data[i] == 0xff ? more : 1;
        if (n + count > BYTES_MAX)
            break;
        memset(text + n, data[i] != 0xff ? data[i] : many ? 'x' : ' ', count);
        n += count;
    }
    return n;
}

/* Bits 5 to 7, without bit 2: one of the other forms of calls; with it, and at least one of them,
 * one of the last ones, or channels; none but bit 1 of the low ones: MiniMax-M1, and with bit 0:
 * M3; all of the low ones: LFM2; bit 3 alone, or with bit 2: Llama 4. */
static struct answer_form form_of(uint8_t marks)
{
    static const char *const signs[] = {"",
                                        "<minimax:tool_call>",
                                        "<｜tool▁call▁begin｜>' + tool['type']",
                                        "<｜tool▁calls▁begin｜>",
                                        "<|tool_calls_section_begin|>",
                                        "<|channel>thought<channel|><tool_call|>",
                                        "<arg_key>",
                                        "<function="};
    char text[200];
    int n = snprintf(text, sizeof text, "{{ a }}%s%s%s%s", marks & 1 ? "<think></think>" : "",
                     marks & 2 ? "</seed:think>" : "", marks & 4 ? "<tool_call></tool_call>" : "",
                     marks & 4 ? "" : signs[marks >> 5]);
    static const char *const whole[] = {
        "<|channel|>analysis<|message|>",
        "<parameter=example_parameter_1>value_1</parameter>",
        "HYTK = ':opensource'",
        "<|END_THINKING|><|END_TEXT|><|START_ACTION|>",
        "[/THINK][CALL_ID][ARGS]",
        "[TOOL_CALLS]",
        "<tool_sep>",
    };
    if (!(marks >> 5) && (marks & 7) == 3)
        n = snprintf(text, sizeof text, "</mm:think>]<]minimax[>[");
    if (!(marks >> 5) && (marks & 7) == 2)
        n = snprintf(text, sizeof text, "</tool_calls><end_of_sentence>");
    if ((marks & 0xe7) == 7)
        n = snprintf(text, sizeof text, "<think></think><|tool_call_start|>");
    if ((marks & 0xeb) == 8)
        n = snprintf(text, sizeof text, "<|header_start|>%s",
                     marks & 4 ? "[func_name1("
                               : "{\"name\": function name, \"parameters\": dictionary");
    if (marks >> 5 && marks & 4)
        n = snprintf(text, sizeof text, "%s%s", whole[(marks >> 5) - 1],
                     marks & 1 ? "<think></think>" : "");
    return answer_form_of(text, (size_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[BYTES_MAX], valid[3 * BYTES_MAX + 1];
    struct parts whole, streamed;
    if (size < 2)
        return 0;
    struct answer_form form = form_of(data[0]);
    json_t *tools = json_loads(TOOLS, 0, NULL);
    const char *marks[ANSWER_MARKS_MAX];
    for (uint32_t i = 0, n = answer_marks(&form, marks); i < n; i++)
        sl_assert(strlen(marks[i]) <= ANSWER_MARK_BYTES_MAX);
    size_t types_bytes;
    struct chat_types *types = chat_types_new(tools, &types_bytes);
    json_decref(tools);
    form.types = types;
    size_t bytes = expand(data + 2, size - 2, (data[0] & 16) != 0, text);
    bytes = utf8_sanitise(text, bytes, valid);
    bool inside = data[0] & 8 && form.reasoning.open;
    sl_assert(!form.reasoning.open ||
              answer_front(&form, form.reasoning.open, strlen(form.reasoning.open)));
    (void)answer_front(&form, valid, bytes);
    split(&form, inside, valid, bytes, 0, &whole);
    split(&form, inside, valid, bytes, (size_t)data[1] + 1, &streamed);
    sl_assert(whole.bytes == streamed.bytes && memcmp(whole.text, streamed.text, whole.bytes) == 0);
    if (!form.reasoning.open && !form.call.open)
        sl_assert(whole.taken == bytes);
    chat_types_free(types);
    free(whole.text);
    free(streamed.text);
    return 0;
}
