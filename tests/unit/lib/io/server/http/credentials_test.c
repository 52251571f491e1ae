/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials of S3: files, the environment, and what is rejected without being repeated. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/io/server/http/credentials.h"

static int parse(const char *text, const char *profile, struct credentials *c, struct error *error)
{
    return credentials_parse(text, strlen(text), profile, c, error);
}

START_TEST(files)
{
    static const char text[] = "# comment\n[other]\naws_access_key_id = wrong\n"
                               "[default]\r\n\taws_access_key_id=AKID \r\nregion = x\n"
                               ";aws_session_token = no\naws_secret_access_key = a/b+c=\n\n"
                               "[temporary]\naws_access_key_id = T\naws_secret_access_key = S\n"
                               "aws_session_token = long==";
    struct credentials c;
    struct error error;
    ck_assert_int_eq(parse(text, "default", &c, &error), 0);
    ck_assert_str_eq(c.id, "AKID");
    ck_assert_str_eq(c.secret, "a/b+c=");
    ck_assert_str_eq(c.token, "");
    ck_assert_int_eq(parse(text, "temporary", &c, &error), 0);
    ck_assert_str_eq(c.token, "long==");
    ck_assert_int_eq(parse(text, "other", &c, &error), -1); /* no secret */
    ck_assert(!strstr(error.text, "wrong") && strstr(error.text, "other"));
    ck_assert_str_eq(c.id, "");
}
END_TEST

START_TEST(rejected)
{
    static const char *const texts[] = {
        "",
        "[default]",
        "aws_access_key_id = a\naws_secret_access_key = b\n", /* no section */
        "[default\naws_access_key_id = a\naws_secret_access_key = b\n",
        "[default]\naws_access_key_id = a\n",
        "[default]\naws_access_key_id = a b\naws_secret_access_key = c\n",
        "[default]\naws_access_key_id = a\x01\naws_secret_access_key = c\n",
        "[defaults]\naws_access_key_id = a\naws_secret_access_key = c\n",
        "\n=\n[\n[]\n]\n[default]\n=\n= x\naws_access_key_id\n"};
    struct credentials c;
    struct error error;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        ck_assert_msg(parse(texts[i], "default", &c, &error) == -1, "%s was accepted", texts[i]);
    char longer[1024] = "[default]\naws_secret_access_key = s\naws_access_key_id = ";
    size_t n = strlen(longer);
    memset(longer + n, 'x', 300);
    ck_assert_int_eq(parse(longer, "default", &c, &error), -1);
}
END_TEST

START_TEST(environment)
{
    struct credentials c;
    struct error error;
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    ck_assert_int_eq(credentials_take("", "default", &c, &error), 0);
    ck_assert_str_eq(c.id, ""); /* requests are not signed */
    setenv("AWS_ACCESS_KEY_ID", "A", 1);
    ck_assert_int_eq(credentials_take("", "default", &c, &error), -1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden", 1);
    setenv("AWS_SESSION_TOKEN", "T", 1);
    ck_assert_int_eq(credentials_take("", "default", &c, &error), 0);
    ck_assert_str_eq(c.secret, "hidden");
    ck_assert_str_eq(c.token, "T");
    setenv("AWS_SECRET_ACCESS_KEY", "hid den", 1);
    ck_assert_int_eq(credentials_take("", "default", &c, &error), -1);
    ck_assert(!strstr(error.text, "hid"));
    ck_assert_int_eq(credentials_take("/none/such", "default", &c, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "/none/such"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("credentials");
    TCase *c = tcase_create("all");
    tcase_add_test(c, files);
    tcase_add_test(c, rejected);
    tcase_add_test(c, environment);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
