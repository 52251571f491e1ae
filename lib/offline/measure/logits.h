/* Recorded logits: what a model said of every scored token of a text, to compare others with.
 *
 * File: struct logits_header | rows, windows x scored of them, `row_bytes` each:
 *   float top    the largest log-probability (nats, <= 0)
 *   float step   >= 0
 *   uint16_t below[vocab]    log p(token) = top - step * below
 * Little-endian. 16 bits of the range a row has (some 30 nats) are far below any difference that
 * matters: the divergence of a model from its own record is some 1e-8 nats.
 *
 * A file is written beside its name and renamed when it is complete. When it is read it is foreign:
 * header and size are checked at once, the numbers of a row when it is read. */
#ifndef SLUICE_OFFLINE_MEASURE_LOGITS_H
#define SLUICE_OFFLINE_MEASURE_LOGITS_H

#include "lib/offline/text.h"
#include "lib/plan/plan.h"

#define LOGITS_MAGIC   0x5449474f4c434c53ull /* "SLCLOGIT" */
#define LOGITS_VERSION 1u

struct logits_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* sizeof this; rows begin there */
    uint32_t vocab, window, windows, scored;
    uint64_t row_bytes;
    uint64_t text_hash;                  /* offline_text.hash */
    uint8_t model_hash[PLAN_HASH_BYTES]; /* of the model that was recorded */
    uint8_t reserved[32];                /* 0 */
};
_Static_assert(sizeof(struct logits_header) == 96, "layout of recorded logits");

struct logits_file;

/* A new file for all windows of the text. NULL with *error. */
struct logits_file *logits_create(const char *path, const struct offline_text *text, uint32_t vocab,
                                  const uint8_t model_hash[PLAN_HASH_BYTES], struct error *error);
/* Row `row` of a window from logits as the model gave them; any thread, rows apart. What fails is
 * told by logits_commit. */
void logits_write(struct logits_file *f, uint32_t window, uint32_t row, const float *logits);
/* Completes and renames. -1 with *error when a row could not be written. */
int logits_commit(struct logits_file *f, struct error *error);

/* A record of the same text (ERR_BAD_INPUT: damaged, another text, window or vocabulary). */
struct logits_file *logits_open(const char *path, const struct offline_text *text, uint32_t vocab,
                                struct error *error);
/* Log-probabilities of a row: [vocab]. Any thread. */
int logits_read(struct logits_file *f, uint32_t window, uint32_t row, float *log_p,
                struct error *error);

/* Ends either; a file that was not committed is removed. NULL is passed over. */
void logits_close(struct logits_file *f);

#endif
