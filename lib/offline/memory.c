/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of a program's memory: its default, and what of it is free. */
#include "lib/memory/available.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/offline/internal.h"
#include "lib/tensor/precision.h"

/* Left for the system and other programs by the default bound: a share of what is available, at
 * least so many bytes, at most half of it. */
#define RESERVE_SHARE 8
#define RESERVE_MIN   (256 * MIB)

/* Mapped, every precision of an expert that was made stays in memory. */
static uint64_t mapped_bytes(const struct offline_model *m)
{
    const struct model_index *index = m->index;
    uint64_t bytes = 2 * index->dense_bytes + index->expert_slot_bytes;
    for (enum precision p = PRECISION_NATIVE + 1; p < PRECISION__COUNT; p++)
        for (uint32_t l = 0; l < index->hparams.layers; l++)
            bytes += index->hparams.experts * offline_expert_bytes(m, l, 0, p, QUANT_CHANNEL);
    return bytes;
}

uint64_t offline_with_fixed(uint64_t bytes)
{
    uint64_t all = bytes + OFFLINE_PROGRAM_BYTES;
    return all + all / (PAGE_BYTES / sizeof(uint64_t) - 1) + 1;
}

uint64_t offline_default_memory(uint64_t needed, bool mappable, uint64_t available)
{
    if (mappable && (available == UINT64_MAX || needed <= available / 4 * 3))
        return 0;
    uint64_t reserve = available / RESERVE_SHARE;
    reserve = reserve > RESERVE_MIN ? reserve : RESERVE_MIN;
    uint64_t bytes = available - (reserve < available / 2 ? reserve : available / 2);
    return bytes > 0 ? bytes : 1; /* a full cgroup is a bound, too */
}

uint64_t offline_choose_memory(const struct offline_model *m)
{
    char bound[16], experts[16];
    bool store = m->index->stripe_count > 0;
    uint64_t available = memory_available(), needed = mapped_bytes(m);
    if (store && available == UINT64_MAX) /* not known: as much as it can use */
        return offline_with_fixed(needed);
    uint64_t bytes = offline_default_memory(needed, !store, available);
    if (bytes > 0)
        log_info("at most %s of memory are used (--memory); the experts have %s",
                 bytes_format(bytes, bound), bytes_format(m->index->expert_slot_bytes, experts));
    return bytes;
}

int offline_too_small(const struct offline_model *m, uint64_t needed, const char *what,
                      struct error *error)
{
    char given[32], wanted[32];
    bytes_format(m->budget, given);
    bytes_format(needed, wanted);
    if (strcmp(given, wanted) == 0) { /* rounded, they are the same */
        snprintf(given, sizeof given, "%" PRIu64 " bytes", m->budget);
        snprintf(wanted, sizeof wanted, "%" PRIu64 " bytes", needed);
    }
    return error_set(error, ERR_MEMORY_TOO_SMALL, "memory of %s is too small: %s need %s", given,
                     what, wanted);
}

uint64_t offline_budget(const struct offline_model *m)
{
    return m->budget;
}

uint64_t offline_fixed_bytes(uint64_t budget)
{
    uint64_t page_tables =
        budget / (PAGE_BYTES / sizeof(uint64_t)); /* the kernel's: 8 bytes for a page */
    return OFFLINE_PROGRAM_BYTES + page_tables;
}

uint64_t offline_free_bytes(const struct offline_model *m)
{
    struct mallinfo2 heap = mallinfo2(); /* of all threads; nothing else is large */
    uint64_t used = offline_fixed_bytes(m->budget) + heap.arena + heap.hblkhd;
    return m->budget > used ? m->budget - used : 0;
}

uint64_t offline_heap_bytes(void)
{
    return mallinfo2().fordblks;
}

void offline_slots_resize(struct offline_model *m, uint64_t bytes)
{
    slots_resize(m->slots, align_down(bytes, PAGE_BYTES));
}

void offline_slots_from(struct offline_model *m, uint32_t layer)
{
    if (m->slots)
        slots_from(m->slots, layer);
}

uint64_t offline_slots_bytes(const struct offline_model *m)
{
    return m->slots ? slots_bytes(m->slots) : 0;
}

int offline_reserve(struct offline_model *m, uint64_t bytes, const char *what, struct error *error)
{
    if (!m->slots)
        return 0;
    uint64_t free_bytes = offline_free_bytes(m);
    if (bytes > free_bytes)
        return offline_too_small(m, m->budget - free_bytes + bytes, what, error);
    if (offline_slots_bytes(m) > free_bytes - bytes)
        offline_slots_resize(m, free_bytes - bytes);
    return 0;
}
