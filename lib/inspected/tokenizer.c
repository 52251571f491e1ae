/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the tokenizer in the index of an inspected model. */
#include "lib/inspected/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/inspected/inspected.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"

int inspected_tokenizer_open(struct inspected_tokenizer *t, const char *path, struct error *error)
{
    *t = (struct inspected_tokenizer){0};
    int fd = model_open(path, 0, error);
    if (fd < 0)
        return -1;
    int result = inspected_index(fd, path, &t->index, error);
    close(fd);
    if (result != 0)
        return -1;
    const char *blob = (const char *)t->index + t->index->tokenizer_offset;
    t->tokenizer = tokenizer_open(blob, t->index->tokenizer_bytes, error);
    if (t->tokenizer)
        return 0;
    free(t->index);
    return -1;
}

void inspected_tokenizer_close(struct inspected_tokenizer *t)
{
    tokenizer_close(t->tokenizer);
    free(t->index);
}
