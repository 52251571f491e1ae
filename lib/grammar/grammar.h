/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that keep to a grammar: a JSON Schema or a GBNF text becomes an automaton over bytes that
 * says which bytes may follow.
 *
 * The automaton has stacks for recursion and counters for repetition: a string of at most 65,536
 * characters costs one counter. All stacks that the text so far allows are followed side by side.
 *
 * It fails closed: what a schema demands and the automaton cannot enforce is ERR_BAD_INPUT. It may
 * be stricter than the schema (README.md lists where), never weaker. */
#ifndef SLUICE_GRAMMAR_GRAMMAR_H
#define SLUICE_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct grammar_limits {
    size_t text_bytes;    /* of the schema or the GBNF text */
    uint32_t expressions; /* made by the parser, rules included: bounds its time, too */
    uint32_t nodes;       /* of the automaton, about 24 bytes each */
    uint32_t tables;      /* branches by byte, 1 KiB each */
    uint32_t repeat;      /* the highest count in GBNF's {m,n} and a pattern's */
    uint32_t depth;       /* of stacks: objects, arrays and rules in each other */
};

#define GRAMMAR_LIMITS_DEFAULT                                                                     \
    {                                                                                              \
        .text_bytes = (size_t)1 << 20, .expressions = 400000, .nodes = 400000, .tables = 4096,     \
        .repeat = 65536, .depth = 200                                                              \
    }

/* Immutable after it was made: any number of states and threads may use it. */
struct grammar;

/* What a request gives, and where in its answer the text of the grammar begins: at once, or behind
 * marks. The text up to a mark is free, and a mark is its text or the control token of that name;
 * parts of it may be control tokens, too.
 *
 *   close             the answer begins with reasoning, which ends with `close`
 *   open and close    it may begin with reasoning, namely with `open`; otherwise there is none
 *   trigger           behind the reasoning the text is free up to `trigger`, and may end before it
 *
 * Behind `close` at most two line feeds may come first. */
enum grammar_kind { GRAMMAR_NONE, GRAMMAR_JSON_SCHEMA, GRAMMAR_GBNF };
#define GRAMMAR_TEXT_BYTES_MAX (1u << 20)
#define GRAMMAR_MARK_BYTES_MAX 64

struct grammar_source {
    enum grammar_kind kind;
    const char *text; /* UTF-8 */
    size_t bytes;
    const char *open, *close, *trigger; /* of 1 to GRAMMAR_MARK_BYTES_MAX bytes; NULL: none */
};

/* A control token has this byte before and behind its name as its text in a vocabulary. No UTF-8
 * has it, so that a control token fits only where a mark or GBNF's <name> asks for it. */
#define GRAMMAR_CONTROL_BYTE 0xFF

/* 0, or -1 with the errors below; also ERR_BAD_INPUT for `open` without `close` and for marks that
 * are too long. */
int grammar_compile(const struct grammar_source *source, const struct grammar_limits *limits,
                    struct grammar **g, struct error *error);

/* All return 0, or -1 with ERR_BAD_INPUT (the text of a schema's error has the JSON path and the
 * keyword; of GBNF's the line) or ERR_NO_MEMORY. The caller frees *g. `limits` may be NULL. */
int grammar_from_schema(const char *text, size_t bytes, const struct grammar_limits *limits,
                        struct grammar **g, struct error *error);
int grammar_from_gbnf(const char *text, size_t bytes, const struct grammar_limits *limits,
                      struct grammar **g, struct error *error);
void grammar_free(struct grammar *g); /* NULL is allowed */

/* The name of the rule with which the text of a GBNF begins, borrowed from it or static. 0, or -1
 * with the errors above. */
int grammar_gbnf_root(const char *text, size_t bytes, const char **name, size_t *name_bytes,
                      struct error *error);

/* Bytes that the automaton takes; for tests and for budgets. */
size_t grammar_memory_bytes(const struct grammar *g);

/* How far a text has come. Its size is fixed (GRAMMAR_STATE_BYTES_MAX at most), and no call but
 * start and clone allocates. The grammar must outlive it. */
struct grammar_state;
#define GRAMMAR_STATE_BYTES_MAX ((size_t)1 << 20)

struct grammar_state *grammar_start(const struct grammar *g); /* NULL: no memory */
struct grammar_state *grammar_clone(const struct grammar_state *s);
void grammar_stop(struct grammar_state *s); /* NULL is allowed */

/* Takes one more byte. False: it does not fit, and the state is as before. */
bool grammar_accept(struct grammar_state *s, uint8_t byte);
/* Takes a text as far as it fits, and returns how many bytes that were. */
size_t grammar_accept_text(struct grammar_state *s, const char *text, size_t bytes);

/* Whether the text so far is complete, and whether bytes may follow. */
bool grammar_is_end(const struct grammar_state *s);
bool grammar_continues(const struct grammar_state *s);

/* The bytes that may follow, as a set of 256 bits. */
void grammar_next_bytes(const struct grammar_state *s, uint64_t set[4]);

/* Writes the bytes that are the only continuation, at most `max`, and returns their number; the
 * state does not change. Where the text may end, nothing is forced. *whole (NULL: not asked for):
 * the text is complete behind them, and nothing may follow. */
size_t grammar_forced(struct grammar_state *s, char *out, size_t max, bool *whole);

#endif
