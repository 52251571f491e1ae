/* What the parts of doctor share: findings, and who makes them. */
#ifndef SLUICE_TOOLS_DOCTOR_DOCTOR_H
#define SLUICE_TOOLS_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/base/error.h"
#include "procs/tools/doctor/estimate.h"

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
    uint64_t chunk_bytes;  /* whole pages: the largest read of a loader */
    double seconds;        /* for all cells together */
};

struct drive_result {
    double bytes_per_s[ESTIMATE_DEPTHS]; /* of chunks, the best way, per depth */
    uint64_t chunk_bytes;
    bool scratch;
};

/* machine.c: also what the advice needs of it. */
void machine_examine(struct findings *f, struct machine_facts *facts);

/* memory.c: read bandwidth with one thread and with all; about 1.5 s. */
void memory_examine(struct findings *f);

/* drive.c: read rates over sizes, depths, ways, under a section of that name. Leaves nothing
 * behind. */
int drive_examine(struct findings *f, const char *section, const struct drive_plan *plan,
                  struct drive_result *result, struct error *error);

/* compute.c: weights per second through the kernels, 0 when it cannot be measured; half a second.
 */
double compute_rate(uint32_t hidden, uint32_t inner, double bytes_per_weight, uint64_t model_bytes);

/* model.c: what the ledger says of a model (new reference, NULL with the error), and what becomes
 * of it here. */
json_t *model_outlook(const char *model, const struct params *params, struct error *error);
struct model_facts model_facts_of(const json_t *outlook);
void model_examine(struct findings *f, const json_t *outlook, struct machine_facts *facts);

/* Processors this process may run on. */
unsigned machine_processors(void);

#endif
