/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: text -> special tokens and the stretches between them -> words -> merging. Words of
 * byte-level BPE are matches of regular expressions (words.c), and merging starts with bytes. Words
 * of the tokenizers of characters (SentencePiece BPE: Kudo & Richardson 2018) start at spaces, and
 * merging starts with characters. */
#include "lib/model/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/internal.h"
#include "lib/model/tokenizer/words.h"
#include "lib/text/nfc.h"
#include "lib/text/utf8.h"

/* A character that is not a token: finally emitted as bytes. Neither a token id nor TOKEN_NONE. */
#define SYMBOL_UNKNOWN (TOKEN_NONE - 1)

/* A piece of a word during merging; initially one per byte or character. A doubly linked list in an
 * array. */
struct symbol {
    uint32_t id; /* TOKEN_NONE: merged into the previous one */
    uint32_t prev, next;
    uint32_t at; /* offset in the word */
};

/* State of one encoding; arrays grow as needed. */
struct encoder {
    const struct tokenizer *t;
    struct text_range *special;       /* of the sanitised text */
    size_t special_count, special_at; /* ranges before special_at end before the current position */
    uint32_t *ids;
    size_t count, capacity;
    struct symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* candidates: rank << 32 | position of the left symbol; smallest first */
    size_t heap_count, heap_capacity;
    struct error *error;
};

/* Makes capacity for `want` elements, at least doubling the array. */
static int reserve(struct encoder *e, void *array, size_t *capacity, size_t want, size_t each)
{
    if (want <= *capacity)
        return 0;
    size_t n = *capacity ? *capacity : 256;
    while (n < want)
        n *= 2;
    void *old, *bigger;
    memcpy(&old, array, sizeof old); /* array is the address of a pointer of any type */
    bigger = reallocarray(old, n, each);
    if (!bigger)
        return error_set(e->error, ERR_NO_MEMORY, "out of memory (encoding)");
    memcpy(array, &bigger, sizeof bigger);
    *capacity = n;
    return 0;
}

static int emit(struct encoder *e, uint32_t id)
{
    if (reserve(e, &e->ids, &e->capacity, e->count + 1, sizeof *e->ids))
        return -1;
    e->ids[e->count++] = id;
    return 0;
}

static int heap_push(struct encoder *e, uint64_t candidate)
{
    if (reserve(e, &e->heap, &e->heap_capacity, e->heap_count + 1, sizeof *e->heap))
        return -1;
    size_t i = e->heap_count++;
    for (; i > 0 && e->heap[(i - 1) / 2] > candidate; i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = candidate;
    return 0;
}

static uint64_t heap_pop(struct encoder *e)
{
    uint64_t min = e->heap[0], last = e->heap[--e->heap_count];
    size_t i = 0, n = e->heap_count;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && e->heap[child + 1] < e->heap[child])
            child++;
        if (last <= e->heap[child])
            break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = last;
    return min;
}

static const struct merge_slot *find_merge(const struct tokenizer_blob *b, uint32_t left,
                                           uint32_t right)
{
    const struct merge_slot *slots = blob_merges(b);
    uint32_t mask = b->merge_slots - 1;
    for (uint32_t i = merge_hash(left, right) & mask;; i = (i + 1) & mask) {
        if (slots[i].left == TOKEN_NONE)
            return NULL;
        if (slots[i].left == left && slots[i].right == right)
            return &slots[i];
    }
}

static uint32_t find_word(const struct tokenizer_blob *b, const char *text, size_t bytes)
{
    const uint32_t *words = blob_words(b);
    uint32_t mask = b->word_slots - 1;
    for (uint32_t i = piece_hash(text, bytes) & mask; words[i] != TOKEN_NONE; i = (i + 1) & mask) {
        size_t n;
        const char *piece = blob_piece(b, words[i], &n);
        if (n == bytes && memcmp(piece, text, n) == 0)
            return words[i];
    }
    return TOKEN_NONE;
}

/* The merge of the symbol at `at` with the next one; NULL: none. */
static const struct merge_slot *merge_at(const struct encoder *e, uint32_t at)
{
    const struct symbol *s = &e->symbols[at];
    if (s->id == TOKEN_NONE || s->next == TOKEN_NONE)
        return NULL;
    return find_merge(e->t->blob, s->id, e->symbols[s->next].id);
}

static int propose(struct encoder *e, uint32_t at)
{
    const struct merge_slot *m = at == TOKEN_NONE ? NULL : merge_at(e, at);
    return m ? heap_push(e, (uint64_t)m->rank << 32 | at) : 0;
}

/* Merges pairs in order of rank, leftmost first, until there are no more. A candidate in the heap
 * may be stale; it is valid only if the pair at its position still has its rank. */
static int merge_symbols(struct encoder *e)
{
    while (e->heap_count > 0) {
        uint64_t candidate = heap_pop(e);
        uint32_t at = (uint32_t)candidate;
        const struct merge_slot *m = merge_at(e, at);
        if (!m || m->rank != candidate >> 32)
            continue;
        struct symbol *left = &e->symbols[at], *right = &e->symbols[left->next];
        left->id = m->merged;
        left->next = right->next;
        right->id = TOKEN_NONE;
        if (left->next != TOKEN_NONE)
            e->symbols[left->next].prev = at;
        if (propose(e, left->prev) || propose(e, at))
            return -1;
    }
    return 0;
}

/* Merges the first n symbols, whose ids and offsets are set, and emits the result. */
static int encode_symbols(struct encoder *e, const char *text, size_t bytes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        e->symbols[i].prev = i > 0 ? i - 1 : TOKEN_NONE;
        e->symbols[i].next = i + 1 < n ? i + 1 : TOKEN_NONE;
    }
    e->heap_count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (propose(e, i))
            return -1;
    if (merge_symbols(e))
        return -1;
    for (uint32_t i = 0; i != TOKEN_NONE; i = e->symbols[i].next) {
        const struct symbol *s = &e->symbols[i];
        if (s->id != SYMBOL_UNKNOWN) {
            if (emit(e, s->id))
                return -1;
            continue;
        }
        size_t end = s->next == TOKEN_NONE ? bytes : e->symbols[s->next].at;
        for (size_t at = s->at; at < end; at++)
            if (emit(e, e->t->blob->byte_ids[(unsigned char)text[at]]))
                return -1;
    }
    return 0;
}

static int encode_word(void *arg, const char *text, size_t bytes)
{
    struct encoder *e = arg;
    const struct tokenizer_blob *b = e->t->blob;
    uint32_t n = 0;
    if (b->flags & TOKENIZER_WHOLE_WORDS) {
        uint32_t id = find_word(b, text, bytes);
        if (id != TOKEN_NONE)
            return emit(e, id);
    }
    if (reserve(e, &e->symbols, &e->symbol_capacity, bytes, sizeof *e->symbols))
        return -1;
    for (uint32_t i = 0; i < bytes; i++) { /* at most 3 * TOKENIZER_TEXT_MAX */
        uint32_t id = b->byte_ids[(unsigned char)text[i]];
        if (id != TOKEN_NONE)
            e->symbols[n++] = (struct symbol){.id = id, .at = i};
    }
    return n ? encode_symbols(e, text, bytes, n) : 0;
}

/* Bytes of a character of valid UTF-8, from its first byte. */
static size_t character_bytes(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static int encode_spm_word(struct encoder *e, const char *text, size_t bytes)
{
    uint32_t n = 0;
    if (reserve(e, &e->symbols, &e->symbol_capacity, bytes, sizeof *e->symbols))
        return -1;
    for (size_t at = 0, size; at < bytes; at += size) {
        size = character_bytes(text[at]);
        uint32_t id = find_word(e->t->blob, text + at, size);
        e->symbols[n++] =
            (struct symbol){.id = id == TOKEN_NONE ? SYMBOL_UNKNOWN : id, .at = (uint32_t)at};
    }
    return encode_symbols(e, text, bytes, n);
}

/* If no token crosses the start of a word (TOKENIZER_CUT_AT_SPACE), words are merged one by one:
 * the same tokens with less memory. */
static int encode_spm_stretch(struct encoder *e, const char *text, size_t bytes)
{
    bool cut = (e->t->blob->flags & TOKENIZER_CUT_AT_SPACE) != 0;
    for (size_t at = 0, to; at < bytes; at = to) {
        to = cut ? at + 1 : bytes;
        while (to < bytes && (text[to] != ' ' || text[to - 1] == ' '))
            to++;
        if (encode_spm_word(e, text + at, to - at))
            return -1;
    }
    return 0;
}

/* A run of newlines is a token if there is one of that length. Merges do not cross its ends. */
static int encode_lines(struct encoder *e, const char *text, size_t bytes)
{
    for (size_t at = 0, to; at < bytes; at = to) {
        bool newlines = text[at] == '\n';
        for (to = at + 1; to < bytes && (text[to] == '\n') == newlines; to++)
            ;
        uint32_t id = newlines ? find_word(e->t->blob, text + at, to - at) : TOKEN_NONE;
        if (id != TOKEN_NONE ? emit(e, id) : encode_spm_stretch(e, text + at, to - at))
            return -1;
    }
    return 0;
}

/* Normalisation does not cross a special token: each stretch is a text of its own, as in the
 * reference tokenizers. */
static int encode_words(struct encoder *e, const char *text, size_t bytes)
{
    char *normal = NULL;
    if ((e->t->blob->flags & TOKENIZER_NFC) != 0 && nfc_may_change(text, bytes)) {
        normal = nfc(text, bytes, &bytes);
        if (!normal)
            return error_set(e->error, ERR_NO_MEMORY, "out of memory (encoding)");
    }
    int status = words_split(e->t->words, normal ? normal : text, bytes, encode_word, e, e->error);
    free(normal);
    return status;
}

static int encode_stretch(struct encoder *e, const char *text, size_t bytes)
{
    switch (e->t->blob->model) {
    case TOKENIZER_SPM: return encode_spm_stretch(e, text, bytes);
    case TOKENIZER_CHARACTERS: return encode_lines(e, text, bytes);
    default: return encode_words(e, text, bytes);
    }
}

/* specials[lo, hi) have the same first `depth` bytes: the first one whose next byte is >= c. */
static uint32_t narrow(const struct tokenizer_blob *b, uint32_t lo, uint32_t hi, size_t depth,
                       unsigned c)
{
    const uint32_t *specials = blob_specials(b);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        size_t n;
        const char *piece = blob_piece(b, specials[mid], &n);
        if (n <= depth || (unsigned char)piece[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Whether the text [from, to) of a special token is that token. Positions do not decrease from call
 * to call. */
static bool may_be_special(struct encoder *e, uint32_t id, size_t from, size_t to)
{
    if (blob_types(e->t->blob)[id] == TOKEN_USER_DEFINED)
        return true;
    while (e->special_at < e->special_count && e->special[e->special_at].to <= from)
        e->special_at++;
    if (e->special_at == e->special_count)
        return false;
    const struct text_range *r = &e->special[e->special_at];
    return r->from <= from && to <= r->to;
}

/* The longest special token at this position, or TOKEN_NONE. Narrows the sorted list byte by
 * byte. */
static uint32_t special_at(struct encoder *e, const char *text, size_t at, size_t bytes,
                           size_t *length)
{
    const struct tokenizer_blob *b = e->t->blob;
    uint32_t lo = 0, hi = b->specials, found = TOKEN_NONE;
    for (size_t depth = 0; at + depth < bytes; depth++) {
        unsigned c = (unsigned char)text[at + depth];
        lo = narrow(b, lo, hi, depth, c);
        hi = narrow(b, lo, hi, depth, c + 1);
        if (lo == hi)
            break;
        /* The shortest token with this prefix is the first one. */
        uint32_t id = blob_specials(b)[lo];
        size_t n;
        blob_piece(b, id, &n);
        if (n == depth + 1 && may_be_special(e, id, at, at + n)) {
            found = id;
            *length = n;
        }
    }
    return found;
}

/* TOKENIZER_ONE_SPACE: shortens [start, end) by spaces at the ends of a text. */
static void trim(const struct encoder *e, const char *text, size_t *start, size_t *end, bool first,
                 bool last)
{
    if ((e->t->blob->flags & TOKENIZER_ONE_SPACE) == 0)
        return;
    while (first && *start < *end && text[*start] == ' ')
        ++*start;
    while (last && *start < *end && text[*end - 1] == ' ')
        --*end;
}

static bool strips(const struct encoder *e, uint32_t id)
{
    static const char *const none[] = {
#define STRIP_NONE(piece) piece,
#define STRIP_AFTER(...)
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    size_t bytes;
    const char *piece = blob_piece(e->t->blob, id, &bytes);
    if ((e->t->blob->flags & TOKENIZER_STRIP_AFTER) == 0 || !tokenizer_is_control(e->t, id))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        if (strlen(none[i]) == bytes && memcmp(none[i], piece, bytes) == 0)
            return false;
    return true;
}

/* After a control token a new text starts, with its space prefix if configured: the space
 * overwrites the byte before it, which is no longer needed. */
static int encode_text(struct encoder *e, char *text, size_t bytes)
{
    bool prefix = (e->t->blob->flags & TOKENIZER_SPACE_PREFIX) != 0, new_text = false;
    size_t start = 0, length = 0;
    for (size_t at = 0; at <= bytes; at++) {
        uint32_t id = at < bytes ? special_at(e, text, at, bytes, &length) : TOKEN_NONE;
        if (id == TOKEN_NONE && at < bytes)
            continue;
        size_t end = at;
        trim(e, text, &start, &end, new_text, at == bytes || tokenizer_is_control(e->t, id));
        if (new_text && prefix && end > start)
            text[--start] = ' ';
        if (encode_stretch(e, text + start, end - start) || (at < bytes && emit(e, id)))
            return -1;
        if (at == bytes)
            break;
        new_text = tokenizer_is_control(e->t, id);
        start = at + length;
        while (start < bytes && strips(e, id) && memchr(" \t\n\v\f\r", text[start], 6))
            start++;
        at = start - 1;
    }
    return 0;
}

/* Copies the text with valid UTF-8 and moves the ranges along. A border is one of characters, too.
 * Returns the number of bytes. */
static size_t sanitise(struct encoder *e, const char *text, size_t bytes, char *out)
{
    size_t at = 0, n = 0;
    for (size_t i = 0; i < e->special_count; i++) {
        struct text_range *r = &e->special[i];
        size_t from = r->from < bytes ? r->from : bytes, to = r->to < bytes ? r->to : bytes;
        n += utf8_sanitise(text + at, from - at, out + n);
        r->from = (uint32_t)n;
        n += utf8_sanitise(text + from, to - from, out + n);
        r->to = (uint32_t)n;
        at = to;
    }
    return n + utf8_sanitise(text + at, bytes - at, out + n);
}

static void shift_ranges(struct encoder *e)
{
    for (size_t i = 0; i < e->special_count; i++) {
        e->special[i].from++;
        e->special[i].to++;
    }
}

/* The borders of ranges up to byte `from` of a text that is shortened move to byte `to`. */
static void move_borders(struct encoder *e, size_t *borders, size_t from, size_t to)
{
    for (; *borders < 2 * e->special_count; ++*borders) {
        struct text_range *r = &e->special[*borders / 2];
        uint32_t *b = *borders % 2 ? &r->to : &r->from;
        if (*b > from)
            break;
        *b = (uint32_t)to;
    }
}

/* U+2581 is a space. */
static size_t join_blocks(struct encoder *e, char *text, size_t bytes)
{
    size_t n = 0, borders = 0;
    for (size_t i = 0; i < bytes; n++) {
        move_borders(e, &borders, i, n);
        bool space = bytes - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        text[n] = space ? ' ' : text[i];
        i += space ? 3 : 1;
    }
    move_borders(e, &borders, bytes, n);
    return n;
}

/* Bytes of the longest user-defined token at this position; 0: none. */
static size_t user_token_at(struct encoder *e, const char *text, size_t at, size_t bytes)
{
    size_t length = 0, count = e->special_count;
    e->special_count = 0; /* no control tokens */
    uint32_t id = special_at(e, text, at, bytes, &length);
    e->special_count = count;
    return id == TOKEN_NONE ? 0 : length;
}

/* Runs of spaces are one, and none at the start; those of user-defined tokens stay. */
static size_t join_spaces(struct encoder *e, char *text, size_t bytes)
{
    size_t n = 0, borders = 0;
    for (size_t i = 0; i < bytes;) {
        size_t token = user_token_at(e, text, i, bytes);
        move_borders(e, &borders, i, n);
        if (token > 0) {
            memmove(text + n, text + i, token);
            for (size_t end = i + token; i < end; n++)
                move_borders(e, &borders, i++, n);
        } else {
            char c = text[i++];
            if (c != ' ' || (n > 0 && text[n - 1] != ' '))
                text[n++] = c;
        }
    }
    move_borders(e, &borders, bytes, n);
    return n;
}

/* Converts text to the input of SentencePiece, in place, and moves the ranges along: U+2581 becomes
 * a space, runs of spaces become one (TOKENIZER_ONE_SPACE), and a space is prepended if configured.
 * The buffer must have one more byte. Returns the number of bytes. */
static size_t spm_text(struct encoder *e, char *text, size_t bytes)
{
    size_t length, n = join_blocks(e, text, bytes);
    if (e->t->blob->flags & TOKENIZER_ONE_SPACE)
        n = join_spaces(e, text, n);
    if (n == 0 || (e->t->blob->flags & TOKENIZER_SPACE_PREFIX) == 0)
        return n;
    uint32_t id = special_at(e, text, 0, n, &length);
    if (id != TOKEN_NONE && tokenizer_is_control(e->t, id))
        return n;
    memmove(text + 1, text, n);
    text[0] = ' ';
    shift_ranges(e);
    return n + 1;
}

/* The encoder moves its ranges: it has its own. */
static int copy_ranges(struct encoder *e, const struct text_ranges *special)
{
    if (!special || special->count == 0)
        return 0;
    e->special = reallocarray(NULL, special->count, sizeof *e->special);
    if (!e->special)
        return -1;
    memcpy(e->special, special->at, special->count * sizeof *e->special);
    e->special_count = special->count;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                     const struct text_ranges *special, uint32_t **ids, size_t *count,
                     struct error *error)
{
    OBJ_CHECK(t, TOKENIZER_OBJ);
    *ids = NULL;
    *count = 0;
    if (bytes > TOKENIZER_TEXT_MAX)
        return error_set(error, ERR_BAD_INPUT, "the text is longer than %u MiB",
                         TOKENIZER_TEXT_MAX >> 20);
    struct encoder e = {.t = t, .error = error};
    char *clean = malloc(3 * bytes + 2);
    int status = -1;
    if (!clean || copy_ranges(&e, special) != 0 ||
        reserve(&e, &e.ids, &e.capacity, 1, sizeof *e.ids)) {
        error_set(error, ERR_NO_MEMORY, "out of memory (encoding)");
    } else {
        size_t n = sanitise(&e, text, bytes, clean);
        status = encode_text(&e, clean, t->words ? n : spm_text(&e, clean, n));
    }
    free(clean);
    free(e.special);
    free(e.symbols);
    free(e.heap);
    if (status) {
        free(e.ids);
        return -1;
    }
    *ids = e.ids;
    *count = e.count;
    return 0;
}
