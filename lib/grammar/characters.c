/* SPDX-License-Identifier: Apache-2.0 */
/* Machines over bytes for characters: classes in UTF-8, the characters of a JSON string with their
 * escapes, and keys that differ from given ones. All are deterministic. */
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/build.h"

/* `count` continuation bytes of any value. */
static uint32_t following(struct build *b, unsigned count)
{
    if (count == 0)
        return NODE_RETURN;
    if (!b->following[count]) {
        uint64_t bits[4] = {0};
        for (unsigned i = 0x80; i <= 0xBF; i++)
            set_add(bits, (uint8_t)i);
        b->following[count] = build_set(b, bits, following(b, count - 1));
    }
    return b->following[count];
}

struct ranges {
    const struct char_range *at;
    uint32_t count;
};

/* How much of [first, last] the ranges have: 0 nothing, 1 a part, 2 all (in one range). */
static int covered(struct ranges r, uint32_t first, uint32_t last)
{
    for (uint32_t i = 0; i < r.count; i++) {
        if (r.at[i].first <= first && last <= r.at[i].last)
            return 2;
        if (r.at[i].first <= last && first <= r.at[i].last)
            return 1;
    }
    return 0;
}

/* What follows when `more` continuation bytes are missing and the bits so far make `base`;
 * characters below `min` have a shorter form. */
static uint32_t rest(struct build *b, struct ranges r, unsigned more, uint32_t base, uint32_t min)
{
    uint32_t last = base + (1u << (6 * more)) - 1, first = base > min ? base : min;
    if (last < first)
        return NODE_NEVER;
    int part = covered(r, first, last);
    if (part == 0)
        return NODE_NEVER;
    if (part == 2 && first == base)
        return following(b, more);
    struct byte_table table = {{0}};
    for (unsigned i = 0; i < 64; i++)
        table.next[0x80 + i] = rest(b, r, more - 1, base + (i << (6 * (more - 1))), min);
    return build_table(b, &table);
}

static void lead_bytes(struct build *b, struct ranges r, struct byte_table *table)
{
    for (uint32_t c = 0; c < 0x80; c++)
        table->next[c] = covered(r, c, c) ? NODE_RETURN : NODE_NEVER;
    for (uint32_t c = 0xC2; c <= 0xDF; c++)
        table->next[c] = rest(b, r, 1, (c & 0x1F) << 6, 0x80);
    for (uint32_t c = 0xE0; c <= 0xEF; c++)
        table->next[c] = rest(b, r, 2, (c & 0x0F) << 12, 0x800);
    for (uint32_t c = 0xF0; c <= 0xF4; c++)
        table->next[c] = rest(b, r, 3, (c & 0x07) << 18, 0x10000);
}

static uint32_t remembered(const struct build *b, struct ranges r)
{
    for (uint32_t i = 0; i < b->classes_count; i++) {
        const struct class_memo *m = &b->classes[i];
        if (m->count == r.count &&
            memcmp(b->pool->ranges + m->first, r.at, r.count * sizeof(*r.at)) == 0)
            return m->entry;
    }
    return 0;
}

uint32_t build_class(struct build *b, uint32_t first, uint32_t count)
{
    struct ranges r = {b->pool->ranges + first, count};
    uint32_t entry = remembered(b, r);
    if (entry)
        return entry;
    if (r.at[count - 1].last < 0x80) {
        uint64_t bits[4] = {0};
        for (uint32_t c = 0; c < 0x80; c++)
            if (covered(r, c, c))
                set_add(bits, (uint8_t)c);
        entry = build_set(b, bits, NODE_RETURN);
    } else {
        struct byte_table table = {{0}};
        lead_bytes(b, r, &table);
        entry = build_table(b, &table);
    }
    if (build_grow(b, &b->classes, &b->classes_room, b->classes_count, sizeof(*b->classes), 4096))
        b->classes[b->classes_count++] = (struct class_memo){first, count, entry};
    return entry;
}

static uint32_t one_of(struct build *b, const char *bytes, uint32_t next)
{
    uint64_t bits[4] = {0};
    for (; *bytes; bytes++)
        set_add(bits, (uint8_t)*bytes);
    return build_set(b, bits, next);
}

static void lead_to(struct byte_table *table, const char *bytes, uint32_t next)
{
    for (; *bytes; bytes++)
        table->next[(uint8_t)*bytes] = next;
}

#define HEX "0123456789abcdefABCDEF"
/* Characters that a JSON string has without an escape. */
static const struct char_range plain[] = {
    {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xD7FF}, {0xE000, CODEPOINT_MAX}};
static const struct ranges plain_ranges = {plain, sizeof(plain) / sizeof(plain[0])};

/* A surrogate is half of a pair: without the other half it is no character. */
uint32_t build_json_char(struct build *b)
{
    if (b->json_char)
        return b->json_char;
    uint32_t hex2 = one_of(b, HEX, one_of(b, HEX, NODE_RETURN)), hex3 = one_of(b, HEX, hex2);
    uint32_t low = build_byte(b, 'u', one_of(b, "dD", one_of(b, "cdefCDEF", hex2)));
    low = build_byte(b, '\\', low);
    uint32_t high = one_of(b, HEX, one_of(b, HEX, low));
    struct byte_table third = {{0}}, second = {{0}}, escape = {{0}}, first = {{0}};
    lead_to(&third, "01234567", hex2);
    lead_to(&third, "89abAB", high);
    lead_to(&second, HEX, hex3);
    lead_to(&second, "dD", build_table(b, &third));
    lead_to(&escape, "\"\\/bfnrt", NODE_RETURN);
    lead_to(&escape, "u", build_table(b, &second));
    lead_bytes(b, plain_ranges, &first);
    lead_to(&first, "\\", build_table(b, &escape));
    return b->json_char = build_table(b, &first);
}

/* ---- keys that differ from given ones ----
 * A key has one spelling only, that of json_dumps: otherwise "\u0061" would be another key than
 * "a". */
enum key_state {
    KEY_CHAR, /* between characters */
    KEY_ONE,  /* this many continuation bytes are missing */
    KEY_TWO,
    KEY_THREE,
    KEY_E0, /* after this byte */
    KEY_ED,
    KEY_F0,
    KEY_F4,
    KEY_ESCAPE,
    KEY_U,
    KEY_U0,
    KEY_U00,
    KEY_U000,
    KEY_U001,
    KEY_STATES,
    KEY_END = KEY_STATES,
    KEY_NEVER
};

static enum key_state key_char(uint8_t c)
{
    if (c == '"')
        return KEY_END;
    if (c == '\\')
        return KEY_ESCAPE;
    if (c < 0x80)
        return c >= 0x20 ? KEY_CHAR : KEY_NEVER;
    if (c < 0xC2 || c > 0xF4)
        return KEY_NEVER;
    if (c < 0xE0)
        return KEY_ONE;
    if (c < 0xF0)
        return c == 0xE0 ? KEY_E0 : c == 0xED ? KEY_ED : KEY_TWO;
    return c == 0xF0 ? KEY_F0 : c == 0xF4 ? KEY_F4 : KEY_THREE;
}

static enum key_state key_escape(enum key_state state, uint8_t c)
{
    switch (state) {
    case KEY_ESCAPE: return c == 'u' ? KEY_U : c && strchr("\"\\bfnrt", c) ? KEY_CHAR : KEY_NEVER;
    case KEY_U: return c == '0' ? KEY_U0 : KEY_NEVER;
    case KEY_U0: return c == '0' ? KEY_U00 : KEY_NEVER;
    case KEY_U00: return c == '0' ? KEY_U000 : c == '1' ? KEY_U001 : KEY_NEVER;
    case KEY_U000: /* \b \t \n \f \r have short forms */
        return c && strchr("01234567BEF", c) ? KEY_CHAR : KEY_NEVER;
    default: return c && strchr("0123456789ABCDEF", c) ? KEY_CHAR : KEY_NEVER;
    }
}

static enum key_state key_step(enum key_state state, uint8_t c)
{
    static const struct {
        uint8_t first, last, then;
    } follow[] = {[KEY_ONE] = {0x80, 0xBF, KEY_CHAR},  [KEY_TWO] = {0x80, 0xBF, KEY_ONE},
                  [KEY_THREE] = {0x80, 0xBF, KEY_TWO}, [KEY_E0] = {0xA0, 0xBF, KEY_ONE},
                  [KEY_ED] = {0x80, 0x9F, KEY_ONE},    [KEY_F0] = {0x90, 0xBF, KEY_TWO},
                  [KEY_F4] = {0x80, 0x8F, KEY_TWO}};
    if (state == KEY_CHAR)
        return key_char(c);
    if (state >= KEY_ESCAPE)
        return key_escape(state, c);
    if (c < follow[state].first || c > follow[state].last)
        return KEY_NEVER;
    return (enum key_state)follow[state].then;
}

/* The machines of all states, which lead to each other: their nodes come first. */
static void make_keys(struct build *b)
{
    struct byte_table none = {{0}};
    for (int s = 0; s < KEY_STATES; s++)
        b->key[s] = build_table(b, &none);
    if (b->failed != ERR_NONE)
        return;
    for (int s = 0; s < KEY_STATES; s++)
        for (unsigned c = 0; c < 256; c++) {
            enum key_state then = key_step((enum key_state)s, (uint8_t)c);
            uint32_t node = then == KEY_NEVER ? NODE_NEVER
                            : then == KEY_END ? NODE_RETURN
                                              : b->key[then];
            b->g->tables[b->g->nodes[b->key[s]].a].next[c] = node;
        }
}

struct sorted_words {
    const char *text;
    const struct word *at;
};

static uint8_t word_byte(struct sorted_words w, uint32_t i, uint32_t position)
{
    return (uint8_t)w.text[w.at[i].offset + position];
}

/* Words [first, last) agree in their first `position` bytes. A key that leaves all of them is free;
 * one that ends where a word ends is the word. */
static uint32_t avoid(struct build *b, struct sorted_words w, uint32_t first, uint32_t last,
                      uint32_t position, enum key_state state)
{
    uint32_t node = b->key[state], ends = 0;
    for (; first + ends < last && w.at[first + ends].bytes == position; ends++)
        ;
    if (ends)
        node = build_node(b, (struct node){.op = OP_UNLESS, .byte = '"', .a = node});
    for (uint32_t i = first + ends; i < last;) {
        uint8_t byte = word_byte(w, i, position);
        uint32_t to = i;
        while (to < last && word_byte(w, to, position) == byte)
            to++;
        enum key_state then = key_step(state, byte);
        if (then < KEY_STATES) {
            uint32_t next = avoid(b, w, i, to, position + 1, then);
            node = build_node(
                b, (struct node){.op = OP_UNLESS, .byte = byte, .a = node, .next = next});
        }
        i = to;
    }
    return node;
}

uint32_t build_other_key(struct build *b, uint32_t first, uint32_t count)
{
    if (!b->key[0])
        make_keys(b);
    if (b->failed != ERR_NONE)
        return NODE_NEVER;
    struct sorted_words w = {b->pool->text, count ? b->pool->words + first : NULL};
    return avoid(b, w, 0, count, 0, KEY_CHAR);
}
