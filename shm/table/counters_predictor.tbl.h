/* Counters of the predictor. COUNTER(name, kind, unit, doc): kind COUNTER or GAUGE. Append only. */
COUNTER(rows_read, COUNTER, rows, "Gate rows read.")
COUNTER(rows_overwritten, COUNTER, rows, "Gate rows overwritten before they were read.")
COUNTER(hints_sent, COUNTER, messages, "HINTs sent.")
COUNTER(predictions, COUNTER, entries, "Entries guessed.")
COUNTER(messages_dropped, COUNTER, messages, "HINTs that could not be sent.")
COUNTER(recall_hits, COUNTER, entries,
        "Experts used that the guess for that layer and token named.")
COUNTER(recall_accesses, COUNTER, entries, "Experts used in layers and tokens that had a guess.")
COUNTER(predict_ns, COUNTER, ns, "Time spent in routers.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages refused by the validator.")
#undef COUNTER
