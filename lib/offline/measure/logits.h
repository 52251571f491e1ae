/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded logits: the log-probabilities of a model for every scored token of a text, as a
 * reference for other models.
 *
 * File: struct logits_header | rows, windows x scored of them, `row_bytes` each:
 *   float top                the largest log-probability (nats, <= 0)
 *   float step               >= 0
 *   uint16_t below[vocab]    log p(token) = top - step * below
 * Little-endian. The resolution of 16 bits over the range of a row (about 30 nats) is far finer
 * than any relevant difference: the divergence of a model from its own record is about 1e-8 nats.
 *
 * A file is written under a temporary name and renamed when it is complete. A file that is read is
 * untrusted input: header and size are checked on opening, the numbers of a row when it is read. */
#ifndef SLUICE_OFFLINE_MEASURE_LOGITS_H
#define SLUICE_OFFLINE_MEASURE_LOGITS_H

#include "lib/offline/text.h"
#include "lib/plan/plan.h"

#define LOGITS_MAGIC   0x5449474f4c434c53ull /* "SLCLOGIT" */
#define LOGITS_VERSION 1u

struct logits_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* sizeof this; offset of the rows */
    uint32_t vocab, window, windows, scored;
    uint64_t row_bytes;
    uint64_t text_hash;                  /* offline_text.hash */
    uint8_t model_hash[PLAN_HASH_BYTES]; /* of the recorded model */
    uint8_t reserved[32];                /* 0 */
};
_Static_assert(sizeof(struct logits_header) == 96, "layout of recorded logits");

struct logits_file;

/* A new file of NumPy (.npy, version 1.0) for all windows of the text, with the logits as they are:
 * '<f4', shape (windows, tokens of a window - 1, vocab); [w, i] are the logits after tokens 0 .. i
 * of window w. NULL with *error. It cannot be opened by logits_open. */
struct logits_file *logits_create_npy(const char *path, const struct offline_text *text,
                                      uint32_t vocab, struct error *error);

/* A new file for all windows of the text. NULL with *error. */
struct logits_file *logits_create(const char *path, const struct offline_text *text, uint32_t vocab,
                                  const uint8_t model_hash[PLAN_HASH_BYTES], struct error *error);
/* Writes row `row` of a window from the logits of the model. Any thread, one thread per row.
 * Failures are reported by logits_commit. */
void logits_write(struct logits_file *f, uint32_t window, uint32_t row, const float *logits);
/* Syncs and renames the file. -1 with *error when a row could not be written. */
int logits_commit(struct logits_file *f, struct error *error);

/* Opens a record. NULL with *error; ERR_BAD_INPUT: damaged, another text, window or vocabulary. */
struct logits_file *logits_open(const char *path, const struct offline_text *text, uint32_t vocab,
                                struct error *error);
/* Reads the log-probabilities of a row: [vocab]. Any thread. -1 with *error. */
int logits_read(struct logits_file *f, uint32_t window, uint32_t row, float *log_p,
                struct error *error);

/* Closes either kind; a file that was not committed is removed. NULL is ignored. */
void logits_close(struct logits_file *f);

#endif
