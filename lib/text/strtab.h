/* A fixed-capacity hash table from byte strings (borrowed) to numbers: duplicate names, key
 * look-up, token look-up while the tokenizer's tables are built. Private memory only. */
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
};

/* Room for at least `capacity` strings. False when memory is short. */
bool strtab_init(struct strtab *t, size_t capacity);
void strtab_free(struct strtab *t);

/* Adds text -> value. Returns STRTAB_NONE when it was new, else the value already there
 * (unchanged). More strings than the capacity are a defect of the caller (asserted). */
uint32_t strtab_put(struct strtab *t, const char *text, uint32_t bytes, uint32_t value);

/* The value of text, or STRTAB_NONE. */
uint32_t strtab_get(const struct strtab *t, const char *text, size_t bytes);

#endif
