/* SPDX-License-Identifier: Apache-2.0 */
/* Moves memory between experts and kept prefixes, a step at a time. */
#include "lib/policy/reuse/balance.h"

#include <math.h>

void balance_prefix(struct balance *b, double steps, uint64_t ns)
{
    double step = steps > 0 ? ceil(steps) : 0;
    if (step <= BALANCE_MOST)
        b->saved_ns[(uint32_t)step] += (double)ns;
}

void balance_experts(struct balance *b, uint64_t stall_ns, double share)
{
    b->stall_ns += (double)stall_ns * (share < 0 ? 0 : share > 1 ? 1 : share);
}

/* By the steps after `from`, up to `to`. */
static double saved_ns(const struct balance *b, uint32_t from, uint32_t to)
{
    double ns = 0;
    for (uint32_t i = from + 1; i <= to && i <= BALANCE_MOST; i++)
        ns += b->saved_ns[i];
    return ns;
}

double balance_step_ns(const struct balance *b)
{
    double most = 0;
    for (uint32_t n = 1; n <= BALANCE_MOST; n++)
        most = fmax(most, saved_ns(b, 0, n) / n);
    return most;
}

/* The number of steps that saves most in all; of equal ones the smallest. */
static uint32_t best(const struct balance *b, uint32_t most)
{
    uint32_t found = 0;
    double highest = 0;
    for (uint32_t n = 1; n <= most; n++) {
        double value = saved_ns(b, 0, n) - n * b->stall_ns;
        if (value > highest) {
            highest = value;
            found = n;
        }
    }
    return found;
}

static bool is_worth_more(const struct balance *b, uint32_t wanted)
{
    double saved = saved_ns(b, b->steps, wanted);
    return saved > 0 && saved >= b->factor * (wanted - b->steps) * b->stall_ns;
}

static bool is_worth_less(const struct balance *b, uint32_t wanted)
{
    double lost = saved_ns(b, wanted, b->steps);
    return b->stall_ns > 0 && b->decisions >= BALANCE_LEARNS &&
           (b->steps - wanted) * b->stall_ns >= b->factor * lost;
}

static void move(struct balance *b, int direction)
{
    if (b->direction == -direction)
        b->factor *= 2;
    b->direction = direction;
    b->steps += (uint32_t)direction;
}

static void fade(struct balance *b)
{
    b->factor = fmax(BALANCE_FACTOR, b->factor * BALANCE_CALM);
    for (uint32_t i = 0; i <= BALANCE_MOST; i++)
        b->saved_ns[i] *= BALANCE_KEEP;
    b->stall_ns *= BALANCE_KEEP;
    b->decisions += b->decisions < BALANCE_LEARNS;
}

uint32_t balance_decide(struct balance *b, uint32_t has, uint32_t most)
{
    most = most < BALANCE_MOST ? most : BALANCE_MOST;
    uint32_t more = best(b, most), less = best(b, b->steps < most ? b->steps : most);
    b->factor = fmax(BALANCE_FACTOR, b->factor);
    if (b->steps > most)
        b->steps = most;
    else if (more > b->steps && has >= b->steps && is_worth_more(b, more))
        move(b, 1);
    else if (less < b->steps && is_worth_less(b, less))
        move(b, -1);
    fade(b);
    return b->steps;
}
