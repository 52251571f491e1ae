/* SPDX-License-Identifier: Apache-2.0 */
/* A line of text in shared memory, with one writer. Readers never see half of it: the version is
 * odd while it is written, and a reader that sees it change reads again. */
#ifndef SLUICE_SHM_TABLE_SHARED_TEXT_H
#define SLUICE_SHM_TABLE_SHARED_TEXT_H

#include <stdatomic.h>
#include <stdint.h>

#define SHARED_TEXT_BYTES                                                                          \
    192 /* including the terminator; a longer text is cut between two characters */

struct shared_text {
    _Atomic uint32_t version;
    uint32_t reserved;
    _Atomic uint64_t words[SHARED_TEXT_BYTES / 8];
};

void shared_text_set(struct shared_text *t, const char *text);
/* Empty before the first set, and when it changes all the time. */
void shared_text_get(const struct shared_text *t, char out[SHARED_TEXT_BYTES]);

#endif
