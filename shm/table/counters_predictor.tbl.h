/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the predictor. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append
 * only. */
COUNTER(rows_read, COUNTER, rows, "Gate rows read.")
COUNTER(rows_overwritten, COUNTER, rows, "Gate rows overwritten before they were read.")
COUNTER(hints_sent, COUNTER, messages, "HINTs sent.")
COUNTER(predictions, COUNTER, entries, "Entries predicted.")
COUNTER(messages_dropped, COUNTER, messages, "HINTs that could not be sent.")
COUNTER(recall_hits, COUNTER, entries,
        "Expert accesses that the prediction for the layer and token contained.")
COUNTER(recall_accesses, COUNTER, entries,
        "Expert accesses in layers and tokens with a prediction.")
COUNTER(predict_ns, COUNTER, ns, "Time spent in routers.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages rejected by the validator.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
#undef COUNTER
