/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of the texts that NIST gives as examples (FIPS 180-4, CAVP), in pieces of any length. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/io/server/http/request.h"
#include "lib/io/server/http/sha256.h"

static void check_hash(const char *text, size_t bytes, const char *right)
{
    char hex[SHA256_HEX_BYTES];
    for (size_t piece = 1; piece <= bytes + 1; piece += piece < 130 ? 1 : bytes / 3) {
        struct sha256 s;
        sha256_start(&s);
        for (size_t at = 0; at < bytes; at += piece)
            sha256_add(&s, text + at, bytes - at < piece ? bytes - at : piece);
        sha256_end(&s, hex);
        ck_assert_msg(strcmp(hex, right) == 0, "pieces of %zu: %s", piece, hex);
    }
}

START_TEST(examples)
{
    static const struct {
        const char *text, *hash;
    } rows[] = {
        {"", REQUEST_EMPTY_HASH},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_hash(rows[i].text, strlen(rows[i].text), rows[i].hash);
}
END_TEST

START_TEST(a_million)
{
    char *text = malloc(1000000);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', 1000000);
    char hex[SHA256_HEX_BYTES];
    struct sha256 s;
    sha256_start(&s);
    sha256_add(&s, text, 1000000);
    sha256_end(&s, hex);
    ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}
END_TEST

START_TEST(codes_of_errors)
{
    static const struct {
        const char *body, *code;
    } rows[] = {{"", ""},
                {"<Error><Code>NoSuchKey</Code></Error>", " (NoSuchKey)"},
                {"<Code>NoSuchKey", " (NoSuchKey)"},
                {"<Code></Code>", ""},
                {"<Code>a b</Code>", ""},
                {"<Code>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa</Code>", ""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char code[REQUEST_CODE_BYTES];
        request_code(rows[i].body, code);
        ck_assert_str_eq(code, rows[i].code);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sha256");
    TCase *cases = tcase_create("sha256");
    tcase_add_test(cases, examples);
    tcase_add_test(cases, a_million);
    tcase_add_test(cases, codes_of_errors);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
