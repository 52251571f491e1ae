/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the stats snapshot of the supervisor (op "stats"). No function fails: an absent value
 * reads as zero, "" or NULL, so that a client works with an older or newer engine. */
#ifndef SLUICE_JSON_LOOKUP_H
#define SLUICE_JSON_LOOKUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Row of a process by service name ("loader") and number. Borrowed. */
const json_t *lookup_process(const json_t *doc, const char *service, unsigned number);

/* Number of rows of the process table, and row i. Borrowed. */
size_t lookup_processes(const json_t *doc);
const json_t *lookup_row(const json_t *doc, size_t i);

/* Display name of a process, from its row or an exit record: "compute", "loader.0". */
#define LOOKUP_NAME_BYTES 48
const char *lookup_name(const json_t *row, char buf[LOOKUP_NAME_BYTES]);

/* Number of exit records, and the i-th of them, the newest first. Borrowed. */
size_t lookup_exits(const json_t *doc);
const json_t *lookup_exit(const json_t *doc, size_t i);

/* Sum of a counter over all processes of a service. */
uint64_t lookup_counter(const json_t *doc, const char *service, const char *counter);

/* Sum of the restarts of all processes. */
uint64_t lookup_restarts(const json_t *doc);

/* The model's name for people: that in its file, or else the name of the file. Borrowed. */
const char *lookup_model(const json_t *doc);

/* Integer or text at a path of keys separated by dots: "memory.budget_bytes". */
uint64_t lookup_u64(const json_t *doc, const char *path);
const char *lookup_text(const json_t *doc, const char *path);

#endif
