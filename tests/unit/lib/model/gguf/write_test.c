/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF writer against the reader: every value type, offsets, padding, files larger than 4 GiB,
 * a copy of a whole model. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/write.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

static char dir[] = "/tmp/sluice-gguf-write-XXXXXX";
static char file[80];

static void setup(void)
{
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/f.gguf", dir);
}

static void teardown(void)
{
    unlink(file);
    ck_assert_int_eq(rmdir(dir), 0);
}

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

struct opened {
    int fd;
    struct gguf g;
};

static void open_file(struct opened *o, const char *path)
{
    struct error error;
    struct stat st;
    o->fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(o->fd, 0);
    ck_assert_int_eq(fstat(o->fd, &st), 0);
    struct gguf_source source = {.read = read_fd, .arg = &o->fd, .bytes = (uint64_t)st.st_size};
    ck_assert_msg(gguf_open(&o->g, &source, &error) == 0, "%s", error.text);
}

static void close_file(struct opened *o)
{
    gguf_close(&o->g);
    close(o->fd);
}

static void must(int status, const struct error *error)
{
    ck_assert_msg(status == 0, "%s", error->text);
}

static void put_values(struct gguf_writer *w)
{
    int16_t i16 = -3;
    double f64 = 0.25;
    uint64_t u64s[3] = {1, UINT64_MAX, 3};
    int32_t i32s[2] = {-1, 7};
    gguf_put_text(w, "a.text", "word");
    gguf_put_string(w, "a.odd", "a\0b", 3);
    gguf_put_u32(w, "a.u32", UINT32_MAX);
    gguf_put_u64(w, "a.u64", (uint64_t)1 << 40);
    gguf_put_f32(w, "a.f32", 1.5f);
    gguf_put_bool(w, "a.yes", true);
    gguf_put_scalar(w, "a.i16", GGUF_I16, &i16);
    gguf_put_scalar(w, "a.f64", GGUF_F64, &f64);
    gguf_put_array(w, "b.u64s", GGUF_U64, u64s, 3);
    gguf_put_array(w, "b.i32s", GGUF_I32, i32s, 2);
    gguf_put_array(w, "b.none", GGUF_F32, NULL, 0);
    gguf_put_strings(w, "b.texts", (const char *[]){"one", "", "three"}, NULL, 3);
}

static void check_values(const struct gguf *g)
{
    struct error error;
    const char *text;
    size_t n;
    uint64_t u;
    double d;
    bool yes;
    struct gguf_array a;
    ck_assert_int_eq(gguf_get_string(g, "a.odd", &text, &n, &error), 1);
    ck_assert(n == 3 && memcmp(text, "a\0b", 3) == 0);
    ck_assert(gguf_get_uint(g, "a.u32", &u, &error) == 1 && u == UINT32_MAX);
    ck_assert(gguf_get_uint(g, "a.u64", &u, &error) == 1 && u == (uint64_t)1 << 40);
    ck_assert(gguf_get_float(g, "a.f32", &d, &error) == 1 && d == 1.5);
    ck_assert(gguf_get_bool(g, "a.yes", &yes, &error) == 1 && yes);
    ck_assert(gguf_get_float(g, "a.f64", &d, &error) == 1 && d == 0.25);
    ck_assert(gguf_get_uint(g, "a.i16", &u, &error) == -1); /* -3 is not >= 0 */
    ck_assert_int_eq(gguf_get_array(g, "b.u64s", GGUF_U64, &a, &error), 1);
    ck_assert_uint_eq(a.left, 3);
    ck_assert_int_eq(gguf_get_array(g, "b.none", GGUF_F32, &a, &error), 1);
    ck_assert_uint_eq(a.left, 0);
    ck_assert_int_eq(gguf_get_array(g, "b.i32s", GGUF_I32, &a, &error), 1);
    ck_assert_int_eq(gguf_array_i32(&a), -1);
    ck_assert_int_eq(gguf_array_i32(&a), 7);
    ck_assert_int_eq(gguf_get_array(g, "b.texts", GGUF_STRING, &a, &error), 1);
    for (const char *const *t = (const char *[]){"one", "", "three", NULL}; *t; t++) {
        gguf_array_string(&a, &text, &n);
        ck_assert(n == strlen(*t) && memcmp(text, *t, n) == 0);
    }
}

/* Streams tensors of odd sizes in odd steps; every byte is read back at the offset in the
 * header. */
static void stream_file(uint32_t alignment)
{
    struct error error;
    struct gguf_writer *w = gguf_writer_new(alignment);
    put_values(w);
    gguf_put_tensor(w, "one", TENSOR_F32, 1, (uint64_t[]){7});
    gguf_put_tensor(w, "two", TENSOR_Q8_0, 3, (uint64_t[]){32, 5, 3});
    gguf_put_tensor(w, "three", TENSOR_F16, 2, (uint64_t[]){3, 1000001});
    gguf_put_tensor(w, "four", GGUF_TYPE_I32, 2, (uint64_t[]){3, 5});
    must(gguf_writer_layout(w, &error), &error);
    must(gguf_writer_start(w, file, &error), &error);
    uint64_t total = 28 + 34 * 15 + 6000006 + 60;
    unsigned char *data = malloc(total);
    for (uint64_t i = 0; i < total; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    for (uint64_t at = 0, step = 1; at < total; step = step * 3 + 1) {
        uint64_t n = step < total - at ? step : total - at;
        must(gguf_writer_data(w, data + at, n, &error), &error);
        at += n;
    }
    must(gguf_writer_end(w, &error), &error);

    struct opened o;
    open_file(&o, file);
    ck_assert_uint_eq(o.g.alignment, alignment);
    ck_assert_uint_eq(o.g.tensor_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t types[] = {TENSOR_F32, TENSOR_Q8_0, TENSOR_F16, GGUF_TYPE_I32};
        ck_assert_uint_eq(gguf_type_of(&o.g.tensors[i]), types[i]);
        ck_assert_uint_eq(o.g.tensors[i].integers, i == 3);
    }
    ck_assert_uint_eq(o.g.source.bytes, gguf_writer_bytes(w));
    check_values(&o.g);
    unsigned char *back = malloc(total);
    for (uint64_t i = 0, at = 0; i < 4; i++) {
        const struct model_tensor *t = &o.g.tensors[i];
        ck_assert_uint_eq(t->file_offset, gguf_writer_offset(w, (uint32_t)i));
        ck_assert_uint_eq(t->bytes, gguf_writer_tensor_bytes(w, (uint32_t)i));
        ck_assert_uint_eq(t->file_offset % alignment, 0);
        ck_assert_int_eq(pread(o.fd, back, t->bytes, (off_t)t->file_offset), (ssize_t)t->bytes);
        ck_assert_mem_eq(back, data + at, t->bytes);
        at += t->bytes;
    }
    free(back);
    free(data);
    close_file(&o);
    gguf_writer_free(w);
}

START_TEST(streamed)
{
    stream_file(32);
    stream_file(8);
    stream_file(4096);
}
END_TEST

/* The caller writes the data itself, far beyond 4 GiB (sparse, so the file takes little space). */
START_TEST(larger_than_4_gib)
{
    struct error error;
    struct gguf_writer *w = gguf_writer_new(64);
    gguf_put_tensor(w, "big", TENSOR_F32, 3, (uint64_t[]){4096, 4096, 80});
    gguf_put_tensor(w, "last", TENSOR_F32, 1, (uint64_t[]){1});
    must(gguf_writer_layout(w, &error), &error);
    ck_assert_uint_gt(gguf_writer_offset(w, 1), 5 * GIB);
    uint64_t bytes;
    const void *header = gguf_writer_header(w, &bytes);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(pwrite(fd, header, bytes, 0), (ssize_t)bytes);
    float one = 1.25f;
    ck_assert_int_eq(pwrite(fd, &one, 4, (off_t)gguf_writer_offset(w, 1)), 4);
    ck_assert_int_eq(ftruncate(fd, (off_t)gguf_writer_bytes(w)), 0);
    close(fd);
    struct opened o;
    open_file(&o, file);
    ck_assert_uint_eq(o.g.tensors[1].file_offset, gguf_writer_offset(w, 1));
    float back = 0;
    ck_assert_int_eq(pread(o.fd, &back, 4, (off_t)o.g.tensors[1].file_offset), 4);
    ck_assert(back == one);
    close_file(&o);
    gguf_writer_free(w);
}
END_TEST

/* Copying the demo model's keys and tensor table gives an identical header. */
START_TEST(header_copied)
{
    struct error error;
    struct opened o;
    open_file(&o, SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf");
    struct gguf_writer *w = gguf_writer_new(o.g.alignment);
    for (uint32_t i = 0; i < o.g.key_count; i++)
        gguf_put_copy(w, &o.g, i);
    for (uint32_t i = 0; i < o.g.tensor_count; i++)
        gguf_put_tensor(w, o.g.tensors[i].name, o.g.tensors[i].type, o.g.tensors[i].dims,
                        o.g.tensors[i].ne);
    must(gguf_writer_layout(w, &error), &error);
    uint64_t bytes;
    const void *header = gguf_writer_header(w, &bytes);
    ck_assert_uint_eq(bytes, o.g.data_offset);
    ck_assert_uint_eq(gguf_writer_bytes(w), o.g.source.bytes);
    char *original = malloc(bytes);
    ck_assert_int_eq(pread(o.fd, original, bytes, 0), (ssize_t)bytes);
    ck_assert_mem_eq(header, original, bytes);
    free(original);
    gguf_writer_free(w);
    close_file(&o);
}
END_TEST

START_TEST(bad_writes_are_rejected)
{
    struct error error;
    char path[100];
    struct gguf_writer *w = gguf_writer_new(32);
    gguf_put_tensor(w, "t", TENSOR_F32, 1, (uint64_t[]){1});
    must(gguf_writer_layout(w, &error), &error);
    snprintf(path, sizeof path, "%s/none/f.gguf", dir);
    ck_assert_int_eq(gguf_writer_start(w, path, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    gguf_writer_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_write");
    TCase *t = tcase_create("gguf_write");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, streamed);
    tcase_add_test(t, larger_than_4_gib);
    tcase_add_test(t, header_copied);
    tcase_add_test(t, bad_writes_are_rejected);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
