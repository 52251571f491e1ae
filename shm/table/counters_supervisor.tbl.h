/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the supervisor. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append
 * only. */
COUNTER(spawns, COUNTER, processes, "Children spawned.")
COUNTER(exits, COUNTER, processes, "Children reaped.")
COUNTER(kills, COUNTER, processes, "Children killed for a late heartbeat.")
COUNTER(requests, COUNTER, requests, "Control requests.")
COUNTER(requests_rejected, COUNTER, requests, "Control requests rejected.")
COUNTER(budget_bytes, GAUGE, bytes, "Budget in effect.")
COUNTER(used_bytes, GAUGE, bytes, "Bytes the ledger counts as used.")
COUNTER(used_bytes_max, GAUGE, bytes, "Maximum of used_bytes.")
COUNTER(tick_overruns, COUNTER, ticks,
        "Supervisor ticks that came late (late heartbeats of that tick are ignored).")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages rejected by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
COUNTER(oom_kills, COUNTER, processes, "Children killed by the kernel for lack of memory.")
#undef COUNTER
