/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-capacity hash table from byte strings (borrowed) to numbers: duplicate names, key lookup,
 * token lookup during tokenizer build. The hash is seeded at random: strings from a file cannot be
 * chosen to collide. Private memory only. */
#ifndef SLUICE_TEXT_STRTAB_H
#define SLUICE_TEXT_STRTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRTAB_NONE UINT32_MAX

struct strtab_slot {
    const char *text; /* NULL: free */
    uint32_t bytes;
    uint32_t value;
};

struct strtab {
    struct strtab_slot *slots;
    size_t mask;
    size_t used;
    uint64_t seed; /* of the hash; random */
};

/* Capacity for at least `capacity` strings. False when out of memory. */
bool strtab_init(struct strtab *t, size_t capacity);
void strtab_free(struct strtab *t);

/* Adds text -> value. Returns STRTAB_NONE when the text was new, else the existing value
 * (unchanged). Exceeding the capacity is a caller defect (asserted). */
uint32_t strtab_put(struct strtab *t, const char *text, uint32_t bytes, uint32_t value);

/* The value of text, or STRTAB_NONE. */
uint32_t strtab_get(const struct strtab *t, const char *text, size_t bytes);

#endif
