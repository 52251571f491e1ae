/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where the messages of a prompt meet, by the control tokens of its template. */
#include <string.h>

#include "lib/policy/reuse/reuse.h"

#define ROLE_TOKENS 3u /* between two control tokens of one place, with the second one */
#define FIRST       2u

struct prompt {
    bool (*is_control)(const void *arg, uint32_t token);
    const void *arg;
    const uint32_t *tokens;
};

/* Whether messages meet at a token, which is not the first one: no control token is shortly before
 * it. */
static bool meet(const struct prompt *p, uint32_t at)
{
    if (!p->is_control(p->arg, p->tokens[at]))
        return false;
    for (uint32_t i = 1; i <= ROLE_TOKENS && i <= at; i++)
        if (p->is_control(p->arg, p->tokens[at - i]))
            return false;
    return true;
}

/* The first ones, REUSE_BRANCH_LEAST apart; returns their number. */
static uint32_t find_first(const struct prompt *p, uint32_t count, uint32_t *at)
{
    uint32_t n = 0, before = 0;
    for (uint32_t i = REUSE_BRANCH_LEAST; i < count && n < FIRST; i++)
        if (i - before >= REUSE_BRANCH_LEAST && meet(p, i))
            before = at[n++] = i;
    return n;
}

/* The last ones, from the end. */
static uint32_t find_last(const struct prompt *p, uint32_t count, uint32_t *at)
{
    uint32_t n = 0;
    for (uint32_t i = count; i-- > 1 && n < REUSE_TURNS_MAX - FIRST;)
        if ((n == 0 || at[n - 1] - i >= REUSE_BRANCH_LEAST) && meet(p, i))
            at[n++] = i;
    return n;
}

void reuse_turns(bool (*is_control)(const void *arg, uint32_t token), const void *arg,
                 const uint32_t *tokens, uint32_t count, uint32_t at[REUSE_TURNS_MAX])
{
    const struct prompt p = {is_control, arg, tokens};
    uint32_t last[REUSE_TURNS_MAX];
    memset(at, 0, REUSE_TURNS_MAX * sizeof *at);
    uint32_t n = find_first(&p, count, at), m = find_last(&p, count, last);
    for (; m > 0; m--)
        if (n == 0 || last[m - 1] >= at[n - 1] + REUSE_BRANCH_LEAST ||
            (m == 1 && last[0] > at[n - 1]))
            at[n++] = last[m - 1];
}

uint32_t reuse_response(uint32_t prompt, const uint32_t turns[REUSE_TURNS_MAX])
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < REUSE_TURNS_MAX && turns[i] > 0; i++)
        if (turns[i] < prompt)
            last = turns[i];
    if (last > 0 && prompt - last <= REUSE_RESPONSE_MOST)
        return last;
    return prompt > REUSE_BEFORE_END ? prompt - REUSE_BEFORE_END : 0;
}
