/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the gateway. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE. Append only. */
COUNTER(port, GAUGE, number, "TCP port the gateway listens on.")
COUNTER(connections, GAUGE, connections, "Connections open now.")
COUNTER(connections_accepted, COUNTER, connections, "Connections accepted.")
COUNTER(requests, COUNTER, requests, "HTTP requests accepted.")
COUNTER(requests_bad, COUNTER, requests, "HTTP responses with a 4xx status.")
COUNTER(requests_failed, COUNTER, requests, "HTTP responses with a 5xx status.")
COUNTER(requests_malformed, COUNTER, requests, "Connections with a malformed HTTP request line.")
COUNTER(requests_unauthorised, COUNTER, requests, "Requests without a valid API key.")
COUNTER(streams, GAUGE, streams, "Completions in progress.")
COUNTER(streams_started, COUNTER, streams, "Completions submitted to compute.")
COUNTER(streams_finished, COUNTER, streams, "Completions that ended normally.")
COUNTER(streams_failed, COUNTER, streams, "Completions that ended with an error.")
COUNTER(streams_cancelled, COUNTER, streams,
        "Completions cancelled because the client disconnected.")
COUNTER(streams_stopped, COUNTER, streams, "Completions ended by a stop sequence.")
COUNTER(tokens, COUNTER, tokens, "Tokens sent to clients.")
COUNTER(buffered_bytes, GAUGE, bytes, "Request and response bytes buffered.")
COUNTER(calls_retried, COUNTER, calls, "Calls retried because the connection to compute broke.")
COUNTER(stats_fetches, COUNTER, fetches, "Stats snapshots fetched from the supervisor.")
COUNTER(connections_timed_out, COUNTER, connections,
        "Connections closed without a complete request within the timeout.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
COUNTER(access_lines_lost, COUNTER, lines,
        "Lines of --http-log that were not written: too many at once, or the file cannot be.")
COUNTER(fields_ignored, COUNTER, fields, "Fields of requests that were ignored.")
#undef COUNTER
