/* SPDX-License-Identifier: Apache-2.0 */
/* The states of an answer:
 *
 *   START --open mark--> IN_REASONING --close mark--> IN_CONTENT <--call, or none--> IN_CALL
 *     \______anything else___________________________________/
 */
#include "lib/model/chat/answer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/chat/answer_internal.h"
#include "lib/text/utf8.h"

#define BLANKS_MAX 256  /* held back at the end of reasoning */
#define PIECE_MAX  4096 /* taken at once, so that ANSWER_BYTES_MAX holds */

struct answer_form answer_form_of(const char *chat_template, size_t bytes)
{
    static const struct {
        const char *sign;
        struct answer_marks marks;
    } reasoning[] = {
#define REASONING(sign, open, close) {(sign), {(open), (close)}},
#include "lib/model/chat/answer.tbl.h"
    };
    static const struct {
        const char *sign;
        struct answer_marks marks;
        bool optional;
    } contents[] = {
#define CONTENT(sign, open, close, optional) {(sign), {(open), (close)}, (optional)},
#include "lib/model/chat/answer.tbl.h"
    };
    static const struct {
        const char *sign, *mark;
    } tails[] = {
#define TAIL(sign, mark) {(sign), (mark)},
#include "lib/model/chat/answer.tbl.h"
    };
    static const char *const channels[] = {
#define CHANNELS(sign) (sign),
#include "lib/model/chat/answer.tbl.h"
    };
    struct answer_form form = {0};
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning && !form.reasoning.open; i++)
        if (memmem(chat_template, bytes, reasoning[i].sign, strlen(reasoning[i].sign)))
            form.reasoning = reasoning[i].marks;
    for (size_t i = 0; i < sizeof contents / sizeof *contents && !form.content.open; i++)
        if (memmem(chat_template, bytes, contents[i].sign, strlen(contents[i].sign))) {
            form.content = contents[i].marks;
            form.content_optional = contents[i].optional;
        }
    for (size_t i = 0; i < sizeof tails / sizeof *tails && !form.tail; i++)
        if (memmem(chat_template, bytes, tails[i].sign, strlen(tails[i].sign)))
            form.tail = tails[i].mark;
    form.call = answer_call_of(chat_template, bytes);
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        if (memmem(chat_template, bytes, channels[i], strlen(channels[i])))
            form = (struct answer_form){.reasoning = {channels[i], "<|end|>"},
                                        .call = {.open = "<|message|>"},
                                        .channels = true};
    return form;
}

uint32_t answer_marks(const struct answer_form *f, const char *marks[ANSWER_MARKS_MAX])
{
    const struct answer_call *c = &f->call;
    const char *const all[] = {
        f->reasoning.open, f->reasoning.close, f->content.open, f->content.close, f->tail,
        c->open,           c->close,           c->call_open,    c->name_end,      c->call_close,
        c->key_open,       c->key_end,         c->value_open,   c->value_close,   c->id_open};
    uint32_t n = 0;
    if (f->channels) {
        for (const char *mark; (mark = answer_channel_mark(n)) != NULL;)
            marks[n++] = mark;
        return n;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && all[i][0] && (i < 5 || c->open))
            marks[n++] = all[i];
    if (c->open && c->kind == ANSWER_GEMMA)
        marks[n++] = "<|\"|>"; /* around its texts */
    sl_assert(n <= ANSWER_MARKS_MAX);
    return n;
}

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

size_t answer_front(const struct answer_form *f, const char *prompt, size_t bytes)
{
    size_t to = bytes, n = f->reasoning.open ? strlen(f->reasoning.open) : 0;
    while (to > 0 && blank(prompt[to - 1]))
        to--;
    bool ends = n > 0 && n <= to && memcmp(prompt + to - n, f->reasoning.open, n) == 0;
    return ends ? bytes - to + n : 0;
}

/* What is after the last one; NULL: there is none. */
static const char *after_last(const char *text, size_t bytes, const char *mark)
{
    const char *end = text + bytes, *last = NULL;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), mark, strlen(mark)));)
        last = at += strlen(mark);
    return last;
}

bool answer_left_open(const struct answer_form *f, const char *text, size_t bytes)
{
    const char *open = f->reasoning.open ? after_last(text, bytes, f->reasoning.open) : NULL;
    return open && !after_last(open, (size_t)(text + bytes - open), f->reasoning.close);
}

void answer_open(struct answer *a, const struct answer_form *form, bool inside, answer_sink *sink,
                 void *arg)
{
    *a = (struct answer){.form = *form, .sink = sink, .arg = arg, .front = true};
    a->state = inside                 ? ANSWER_IN_REASONING
               : form->reasoning.open ? ANSWER_START
                                      : ANSWER_IN_CONTENT;
    a->skip_blanks = inside;
    if (form->channels) {
        a->state = inside ? ANSWER_IN_MESSAGE : ANSWER_IN_HEADER;
        a->part = ANSWER_REASONING;
        a->skip_blanks = false;
    }
}

void answer_close(struct answer *a)
{
    free(a->held);
    *a = (struct answer){0};
}

void answer_drop(struct answer *a, size_t n)
{
    if (a->bytes == 0) /* nothing was held yet: held may be NULL */
        return;
    memmove(a->held, a->held + n, a->bytes - n);
    a->decided += n;
    a->bytes -= n;
    a->searched = 0;
}

/* Hands out the first n bytes and drops them. */
void answer_give(struct answer *a, enum answer_part part, size_t n)
{
    if (n > 0)
        a->sink(a->arg, &(struct answer_piece){
                            .part = part, .text = a->held, .bytes = n, .from = a->decided});
    a->front = a->front && (n == 0 || part != ANSWER_CONTENT);
    answer_drop(a, n);
}

/* Where the mark is, or SIZE_MAX. Bytes that were searched before are not searched again. */
static size_t find(struct answer *a, const char *mark)
{
    size_t n = strlen(mark), from = a->searched;
    if (a->bytes == 0)
        return SIZE_MAX;
    const char *at = memmem(a->held + from, a->bytes - from, mark, n);
    a->searched = a->bytes >= n ? a->bytes - n + 1 : 0;
    return at ? (size_t)(at - a->held) : SIZE_MAX;
}

/* Bytes at the end that may be the start of the mark. */
static size_t partial(const struct answer *a, const char *mark)
{
    size_t n = strlen(mark) - 1;
    for (n = n < a->bytes ? n : a->bytes; n > 0; n--)
        if (memcmp(a->held + a->bytes - n, mark, n) == 0)
            return n;
    return 0;
}

static void skip_blanks(struct answer *a)
{
    size_t n = 0;
    while (n < a->bytes && blank(a->held[n]))
        n++;
    answer_drop(a, n);
    a->skip_blanks = a->bytes == 0;
}

/* Each step returns whether the state changed, so that the rest is looked at again. */

/* Whether a text begins with the mark; *maybe: it is a part of the mark. */
static bool begins(const char *text, size_t bytes, const char *mark, bool *maybe)
{
    size_t n = strlen(mark), same = bytes < n ? bytes : n;
    bool equal = same == 0 || memcmp(text, mark, same) == 0;
    *maybe = *maybe || (equal && same < n);
    return equal && same == n;
}

/* An answer without reasoning may begin with the mark that closes it (MiniMax-M3). */
static bool at_start(struct answer *a, bool end)
{
    const char *const open = a->form.reasoning.open, *const close = a->form.reasoning.close;
    size_t blanks = 0;
    bool maybe = false;
    while (blanks < a->bytes && blank(a->held[blanks]))
        blanks++;
    const char *text = a->held + blanks;
    bool opened = begins(text, a->bytes - blanks, open, &maybe);
    bool closed = begins(text, a->bytes - blanks, close, &maybe);
    if (blanks > BLANKS_MAX || (!opened && !closed && (end || !maybe))) {
        a->state = ANSWER_IN_CONTENT;
        return true;
    }
    if (!opened && !closed)
        return false;
    answer_drop(a, blanks + strlen(opened ? open : close));
    a->state = opened ? ANSWER_IN_REASONING : ANSWER_IN_CONTENT;
    return a->skip_blanks = true;
}

/* Blanks at the end of the first n bytes, at most BLANKS_MAX. */
static size_t blanks_before(const struct answer *a, size_t n)
{
    size_t blanks = 0;
    while (blanks < n && blanks < BLANKS_MAX && blank(a->held[n - blanks - 1]))
        blanks++;
    return blanks;
}

/* Where a call begins, with or without its opening mark, before `to`; SIZE_MAX: nowhere. */
static size_t find_call(struct answer *a, size_t to)
{
    const char *const marks[] = {a->form.call.open, answer_bare_mark(&a->form.call)};
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < 2 && to > 0; i++) {
        bool marked = marks[i] && *marks[i];
        const char *at = marked ? memmem(a->held, to, marks[i], strlen(marks[i])) : NULL;
        if (at && (size_t)(at - a->held) < first) {
            first = (size_t)(at - a->held);
            a->bare = i == 1;
        }
    }
    return first;
}

/* Bytes at the end that may be the start of a call. */
static size_t partial_call(const struct answer *a)
{
    const char *bare = answer_bare_mark(&a->form.call), *open = a->form.call.open;
    size_t n = open && *open ? partial(a, open) : 0, m = bare ? partial(a, bare) : 0;
    return n > m ? n : m;
}

/* What is before the call is handed out, but for the blanks. */
static bool begin_call(struct answer *a, enum answer_part part, size_t at)
{
    a->lead = blanks_before(a, at);
    answer_give(a, part, at - a->lead);
    a->thinking = part == ANSWER_REASONING;
    a->closed = false;
    a->state = ANSWER_IN_CALL;
    return true;
}

static bool in_reasoning(struct answer *a, bool end)
{
    const char *close = a->form.reasoning.close;
    size_t at = find(a, close), n = at != SIZE_MAX ? at : a->bytes, call = find_call(a, n);
    if (call != SIZE_MAX)
        return begin_call(a, ANSWER_REASONING, call);
    if (at == SIZE_MAX && !end) {
        size_t closing = partial(a, close), calling = partial_call(a);
        n -= closing > calling ? closing : calling;
    }
    size_t kept = n - blanks_before(a, n);
    answer_give(a, ANSWER_REASONING, kept);
    if (at == SIZE_MAX)
        return false;
    answer_drop(a, at - kept + strlen(close));
    a->state = ANSWER_IN_CONTENT;
    return a->skip_blanks = true;
}

/* The first mark of the content that has not occurred before: where it is, and *bytes of it.
 * SIZE_MAX: none; then *bytes is the number of bytes at the end that may be the start of one. */
static size_t find_content_mark(struct answer *a, size_t *bytes, bool **seen)
{
    const char *const marks[] = {a->form.content.open, a->form.content.close, a->form.tail};
    bool *const flags[] = {&a->begun, &a->ended, &a->tailed};
    size_t first = SIZE_MAX, held = 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!marks[i] || *flags[i])
            continue;
        const char *at = memmem(a->held, a->bytes, marks[i], strlen(marks[i]));
        size_t part = partial(a, marks[i]);
        held = part > held ? part : held;
        if (!at || (size_t)(at - a->held) >= first)
            continue;
        first = (size_t)(at - a->held);
        *bytes = strlen(marks[i]);
        *seen = flags[i];
    }
    if (first == SIZE_MAX)
        *bytes = held;
    return first;
}

/* Where a call without marks begins, before `to`; SIZE_MAX: nowhere. *maybe: more bytes may change
 * that. It is the first of an answer, or behind a mark of its content. */
static size_t find_unmarked(const struct answer *a, size_t to, bool *maybe)
{
    size_t blanks = 0;
    while (blanks < to && blank(a->held[blanks]))
        blanks++;
    if (!a->front || !answer_is_unmarked(&a->form.call) || blanks == to || blanks > BLANKS_MAX)
        return SIZE_MAX;
    int found = answer_call_begins(&a->form, a->held + blanks, to - blanks);
    *maybe = found < 0;
    return found > 0 ? blanks : SIZE_MAX;
}

/* Where a call may follow, blanks are held: those before a call are no content. */
static bool in_content(struct answer *a, bool end)
{
    size_t mark_bytes;
    bool *seen = NULL;
    size_t mark = find_content_mark(a, &mark_bytes, &seen), n = mark != SIZE_MAX ? mark : a->bytes;
    bool maybe = false;
    size_t call = find_call(a, n);
    call = call != SIZE_MAX ? call : find_unmarked(a, n, &maybe);
    if (call != SIZE_MAX)
        return begin_call(a, ANSWER_CONTENT, call);
    if (maybe && mark == SIZE_MAX && !end)
        return false;
    if (mark == SIZE_MAX && !end) {
        size_t calling = partial_call(a);
        n -= calling > mark_bytes ? calling : mark_bytes;
        n -= a->form.call.open ? blanks_before(a, n) : 0;
    }
    answer_give(a, ANSWER_CONTENT, n);
    if (mark == SIZE_MAX)
        return false;
    answer_drop(a, mark_bytes);
    return a->front = *seen = true;
}

bool answer_give_calls(struct answer *a, json_t *calls)
{
    const json_t *call;
    size_t i;
    json_array_foreach(calls, i, call) a->sink(
        a->arg,
        &(struct answer_piece){.part = ANSWER_CALL,
                               .from = a->decided,
                               .name = json_string_value(json_object_get(call, "name")),
                               .arguments = json_string_value(json_object_get(call, "arguments")),
                               .id = json_string_value(json_object_get(call, "id"))});
    json_decref(calls);
    return calls != NULL;
}

/* What is held up to the end of the call: the first byte of the calls, that after them, and of
 * all. SIZE_MAX: no end yet. */
struct extent {
    size_t from, to, all;
};

/* The mark that ends a call; without one the next call, or the answer's end. */
static size_t find_close(struct answer *a, size_t from, bool end)
{
    const struct answer_call *f = &a->form.call;
    if (f->close[0])
        return find(a, f->close);
    a->searched = a->searched > from ? a->searched : from < a->bytes ? from : a->bytes;
    size_t at = find(a, f->open);
    return at == SIZE_MAX && end ? a->bytes : at;
}

static struct extent extent_of(struct answer *a, bool end)
{
    const struct answer_call *f = &a->form.call;
    struct extent x = {a->lead, a->bytes, SIZE_MAX};
    if (answer_is_unmarked(f)) { /* all that is left of the answer */
        x.all = end ? a->bytes : SIZE_MAX;
        return x;
    }
    if (a->bare) {
        a->closed = a->closed || end || find(a, f->call_close) != SIZE_MAX;
        if (!a->closed)
            return x;
        size_t marked, n = answer_bare_end(f, a->held + x.from, a->bytes - x.from, end, &marked);
        if (n != SIZE_MAX)
            x = (struct extent){x.from, x.from + n - marked, x.from + n};
        return x;
    }
    x.from += strlen(f->open);
    size_t at = find_close(a, x.from, end);
    if (at != SIZE_MAX)
        x = (struct extent){x.from, at, at + strlen(f->close)};
    return x;
}

/* Thoughts that are closed after a call only mention it. One that is in thoughts which are never
 * closed was meant. */
static bool still_thinking(struct answer *a, bool end, bool *decided)
{
    const char *close = a->form.reasoning.close;
    bool closed = find(a, close) != SIZE_MAX;
    a->searched = end ? 0 : a->searched; /* next for the end of the call */
    *decided = closed || end || a->bytes > ANSWER_CALL_BYTES_MAX;
    return closed || a->bytes > ANSWER_CALL_BYTES_MAX;
}

/* The mark is thoughts, like all around it. */
static bool no_call_but_thoughts(struct answer *a)
{
    const struct answer_call *f = &a->form.call;
    a->state = ANSWER_IN_REASONING;
    answer_give(a, ANSWER_REASONING, a->lead + strlen(a->bare ? f->call_open : f->open));
    return true;
}

/* Whether only the closing mark tells that a call is whole: one that was cut off would lack
 * arguments, or a part of its name. */
static bool needs_close(const struct answer_call *f)
{
    return f->kind == ANSWER_PAIRS && !*f->call_close;
}

/* The bound is one of bytes in the answer, not of those that happen to be held: the parts do not
 * depend on the pieces in which the text arrives. */
static bool in_call(struct answer *a, bool end)
{
    bool decided = true;
    if (a->thinking && still_thinking(a, end, &decided))
        return no_call_but_thoughts(a);
    if (!decided)
        return false;
    struct extent x = extent_of(a, end);
    size_t all = x.all != SIZE_MAX ? x.all : a->bytes;
    bool too_long = all - a->lead > ANSWER_CALL_BYTES_MAX;
    if (x.all == SIZE_MAX && !end && !too_long)
        return false;
    json_t *calls = too_long || (x.all == SIZE_MAX && needs_close(&a->form.call))
                        ? NULL
                        : answer_calls(&a->form, a->held + x.from, x.to - x.from);
    if (!calls && a->thinking)
        return no_call_but_thoughts(a);
    a->state = ANSWER_IN_CONTENT;
    if (!calls && answer_is_unmarked(&a->form.call)) { /* content, in which marks are left out */
        a->front = false;
        return true;
    }
    if (answer_give_calls(a, calls)) {
        answer_drop(a, all);
        a->skip_blanks = true;
    } else {
        answer_give(a, ANSWER_CONTENT,
                    too_long ? utf8_complete_prefix(a->held, a->lead + ANSWER_CALL_BYTES_MAX)
                             : all);
    }
    return true;
}

static bool step(struct answer *a, bool end)
{
    if (a->skip_blanks)
        skip_blanks(a);
    if (a->bytes == 0)
        return false;
    switch (a->state) {
    case ANSWER_START: return at_start(a, end);
    case ANSWER_IN_REASONING: return in_reasoning(a, end);
    case ANSWER_IN_CONTENT: return in_content(a, end);
    case ANSWER_IN_HEADER: return answer_in_header(a, end);
    case ANSWER_IN_MESSAGE: return answer_in_message(a, end);
    default: return in_call(a, end);
    }
}

int answer_take(struct answer *a, const char *text, size_t bytes, bool end)
{
    do {
        size_t n = bytes < PIECE_MAX ? bytes : utf8_complete_prefix(text, PIECE_MAX);
        if (a->bytes + n > a->capacity) {
            size_t capacity = a->bytes + n < 512 ? 512 : 2 * (a->bytes + n);
            capacity = capacity < ANSWER_BYTES_MAX ? capacity : ANSWER_BYTES_MAX;
            char *longer = realloc(a->held, capacity);
            if (!longer)
                return -1;
            a->held = longer;
            a->capacity = capacity;
        }
        sl_assert(a->bytes + n <= a->capacity);
        if (n > 0)
            memcpy(a->held + a->bytes, text, n);
        a->bytes += n;
        text += n;
        bytes -= n;
        while (step(a, end && bytes == 0))
            ;
    } while (bytes > 0);
    return 0;
}
