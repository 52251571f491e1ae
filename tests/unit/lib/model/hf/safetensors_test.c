/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: valid headers, rejected headers with their exact reason, directories of several
 * files. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/model/hf/safetensors.h"
#include "lib/tensor/tensor_type.h"

static char dir[] = "/tmp/sluice-safetensors-XXXXXX";

static void setup(void)
{
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void teardown(void)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "b.safetensors"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unlink(path_of(names[i]));
    ck_assert_int_eq(rmdir(dir), 0);
}

/* Parses a header followed by `data` bytes of data. */
static int parse(const char *header, uint64_t data, struct safetensors *s, struct error *error)
{
    memset(s, 0, sizeof *s);
    return safetensors_parse(s, header, strlen(header), 8 + strlen(header) + data, 0, error);
}

START_TEST(one_header)
{
    struct safetensors s;
    struct error error;
    static const char text[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"none\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[4,4]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"mask\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]}}   ";
    ck_assert_msg(parse(text, 24, &s, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(s.count, 4);
    ck_assert_str_eq(s.tensors[0].name, "a");
    ck_assert_uint_eq(s.tensors[0].offset, 8 + strlen(text));
    ck_assert_uint_eq(s.tensors[0].dims, 0);
    ck_assert_str_eq(s.tensors[1].name, "none");
    ck_assert_str_eq(s.tensors[2].name, "b");
    ck_assert_uint_eq(s.tensors[2].type, TENSOR_BF16);
    ck_assert_uint_eq(s.tensors[2].shape[1], 3);
    ck_assert_uint_eq(s.tensors[2].shape[2], 1);
    ck_assert_uint_eq(s.tensors[2].bytes, 12);
    ck_assert_uint_eq(s.tensors[3].type, SAFETENSORS_I64);
    safetensors_close(&s);
}
END_TEST

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

START_TEST(bad_headers_are_rejected)
{
    static const struct {
        const char *header;
        uint64_t data;
        const char *reason;
    } cases[] = {
        {"", 0, "invalid JSON"},
        {"[]", 0, "not a JSON object"},
        {"{\"a\":{", 0, "invalid JSON"},
        {"{\"\":1}", 0, "a tensor has a name of 0 bytes"},
        {"{\"a b\":1}", 0, "tensor name 'a b' has characters other than printable ASCII"},
        {"{\"t\":1}", 0, "tensor t has the unknown dtype ''"},
        {ONE("\"Q9\"", "[1]", "[0,4]"), 4, "tensor t has the unknown dtype 'Q9'"},
        {ONE("7", "[1]", "[0,4]"), 4, "tensor t has the unknown dtype ''"},
        {ONE("\"F32\"", "1", "[0,4]"), 4, "tensor t has no shape of at most 6 numbers"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]"), 4,
         "tensor t has no shape of at most 6 numbers"},
        {ONE("\"F32\"", "[-1]", "[0,4]"), 4, "tensor t has an odd shape"},
        {ONE("\"F32\"", "[1.0]", "[0,4]"), 4, "tensor t has an odd shape"},
        {ONE("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0,
         "tensor t is larger than 2^63 bytes"},
        {ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0,
         "tensor t is larger than 2^63 bytes"},
        {ONE("\"F32\"", "[99999999999999999999]", "[0,4]"), 4, "invalid JSON"},
        {ONE("\"F32\"", "[1]", "[0]"), 4, "tensor t has no data_offsets of two numbers"},
        {ONE("\"F32\"", "[1]", "[-4,0]"), 4, "tensor t has no data_offsets of two numbers"},
        {ONE("\"F32\"", "[1]", "[4,0]"), 4, "tensor t lies at 4 to 0 of 4 bytes of data"},
        {ONE("\"F32\"", "[1]", "[0,8]"), 4, "tensor t lies at 0 to 8 of 4 bytes of data"},
        {ONE("\"F32\"", "[2]", "[0,4]"), 4,
         "tensor t: its shape takes 8 bytes, its data_offsets 4"},
        {ONE("\"F32\"", "[1]", "[4,8]"), 8, "tensor t has a hole before it"},
        {ONE("\"F32\"", "[1]", "[0,4]"), 5, "1 bytes at the end belong to no tensor"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[2,6]}}",
         6, "tensor b overlaps another"},
        {"{\"a\":{\"dtype\":1,\"dtype\":1}}", 0, "invalid JSON"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct safetensors s;
        struct error error = {0};
        ck_assert_msg(parse(cases[i].header, cases[i].data, &s, &error) == -1, "%s taken",
                      cases[i].header);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strncmp(error.text, cases[i].reason, strlen(cases[i].reason)) == 0,
                      "%s: '%s' instead of '%s'", cases[i].header, error.text, cases[i].reason);
        safetensors_close(&s);
    }
}
END_TEST

static void put_file(const char *name, const char *header, uint64_t length, size_t data)
{
    static const char zeros[64];
    FILE *f = fopen(path_of(name), "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(&length, 8, 1, f);
    fputs(header, f);
    fwrite(zeros, 1, data, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void put_text(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "wb");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

#define A "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}"
#define B "{\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}"

static void check_rejected(const char *reason)
{
    struct safetensors s;
    struct error error;
    ck_assert_int_eq(safetensors_open(&s, dir, &error), -1);
    ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' instead of '%s'", error.text, reason);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}

START_TEST(directories)
{
    struct safetensors s;
    struct error error;
    check_rejected("model.safetensors: No such file");
    put_file("model.safetensors", A, strlen(A), 4);
    ck_assert_msg(safetensors_open(&s, dir, &error) == 0, "%s", error.text);
    ck_assert_ptr_nonnull(safetensors_find(&s, "a"));
    ck_assert_ptr_null(safetensors_find(&s, "b"));
    ck_assert_uint_eq(s.files[0].bytes, 8 + strlen(A) + 4);
    safetensors_close(&s);
    put_file("model.safetensors", A, UINT64_MAX, 4);
    check_rejected("its header claims 18446744073709551615 bytes");
    put_file("model.safetensors", A, strlen(A) + 5, 4);
    check_rejected("not a safetensors file, or cut");
    put_text("model.safetensors", "abc");
    check_rejected("only 3 bytes long");

    /* Two files, which take precedence over the single one. */
    put_file("a.safetensors", A, strlen(A), 4);
    put_file("b.safetensors", B, strlen(B), 8);
    put_text("model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}}");
    ck_assert_msg(safetensors_open(&s, dir, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(s.file_count, 2);
    ck_assert_str_eq(s.files[safetensors_find(&s, "b")->file].name, "b.safetensors");
    safetensors_close(&s);
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"b.safetensors\"}}");
    check_rejected("tensor a is not in b.safetensors");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../x\"}}");
    check_rejected("names '../x', which is not a file in its directory");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"a\\nb\"}}");
    check_rejected("which is not a file in its directory");
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":3}}");
    check_rejected("which is not a file in its directory");
    put_text("model.safetensors.index.json", "{}");
    check_rejected("has no weight_map");
    put_file("b.safetensors", A, strlen(A), 4);
    put_text("model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}}");
    check_rejected("there are two tensors a");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_header);
    tcase_add_test(t, bad_headers_are_rejected);
    tcase_add_test(t, directories);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
