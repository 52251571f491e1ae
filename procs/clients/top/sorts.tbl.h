/* Orders of the process table. SORT(name, key): key is a field of struct process_rates, largest
 * first; the first row is the engine's own order. */
SORT(start, order)
SORT(cpu, cpu)
SORT(memory, memory)
SORT(messages, messages)
SORT(restarts, restarts)
#undef SORT
