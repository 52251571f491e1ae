/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles one copy of shm/directory/entry.c (ENTRY_SOURCE: the real file or a patched one) with
 * every atomic operation replaced by the model checker's, under distinct names (ENTRY_VARIANT). */
#include <stdatomic.h>

#define JOIN2(a, b)         a##_##b
#define JOIN(a, b)          JOIN2(a, b)
#define NAME(function)      JOIN(ENTRY_VARIANT, function)
#define entry_read          NAME(read_word)
#define entry_reserve       NAME(reserve)
#define entry_shard_done    NAME(shard_done)
#define entry_shard_fail    NAME(shard_fail)
#define entry_wants_shard   NAME(wants_shard)
#define entry_shard_pending NAME(shard_pending)
#define entry_doom          NAME(doom)
#define entry_reset         NAME(reset)
#define entry_evict         NAME(evict)
#define entry_pin           NAME(pin)
#define entry_unpin         NAME(unpin)
#define entry_sweep         NAME(sweep)

#include "tests/unit/shm/directory/entry_ops.h"

#undef atomic_load_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#define atomic_load_explicit(word, order)                               shim_load(word)
#define atomic_compare_exchange_weak_explicit(word, seen, next, ok, no) shim_cas(word, seen, next)
#define atomic_fetch_or_explicit(word, bits, order)                     shim_or(word, bits)
#define atomic_fetch_and_explicit(word, bits, order)                    shim_and(word, bits)

#include ENTRY_SOURCE

const struct entry_ops JOIN(entry_ops, ENTRY_VARIANT) = {
    .read_word = entry_read,
    .reserve = entry_reserve,
    .done = entry_shard_done,
    .fail = entry_shard_fail,
    .wants = entry_wants_shard,
    .pending = entry_shard_pending,
    .doom = entry_doom,
    .reset = entry_reset,
    .evict = entry_evict,
    .pin = entry_pin,
    .unpin = entry_unpin,
    .sweep = entry_sweep,
};
