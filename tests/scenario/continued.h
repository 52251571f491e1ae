/* SPDX-License-Identifier: Apache-2.0 */
/* Models made for the test whose sequences have a state: the same text when compute is killed, and
 * when a prompt continues an earlier one. */
#ifndef SLUICE_TESTS_SCENARIO_CONTINUED_H
#define SLUICE_TESTS_SCENARIO_CONTINUED_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/harness/harness.h"

#define CONTINUED_MS 120000

/* A tiny model of Q8_0 with these keys of synth, up to a NULL, in the directory of the test
 * case. */
void continued_make(char path[PATH_MAX], const char *const keys[]);
/* `sluice inspect` states this about it. */
void continued_inspect(const char *path, const char *want);

/* Bytes that are reserved for keys, values and states. */
uint64_t continued_planned(struct engine *e);
/* With the memory that experts do not need, which kept ones may have. */
uint64_t continued_most(struct engine *e);

/* Kills compute and waits for its successor. */
void continued_kill(struct engine *e, pid_t pid);

struct continued {
    unsigned prompt; /* test_prompt */
    size_t tokens;
    const struct text *want;
};

/* The text, with a kill after so many tokens (0: none), or when compute is at a point of its
 * code. */
void continued_after(struct engine *e, const struct continued *c, size_t tokens, const char *what);
void continued_at(struct engine *e, const struct continued *c, const char *point, int passes);

/* Prompts that share only a beginning, as when a template changes the end of a conversation:
 * `rounds` of them on an engine with the options `reusing`, each but the first with reused_min or
 * more tokens reused, have the text that they have on an engine with the options `alone`. c->want
 * is not used. */
struct continued_turns {
    struct engine *(*start)(const char *const options[]);
    const char *const *alone, *const *reusing;
    size_t rounds;
    uint64_t reused_min;
};
void continued_turns(const struct continued_turns *t, const struct continued *c);

#endif
