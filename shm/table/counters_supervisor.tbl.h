/* Counters of the supervisor. COUNTER(name, kind, unit, doc): kind COUNTER or GAUGE. Append only.
 */
COUNTER(spawns, COUNTER, processes, "Children spawned.")
COUNTER(exits, COUNTER, processes, "Children reaped.")
COUNTER(kills, COUNTER, processes, "Children killed for a late heartbeat.")
COUNTER(requests, COUNTER, requests, "Control requests.")
COUNTER(requests_rejected, COUNTER, requests, "Control requests refused.")
COUNTER(budget_bytes, GAUGE, bytes, "Budget in force.")
COUNTER(used_bytes, GAUGE, bytes, "Bytes the ledger counts as used.")
COUNTER(used_bytes_max, GAUGE, bytes, "Most the ledger ever counted.")
COUNTER(tick_overruns, COUNTER, ticks, "Own ticks that came late (heartbeats forgiven).")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages refused by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
#undef COUNTER
