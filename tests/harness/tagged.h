/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers that fault: of host memory that the core shares with a device of tests, and must not
 * read itself. */
#ifndef SLUICE_TESTS_HARNESS_TAGGED_H
#define SLUICE_TESTS_HARNESS_TAGGED_H

#include <stdint.h>

/* Not an address that can be mapped: neither canonical on x86-64 nor a tag that aarch64 ignores. */
#define HOST_TAG ((uint64_t)1 << 52)

/* NULL stays NULL. */
static inline void *tagged(const void *memory)
{
    return memory ? (void *)((uintptr_t)memory + HOST_TAG) : (void *)0;
}

static inline void *untagged(const void *memory)
{
    uintptr_t at = (uintptr_t)memory;
    return (void *)(at & HOST_TAG ? at - HOST_TAG : at);
}

#endif
