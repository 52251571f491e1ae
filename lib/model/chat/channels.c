/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in channels (gpt-oss): messages with a header each.
 *
 *   [<|start|>assistant][ to=functions.NAME]<|channel|>NAME[ to=functions.NAME]
 *       [ <|constrain|>json]<|message|>TEXT<|end|>       (without the line feed)
 *
 * The channel `analysis` is reasoning, a message to a function is a call, all else is content. Text
 * that has no header is content. */
#include <stdint.h>
#include <string.h>

#include "lib/model/chat/answer_internal.h"
#include "lib/text/utf8.h"

#define HEADER_MAX 512 /* a longer one is content */
#define MESSAGE    "<|message|>"
#define TO         "to=functions."

static const char *const starts[] = {"<|start|>", "<|channel|>", " to=", "to=", "<|message|>"};
static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

const char *answer_channel_mark(size_t i)
{
    static const char *const others[] = {"<|channel|>", "<|constrain|>", MESSAGE};
    return i < COUNT(ends)                   ? ends[i]
           : i < COUNT(ends) + COUNT(others) ? others[i - COUNT(ends)]
                                             : NULL;
}

/* Whether what is held starts with one of them; *maybe: more bytes may change that. */
static bool starts_header(const struct answer *a, bool *maybe)
{
    *maybe = false;
    for (size_t i = 0; i < COUNT(starts); i++) {
        size_t n = strlen(starts[i]), same = n < a->bytes ? n : a->bytes;
        if (memcmp(a->held, starts[i], same) == 0 && same == n)
            return true;
        *maybe = *maybe || memcmp(a->held, starts[i], same) == 0;
    }
    return false;
}

static bool has(const char *text, size_t n, const char *what)
{
    return memmem(text, n, what, strlen(what)) != NULL;
}

/* Of a header nothing is handed out, so that it may have no other text: no mark that ends or begins
 * a message, and no characters that neither names nor marks have. */
static bool is_header(const char *text, size_t n)
{
    for (size_t i = 0; i < COUNT(ends); i++)
        if (n > 0 && has(text + 1, n - 1, ends[i]))
            return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

bool answer_in_header(struct answer *a, bool end)
{
    bool maybe, header = starts_header(a, &maybe);
    size_t max = a->bytes < HEADER_MAX ? a->bytes : HEADER_MAX;
    if (!header && maybe && !end)
        return false;
    const char *at = header ? memmem(a->held, max, MESSAGE, strlen(MESSAGE)) : NULL;
    if (header && !at && !end && a->bytes < HEADER_MAX)
        return false;
    at = at && is_header(a->held, (size_t)(at - a->held)) ? at : NULL;
    a->header = 0;
    a->part = ANSWER_CONTENT;
    a->state = ANSWER_IN_MESSAGE;
    a->whole_start = false;
    if (!at) {
        a->whole_start = header; /* its first mark is no end */
        return true;
    }
    size_t n = (size_t)(at - a->held);
    if (has(a->held, n, TO) && a->form.call.open) {
        a->part = ANSWER_CALL;
        a->header = n + strlen(MESSAGE);
        return true;
    }
    if (has(a->held, n, TO)) { /* no tools: it stays as it is */
        a->whole_start = true;
        return true;
    }
    a->part = has(a->held, n, "<|channel|>analysis") ? ANSWER_REASONING : ANSWER_CONTENT;
    answer_drop(a, n + strlen(MESSAGE));
    return true;
}

/* The first mark that ends a message, from `from` on; *n: its bytes in the text, 0 if it begins
 * another message. SIZE_MAX: none; then *n is the number of bytes at the end that may be the start
 * of one. */
static size_t find_end(struct answer *a, size_t from, size_t *n)
{
    size_t first = SIZE_MAX;
    *n = 0;
    for (size_t i = 0; i < COUNT(ends); i++) {
        const char *at = from < a->bytes
                             ? memmem(a->held + from, a->bytes - from, ends[i], strlen(ends[i]))
                             : NULL;
        if (at && (size_t)(at - a->held) < first) {
            first = (size_t)(at - a->held);
            *n = i + 1 < COUNT(ends) ? strlen(ends[i]) : 0;
        }
    }
    for (size_t k = 1; first == SIZE_MAX && k < strlen("<|channel|>") && k <= a->bytes - from; k++)
        for (size_t i = 0; i < COUNT(ends); i++)
            if (k < strlen(ends[i]) && memcmp(a->held + a->bytes - k, ends[i], k) == 0)
                *n = k;
    a->searched = first == SIZE_MAX ? a->bytes - *n : 0;
    return first;
}

/* The call of what is held up to `to`: its name is in the header. */
static bool give_call(struct answer *a, size_t to, bool ended)
{
    const char *name = memmem(a->held, a->header, TO, strlen(TO));
    size_t n = 0;
    name += strlen(TO);
    while (name + n < a->held + a->header && !strchr(" <", name[n]))
        n++;
    return answer_give_calls(
        a, answer_call_of_name(name, n, a->held + a->header, to - a->header, ended));
}

static bool in_call(struct answer *a, size_t at, size_t n, bool end)
{
    size_t all = at != SIZE_MAX ? at : a->bytes - (end ? 0 : n);
    bool too_long = all > ANSWER_CALL_BYTES_MAX;
    if (at == SIZE_MAX && !end && !too_long)
        return false;
    a->part = ANSWER_CONTENT;
    if (too_long) { /* what is left of it is content, too */
        answer_give(a, ANSWER_CONTENT, utf8_complete_prefix(a->held, ANSWER_CALL_BYTES_MAX));
        return true;
    }
    if (give_call(a, all, at != SIZE_MAX))
        answer_drop(a, all);
    else
        answer_give(a, ANSWER_CONTENT, all);
    if (at != SIZE_MAX)
        answer_drop(a, n);
    a->state = ANSWER_IN_HEADER;
    return true;
}

bool answer_in_message(struct answer *a, bool end)
{
    size_t n, from = a->part == ANSWER_CALL ? a->header : a->whole_start ? 1 : 0;
    from = a->searched > from ? a->searched : from;
    size_t at = find_end(a, from < a->bytes ? from : a->bytes, &n);
    if (a->part == ANSWER_CALL)
        return in_call(a, at, n, end);
    size_t given = at != SIZE_MAX ? at : a->bytes - (end ? 0 : n);
    if (given > 0)
        a->whole_start = false;
    answer_give(a, a->part, given);
    if (at == SIZE_MAX)
        return false;
    answer_drop(a, n);
    a->state = ANSWER_IN_HEADER;
    return true;
}
