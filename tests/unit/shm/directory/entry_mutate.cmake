# SPDX-License-Identifier: Apache-2.0
# Makes patched copies of shm/directory/entry.c: cmake -DIN=shm/directory/entry.c -DOUT=DIR -P entry_mutate.cmake
# Every patch must find its text exactly once, or the build fails: a mutant that is no mutant proves nothing.
file(READ "${IN}" original)

function(mutant name from to)
  string(FIND "${original}" "${from}" first)
  string(FIND "${original}" "${from}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${name}: its text is not in ${IN} exactly once:\n${from}")
  endif()
  string(REPLACE "${from}" "${to}" text "${original}")
  if(text STREQUAL original)
    message(FATAL_ERROR "mutant ${name} changes nothing")
  endif()
  file(WRITE "${OUT}/entry_${name}.c" "${text}")
endfunction()

mutant(evict_pinned
  "entry_state_of(seen) != ENTRY_READY || (seen & PINS_MASK) != 0"
  "entry_state_of(seen) != ENTRY_READY")
mutant(done_revives
  "entry_state_of(seen) == ENTRY_LOADING && entry_pending_of(next) == 0"
  "entry_pending_of(next) == 0")
mutant(first_shard_publishes
  "entry_state_of(seen) == ENTRY_LOADING && entry_pending_of(next) == 0"
  "entry_state_of(seen) == ENTRY_LOADING")
mutant(swap_is_a_store
  "return atomic_compare_exchange_weak_explicit(word, seen, next, memory_order_acq_rel,
                                                 memory_order_acquire);"
  "return (void)seen, shim_store(word, next);")
