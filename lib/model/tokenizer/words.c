/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the expressions of a pre-tokenizer, and splits a text into words with them. */
#include "lib/model/tokenizer/words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/newer.h"
#include "lib/text/utf8.h"

#define WORDS_OBJ 0x574f5244u /* "WORD" */

/* Limits for expressions that backtrack excessively; real text needs a few steps per byte. */
#define MATCH_LIMIT (64u << 20)
#define DEPTH_LIMIT (1u << 20)
#define HEAP_KIB    (64u << 10)

struct words {
    uint32_t magic;
    uint32_t count;
    pcre2_code *passes[TOKENIZER_EXPRESSIONS_MAX];
    pcre2_match_context *limits;
};

/* One call of words_split. */
struct split {
    const struct words *w;
    pcre2_match_data *match;
    const char *subject; /* what the expressions see */
    const char *text;    /* what it is about: as many bytes */
    int (*each)(void *arg, const char *word, size_t bytes);
    void *arg;
    struct error *error;
};

/* White_Space of Unicode, which \s means in the expressions. PCRE2's own \s has U+180E as well,
 * which is no space since Unicode 6.3. */
#define SPACES "\\t-\\r\\x{85}\\p{Z}"

/* The expression with \s and \S spelt out. The caller frees it; NULL: out of memory. */
static char *spell_out(const char *expression)
{
    char *out = NULL;
    size_t bytes = 0;
    bool in_class = false;
    FILE *f = open_memstream(&out, &bytes);
    if (!f)
        return NULL;
    for (const char *c = expression; *c; c++) {
        bool escape = *c == '\\';
        if (escape && c[1] == 's')
            fprintf(f, in_class ? "%s" : "[%s]", SPACES);
        else if (escape && c[1] == 'S' && !in_class)
            fprintf(f, "[^%s]", SPACES);
        else
            fprintf(f, "%.*s", escape ? 2 : 1, c);
        in_class = *c == '[' || (in_class && *c != ']');
        c += escape;
    }
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        free(out);
        return NULL;
    }
    return out;
}

static int compile(struct words *w, const char *expression, struct error *error)
{
    int code;
    PCRE2_SIZE where;
    char *spelt = spell_out(expression);
    if (!spelt)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tokenizer)");
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)spelt, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
    free(spelt);
    if (!made)
        return error_set(error, ERR_FAILED, "pre-tokenizer expression '%.40s': PCRE2 error %d",
                         expression, code);
    (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower */
    w->passes[w->count++] = made;
    return 0;
}

struct words *words_open(uint32_t row, struct error *error)
{
    struct words *w = calloc(1, sizeof *w);
    if (w)
        w->limits = pcre2_match_context_create(NULL);
    if (!w || !w->limits) {
        error_set(error, ERR_NO_MEMORY, "out of memory (tokenizer)");
        free(w);
        return NULL;
    }
    w->magic = WORDS_OBJ;
    pcre2_set_match_limit(w->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(w->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(w->limits, HEAP_KIB);
    for (uint32_t i = 0; i < TOKENIZER_EXPRESSIONS_MAX; i++) {
        const char *expression = pretokenizer_expression(row, i);
        if (expression && compile(w, expression, error)) {
            words_close(w);
            return NULL;
        }
    }
    return w;
}

void words_close(struct words *w)
{
    if (!w)
        return;
    OBJ_CHECK(w, WORDS_OBJ);
    for (uint32_t i = 0; i < w->count; i++)
        pcre2_code_free(w->passes[i]);
    pcre2_match_context_free(w->limits);
    w->magic = 0;
    free(w);
}

/* The first match of a pass at or after `start`. *from == *to == bytes: no more matches. */
static int next_match(struct split *s, uint32_t pass, const char *text, size_t bytes, size_t start,
                      size_t *from, size_t *to)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    const pcre2_code *code = s->w->passes[pass];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = pcre2_match(code, subject, bytes, start, options, s->match, s->w->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter uses the heap instead of a stack */
        rc = pcre2_match(code, subject, bytes, start, options | PCRE2_NO_JIT, s->match,
                         s->w->limits);
    *from = *to = bytes;
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[120] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return error_set(s->error, ERR_BAD_INPUT, "the text cannot be split into words: %s", why);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match);
    sl_assert(span[0] >= start && span[1] > span[0] && span[1] <= bytes);
    *from = span[0];
    *to = span[1];
    return 0;
}

/* Text between two matches is a part of its own. A part is a text of its own for the next pass: an
 * expression does not look beyond its ends. */
static int split(struct split *s, uint32_t pass, const char *text, size_t bytes)
{
    if (pass == s->w->count)
        return s->each(s->arg, s->text + (text - s->subject), bytes);
    for (size_t at = 0, from, to; at < bytes; at = to) {
        if (next_match(s, pass, text, bytes, at, &from, &to))
            return -1;
        if (from > at && split(s, pass + 1, text + at, from - at))
            return -1;
        if (to > from && split(s, pass + 1, text + from, to - from))
            return -1;
    }
    return 0;
}

int words_split(const struct words *w, const char *text, size_t bytes,
                int (*each)(void *arg, const char *word, size_t bytes), void *arg,
                struct error *error)
{
    OBJ_CHECK(w, WORDS_OBJ);
    char *known = NULL;
    if (!utf8_valid(text, bytes)) /* next_match does not let PCRE2 check the whole rest each time */
        return error_set(error, ERR_BAD_INPUT, "the text cannot be split into words: no UTF-8");
    bool memory = newer_known(text, bytes, &known);
    struct split s = {.w = w, .each = each, .arg = arg, .error = error};
    s.text = text;
    s.subject = known ? known : text;
    s.match = memory ? pcre2_match_data_create(1, NULL) : NULL;
    int status = s.match ? split(&s, 0, s.subject, bytes)
                         : error_set(error, ERR_NO_MEMORY, "out of memory (encoding)");
    pcre2_match_data_free(s.match);
    free(known);
    return status;
}
