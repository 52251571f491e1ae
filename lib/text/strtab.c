/* SPDX-License-Identifier: Apache-2.0 */
/* Puts and finds strings in a hash table with a random seed. */
#include "lib/text/strtab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "lib/base/assert.h"

/* A seed of the table's own, so that no file can contain strings that all collide. */
static uint64_t random_seed(void)
{
    uint64_t seed;
    ssize_t got = getrandom(&seed, sizeof seed, 0); /* whole and without EINTR: up to 256 bytes */
    sl_assert(got == (ssize_t)sizeof seed);
    return seed;
}

bool strtab_init(struct strtab *t, size_t capacity)
{
    size_t slots = 8;
    while (slots < capacity + capacity / 2 + 1)
        slots *= 2;
    *t = (struct strtab){
        .slots = calloc(slots, sizeof *t->slots), .mask = slots - 1, .seed = random_seed()};
    return t->slots != NULL;
}

void strtab_free(struct strtab *t)
{
    free(t->slots);
    *t = (struct strtab){0};
}

static struct strtab_slot *find(const struct strtab *t, const char *text, size_t bytes)
{
    size_t i = (size_t)XXH3_64bits_withSeed(text, bytes, t->seed) & t->mask;
    for (;; i = (i + 1) & t->mask) {
        struct strtab_slot *s = &t->slots[i];
        if (!s->text || (s->bytes == bytes && memcmp(s->text, text, bytes) == 0))
            return s;
    }
}

uint32_t strtab_put(struct strtab *t, const char *text, uint32_t bytes, uint32_t value)
{
    sl_assert(value != STRTAB_NONE);
    struct strtab_slot *s = find(t, text, bytes);
    if (s->text)
        return s->value;
    sl_assert(t->used < t->mask); /* one slot stays free, so that find() terminates */
    *s = (struct strtab_slot){.text = text, .bytes = bytes, .value = value};
    t->used++;
    return STRTAB_NONE;
}

uint32_t strtab_get(const struct strtab *t, const char *text, size_t bytes)
{
    if (!t->slots)
        return STRTAB_NONE;
    const struct strtab_slot *s = find(t, text, bytes);
    return s->text ? s->value : STRTAB_NONE;
}
