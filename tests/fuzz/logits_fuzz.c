/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a file of recorded logits. Any bytes are rejected with one line, or each row has
 * log-probabilities or is rejected with one line. Input: the file, for a text of two windows of
 * four tokens and a vocabulary of five. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/logits.h"

#define VOCAB 5u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct error *error)
{
    sl_assert(error->code != ERR_NONE && error->text[0] && !strchr(error->text, '\n'));
}

static void check_rows(struct logits_file *f, const struct offline_text *text)
{
    float log_p[VOCAB];
    for (uint32_t w = 0; w < text->windows; w++)
        for (uint32_t row = 0; row + 1 < text->window; row++) {
            struct error error = {0};
            if (logits_read(f, w, row, log_p, &error) != 0) {
                check_error(&error);
                continue;
            }
            for (uint32_t i = 0; i < VOCAB; i++)
                sl_assert(isfinite(log_p[i]) && log_p[i] <= 0);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct offline_text text = {.windows = 2, .window = 4, .hash = 0x1234};
    struct error error = {0};
    char path[64];
    int fd = memfd_create("logits", MFD_CLOEXEC);
    sl_assert(fd >= 0);
    if (write(fd, data, size) != (ssize_t)size)
        abort(); /* out of memory */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct logits_file *f = logits_open(path, &text, VOCAB, &error);
    if (f)
        check_rows(f, &text);
    else
        check_error(&error);
    logits_close(f);
    close(fd);
    return 0;
}
