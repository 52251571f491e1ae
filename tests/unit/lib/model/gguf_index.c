/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the index of a GGUF file that a test made in memory. */
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "tests/unit/lib/model/gguf_make.h"

ssize_t make_read(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *m = arg;
    if (offset >= m->size)
        return 0;
    n = n < m->size - offset ? n : m->size - (size_t)offset;
    memcpy(buf, m->data + offset, n);
    return (ssize_t)n;
}

struct model_index *make_index(struct make *m, struct error *error)
{
    struct bytes file = make_write(m);
    struct gguf_source source = {.read = make_read, .arg = &file, .bytes = file.size};
    struct model_file_id id = {.bytes = file.size};
    struct model_index *index = NULL;
    int status = model_index_build_source(&source, &id, &index, error);
    sl_assert(status == (index ? 0 : -1));
    bytes_free(&file);
    make_free(m);
    return index;
}

void make_resize(struct make *m, const char *name, uint64_t ne0, uint64_t ne1)
{
    struct make_tensor *t = make_tensor(m, name);
    sl_assert(t);
    t->ne[0] = ne0;
    t->ne[1] = ne1;
    t->dims = ne1 > 1 ? 2 : 1;
    t->bytes = ne0 * ne1 * 4;
}
