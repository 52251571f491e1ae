/* What the parts of doctor share: findings, and who makes them. */
#ifndef SLUICE_DOCTOR_DOCTOR_H
#define SLUICE_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

/* ---- findings.c: lines for people and fields of the JSON document, made at once ---- */

struct findings {
    json_t *document; /* {"section": {"name": value, ...}, ...}, and "lines" in order */
};

void findings_open(struct findings *f);
void findings_close(struct findings *f);

/* One finding. `value` is stolen and stands in the document under section and name; `text` is what
 * a person reads (NULL: the value itself); `meaning` what it means for sluice. */
void finding(struct findings *f, const char *section, const char *name, json_t *value,
             const char *text, const char *meaning, ...) __attribute__((format(printf, 6, 7)));

/* A field of the document that has no line. */
void finding_quiet(struct findings *f, const char *section, const char *name, json_t *value);

void findings_print(const struct findings *f, bool json);

/* ---- the examinations ---- */

struct drive_plan {
    const char *path;      /* directory (a scratch file is made in it) or file */
    uint64_t expert_bytes; /* the largest read size */
    double seconds;        /* for all cells together */
};

/* machine.c */
void machine_examine(struct findings *f);

/* memory.c: read bandwidth with one thread and with all; about 1.5 s. */
void memory_examine(struct findings *f);

/* drive.c: read rates over sizes, depths, ways. Leaves nothing behind. */
int drive_examine(struct findings *f, const struct drive_plan *plan, struct error *error);

/* Processors this process may run on. */
unsigned machine_processors(void);

#endif
