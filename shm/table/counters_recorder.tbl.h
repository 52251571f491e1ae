/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the recorder. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append only. */
COUNTER(records, COUNTER, records, "Access-log records written to the trace.")
COUNTER(records_dropped, COUNTER, records, "Records overwritten before they were read.")
COUNTER(bytes, COUNTER, bytes, "Bytes written to the trace.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
#undef COUNTER
