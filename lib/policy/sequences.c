/* SPDX-License-Identifier: Apache-2.0 */
/* Gives each running sequence a place in tables of a fixed size. */
#include "lib/policy/sequences.h"

#include "lib/base/assert.h"

static bool runs(const struct sequences *s, uint32_t place, uint32_t number)
{
    return s->place[place].state == SEQUENCE_RUNS && s->place[place].number == number;
}

static uint32_t look_up(const struct sequences *s, uint32_t number)
{
    if (runs(s, s->recent, number))
        return s->recent;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++)
        if (runs(s, i, number))
            return i;
    return SEQUENCE_NONE;
}

uint32_t sequences_find(struct sequences *s, uint32_t number)
{
    uint32_t place = look_up(s, number);
    if (place == SEQUENCE_NONE)
        return place;
    s->place[place].used = ++s->calls;
    s->recent = place;
    return place;
}

bool sequences_ended(const struct sequences *s, uint32_t number)
{
    if (look_up(s, number) != SEQUENCE_NONE) /* it ended, and was started again */
        return false;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++)
        if (s->place[i].state == SEQUENCE_ENDED && s->place[i].number == number)
            return true;
    return false;
}

/* The place in that state that was used longest ago; SEQUENCE_NONE: fewer than `at_least`. */
static uint32_t oldest(const struct sequences *s, enum sequence_state state, uint32_t at_least)
{
    uint32_t found = SEQUENCE_NONE, count = 0;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        if (s->place[i].state != state)
            continue;
        count++;
        if (found == SEQUENCE_NONE || s->place[i].used < s->place[found].used)
            found = i;
    }
    return count >= at_least ? found : SEQUENCE_NONE;
}

uint32_t sequences_start(struct sequences *s, uint32_t number, bool *displaced)
{
    sl_assert(look_up(s, number) == SEQUENCE_NONE);
    uint32_t place = oldest(s, SEQUENCE_ENDED, 2);
    if (place == SEQUENCE_NONE)
        place = oldest(s, SEQUENCE_FREE, 1);
    if (place == SEQUENCE_NONE)
        place = oldest(s, SEQUENCE_ENDED, 1);
    *displaced = place == SEQUENCE_NONE;
    if (*displaced)
        place = oldest(s, SEQUENCE_RUNS, 1);
    s->place[place].state = SEQUENCE_RUNS;
    s->place[place].number = number;
    s->place[place].used = ++s->calls;
    s->recent = place;
    return place;
}

uint32_t sequences_end(struct sequences *s, uint32_t number)
{
    uint32_t place = look_up(s, number);
    if (place == SEQUENCE_NONE)
        return place;
    s->place[place].state = SEQUENCE_ENDED;
    s->place[place].used = ++s->calls;
    return place;
}
