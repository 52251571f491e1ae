/* SPDX-License-Identifier: Apache-2.0 */
/* A model that writes by a script: which token follows which. Its only layer with weights has attention that
 * is the same to all positions, so that an edge may require that a token occurred before. */
#ifndef SLUICE_TESTS_SCENARIO_SCRIPTED_H
#define SLUICE_TESTS_SCENARIO_SCRIPTED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct
    script_token { /* in addition to one per byte; text without merges: a prompt has it only as a control token */
    const char *text; /* ASCII */
    bool control;
};

/* What must have occurred. Of the edges from a token the last one that holds counts. */
enum script_seen { SCRIPT_ALWAYS, SCRIPT_FIRST, SCRIPT_BOTH };
struct script_edge {
    const char *from, *to; /* a token, or one byte */
    enum script_seen seen;
};

struct script {
    const struct script_token *tokens;          /* up to one without text */
    const struct script_edge *edges;            /* the same; in order of `seen` */
    const char *first, *second;                 /* tokens of `seen`; NULL: none */
    const char *eos, *eot;                      /* NULL: no such key */
    const char *chat_template, *tools_template; /* NULL: none */
};

/* Writes the model to `name` in the directory of the test case and returns its path. Prompts have 20 to 120 tokens. */
void scripted_model_make(char path[PATH_MAX], const char *name, const struct script *s);

#endif
