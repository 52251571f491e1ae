/* SPDX-License-Identifier: Apache-2.0 */
/* A model that writes by a script: answers, or which token follows which. Its only layer with
 * weights has attention that is the same to all positions, so that an edge may require that a token
 * occurred before. */
#ifndef SLUICE_TESTS_SCENARIO_SCRIPTED_H
#define SLUICE_TESTS_SCENARIO_SCRIPTED_H

#include <limits.h>
#include <stddef.h>

/* In addition to one per byte. There are no merges: a prompt has a TEXT never as its token, a
 * CONTROL token where the template writes it. The text of a USER token (defined by the user) is in
 * answers.
 *
 * Where a grammar leaves one continuation, its tokens are those of that text alone but for the last
 * one: bytes, from which nothing follows, and USER tokens. So a text that is forced must be one
 * USER token, which is then left out, or more of them that the script writes, too. */
enum script_kind { SCRIPT_TEXT, SCRIPT_CONTROL, SCRIPT_USER };
struct script_token {
    const char *text;
    enum script_kind kind;
};

/* What must have occurred. Of the edges from a token the last one that holds counts. */
enum script_seen { SCRIPT_ALWAYS, SCRIPT_FIRST, SCRIPT_BOTH };
struct script_edge {
    const char *from, *to; /* a token, or one byte */
    enum script_seen seen;
};

/* What is written after `start`, the last byte (or token) of a prompt: the pieces, then the token
 * `eos`. A piece is one of `tokens`, or becomes a token of its bytes, which need not be UTF-8. The
 * next token depends on the last one only: a piece occurs once among all answers of a model. */
#define SCRIPT_PIECES_MAX 24
struct script_answer {
    const char *start, *pieces[SCRIPT_PIECES_MAX]; /* up to NULL */
};

struct script {
    const struct script_token *tokens;          /* up to one without text */
    const struct script_edge *edges;            /* the same; in order of `seen`; NULL: none */
    const struct script_answer *answers;        /* up to one without start; NULL: none */
    const char *first, *second;                 /* tokens of `seen`; NULL: none */
    const char *eos, *eot;                      /* NULL: no such key */
    const char *chat_template, *tools_template; /* NULL: none */
    unsigned context;                           /* tokens; 0: 4096 */
    const char *missing;                        /* bytes without a token; NULL: none */
};

/* Writes the model to `name` in the directory of the test case and returns its path. Prompts have
 * 20 to 120 tokens. */
void scripted_model_make(char path[PATH_MAX], const char *name, const struct script *s);
/* Writes it to this path, also outside of a test case. */
void scripted_model_write(const char *path, const struct script *s);

#endif
