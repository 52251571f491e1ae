/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of model files, and what they must make of a text. */
#ifndef SLUICE_TEST_MODEL_TOKENIZER_OPENED_H
#define SLUICE_TEST_MODEL_TOKENIZER_OPENED_H

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "tests/unit/lib/model/gguf_make.h"

#define DEMO SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"

struct opened {
    struct model_index *index;
    struct tokenizer *t;
};

static inline struct opened open_fd(int fd)
{
    struct opened o;
    struct error error = {0};
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(model_index_build(fd, "FILE", &o.index, &error) == 0, "%s", error.text);
    o.t = tokenizer_open((char *)o.index + o.index->tokenizer_offset, o.index->tokenizer_bytes,
                         &error);
    ck_assert_msg(o.t != NULL, "%s", error.text);
    close(fd);
    return o;
}

static inline struct opened open_demo(void)
{
    return open_fd(open(DEMO, O_RDONLY));
}

static inline struct opened open_tiny(void (*edit)(struct make *))
{
    struct make m;
    make_tiny(&m, 1, false);
    if (edit)
        edit(&m);
    struct bytes file = make_write(&m);
    int fd = memfd_create("gguf", 0);
    ck_assert_int_eq(write(fd, file.data, file.size), (ssize_t)file.size);
    bytes_free(&file);
    make_free(&m);
    return open_fd(fd);
}

static inline void close_both(struct opened *o)
{
    tokenizer_close(o->t);
    free(o->index);
}

static inline uint32_t *encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                               size_t *count)
{
    uint32_t *ids;
    struct error error = {0};
    ck_assert_msg(
        tokenizer_encode(t, text, n, special ? &text_ranges_all : NULL, &ids, count, &error) == 0,
        "%s", error.text);
    return ids;
}

static inline void expect_ids(const struct tokenizer *t, const char *text, size_t n, bool special,
                              const uint32_t *want, size_t want_count)
{
    size_t count;
    uint32_t *ids = encode(t, text, n, special, &count);
    ck_assert_msg(count == want_count, "'%.40s': %zu tokens, not %zu", text, count, want_count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(ids[i] == want[i], "'%.40s' token %zu: %u, not %u", text, i, ids[i], want[i]);
    free(ids);
}

#endif
