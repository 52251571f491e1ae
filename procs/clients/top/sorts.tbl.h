/* SPDX-License-Identifier: Apache-2.0 */
/* Sort orders of the process table. SORT(name, key): key is a field of struct process_rates, sorted
 * descending. The first row keeps the engine's order. */
SORT(start, order)
SORT(cpu, cpu)
SORT(memory, memory)
SORT(messages, messages)
SORT(restarts, restarts)
#undef SORT
