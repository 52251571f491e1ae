/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a client and the engine agree on besides the envelope: the bodies of the engine's
 * calls, and the run directories with their endpoints. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/engine/engine_client.h"
#include "ipc/rpc/json.h"
#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

START_TEST(sampling_from_text)
{
    struct sampling s;
    struct error error;
    sampling_defaults(&s);
    ck_assert_double_eq(s.temperature, 0.8);
    ck_assert_int_eq(s.top_k, 40);
    ck_assert_int_eq(s.seed, -1);
    ck_assert_int_eq(sampling_set(&s, "temperature", "0", &error), 0);
    ck_assert_int_eq(sampling_set(&s, "top-k", "7", &error), 0);
    ck_assert_int_eq(sampling_set(&s, "seed", "9223372036854775807", &error), 0);
    ck_assert_double_eq(s.temperature, 0);
    ck_assert_int_eq(s.top_k, 7);
    ck_assert_int_eq(s.seed, INT64_MAX);
    static const char *const bad[][2] = {
        {"temperature", "-1"},
        {"temperature", "nan"},
        {"temperature", "inf"},
        {"temperature", ""},
        {"temperature", "1x"},
        {"temperature", "1e999"},
        {"top_p", "1.01"},
        {"top_k", "4.5"},
        {"top_k", "-1"},
        {"top_k", "1000001"},
        {"seed", "-2"},
        {"seed", "99999999999999999999"},
        {"repeat_penalty", "0"},
        {"repeat_last_n", "4097"},
        {"heat", "1"},
        {"top_", "1"},
        {"", "1"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(sampling_set(&s, bad[i][0], bad[i][1], &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(s.top_k, 7);
}
END_TEST

static int submit_parse(const char *text, struct engine_submit *out, struct error *error)
{
    json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(body != NULL, "%s", text);
    int result = engine_submit_parse(body, out, error);
    engine_submit_parsed_free(out);
    json_decref(body);
    return result;
}

START_TEST(submit_fields)
{
    struct engine_submit s;
    struct error error;
    json_t *body = json_loads("{\"v\":1,\"id\":\"x\",\"op\":\"submit\",\"request_key\":\"k1\","
                              "\"ids\":[1,2,3],\"max_tokens\":5,\"ignore_eos\":true,\"logprobs\":1,"
                              "\"sampling\":{\"temperature\":0,\"seed\":42}}",
                              0, NULL);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    ck_assert_str_eq(s.request_key, "k1");
    ck_assert_uint_eq(s.prompt_ids_count, 3);
    ck_assert_uint_eq(s.prompt_ids[2], 3);
    ck_assert_int_eq(s.max_tokens, 5);
    ck_assert(s.ignore_eos && s.special.count == 0 && !s.score_prompt);
    ck_assert_double_eq(s.sampling.temperature, 0);
    ck_assert_int_eq(s.sampling.seed, 42);
    ck_assert_int_eq(s.sampling.top_k, 40);
    engine_submit_parsed_free(&s);
    json_decref(body);
    body = json_loads("{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":2,\"forced\":[7,9],"
                      "\"stop\":[\"\\n\\n\",\"End\"],\"special\":[[0,1]]}",
                      0, NULL);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    ck_assert_uint_eq(s.forced_count, 2);
    ck_assert_uint_eq(s.forced[1], 9);
    ck_assert(s.special.count == 1 && s.special.at[0].from == 0 && s.special.at[0].to == 1);
    ck_assert_uint_eq(s.stops.count, 2);
    ck_assert_uint_eq(s.stops.bytes[0], 2);
    ck_assert_int_eq(memcmp(s.stops.text[1], "End", 3), 0);
    engine_submit_parsed_free(&s);
    json_decref(body);

    static const char *const bad[] = {
        "{\"prompt\":\"a\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"forced\":[]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"forced\":[\"a\"]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":1,\"forced\":[1,2]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"score_prompt\":true,\"forced\":[1]}",
        "{\"request_key\":\"\",\"prompt\":\"a\"}",
        "{\"request_key\":\"a b\",\"prompt\":\"a\"}",
        "{\"request_key\":7,\"prompt\":\"a\"}",
        "{\"request_key\":\"k\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ids\":[1]}",
        "{\"request_key\":\"k\",\"prompt\":7}",
        "{\"request_key\":\"k\",\"ids\":[]}",
        "{\"request_key\":\"k\",\"ids\":{}}",
        "{\"request_key\":\"k\",\"ids\":[-1]}",
        "{\"request_key\":\"k\",\"ids\":[1.5]}",
        "{\"request_key\":\"k\",\"ids\":[2147483648]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":-1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":16777217}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":1.0}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"logprobs\":101}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ignore_eos\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":true}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[0,1]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[0]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[0,2]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[-1,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[1,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"abcd\",\"special\":[[2,3],[0,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"abcd\",\"special\":[[0,2],[1,3]]}",
        "{\"request_key\":\"k\",\"ids\":[1],\"special\":[[0,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"score_prompt\":null}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"unknown\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ids,prompt\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":[]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":\"x\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":[\"\"]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":[1]}",
        ("{\"request_key\":\"k\",\"ids\":[1],"
         "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}"),
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top-k\":1}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_k\":1.5}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_p\":\"1\"}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_p\":2}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"seed\":-2}}",
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(submit_parse(bad[i], &s, &error) == -1, "row %u was taken", i);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(submit_parse("{\"request_key\":\"k\",\"prompt\":\"\"}", &s, &error), 0);
}
END_TEST

START_TEST(submit_sizes)
{
    struct engine_submit s;
    struct error error;
    char *long_text = malloc(ENGINE_PROMPT_BYTES_MAX + 2);
    memset(long_text, '"', ENGINE_PROMPT_BYTES_MAX + 1);
    long_text[ENGINE_PROMPT_BYTES_MAX + 1] = 0;
    json_t *body = json_pack("{s:s,s:s}", "request_key", "k", "prompt", long_text);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), -1);
    long_text[ENGINE_PROMPT_BYTES_MAX] = 0;
    json_object_set_new(body, "prompt", json_string(long_text));
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    size_t bytes;
    char *text = rpc_json_encode(body, &bytes); /* the longest prompt fits, even when escaped */
    ck_assert_ptr_nonnull(text);
    free(text);
    json_decref(body);
    free(long_text);

    json_t *ids = json_array();
    for (unsigned i = 0; i < ENGINE_PROMPT_IDS_MAX; i++)
        json_array_append_new(ids, json_integer(INT32_MAX));
    body = json_pack("{s:s,s:o}", "request_key", "k", "ids", ids);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    engine_submit_parsed_free(&s);
    text = rpc_json_encode(body, &bytes);
    ck_assert_ptr_nonnull(text);
    free(text);
    json_array_append_new(ids, json_integer(1));
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), -1);
    json_decref(body);
}
END_TEST

/* What a client asks for is what compute reads. */
static void marks_of_next(void)
{
    struct engine_marks sent = {.text = {"<|call|>", "<think>"}, .count = 2}, got;
    struct error error;
    uint64_t id, from;
    unsigned wait;
    for (int with = 0; with < 2; with++) {
        json_t *body = engine_next_request(7, 3, 100, with ? &sent : NULL);
        ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), 0);
        engine_next_marks(body, &got);
        ck_assert(id == 7 && from == 3 && wait == 100 && got.count == (with ? 2 : 0));
        ck_assert(!with ||
                  (strcmp(got.text[0], "<|call|>") == 0 && strcmp(got.text[1], "<think>") == 0));
        json_decref(body);
    }
}

/* As many marks as the table holds, and one more. */
static void many_marks(void)
{
    struct engine_marks got;
    struct error error;
    uint64_t id, from;
    unsigned wait;
    for (unsigned count = ENGINE_MARKS_MAX; count <= ENGINE_MARKS_MAX + 1; count++) {
        json_t *marks = json_array();
        for (unsigned i = 0; i < count; i++)
            json_array_append_new(marks, json_sprintf("<%u>", i));
        json_t *body = json_pack("{s:i, s:o}", "sequence", 1, "marks", marks);
        bool fits = count <= ENGINE_MARKS_MAX;
        ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), fits ? 0 : -1);
        if (fits) {
            engine_next_marks(body, &got);
            ck_assert(got.count == count && strcmp(got.text[count - 1], "<15>") == 0);
        } else {
            ck_assert_str_eq(error.text, "marks must be an array of at most 16 texts");
        }
        json_decref(body);
    }
}

START_TEST(next_and_cancel_fields)
{
    marks_of_next();
    many_marks();
    uint64_t id, from;
    unsigned wait;
    struct error error;
    json_t *body = json_loads("{\"v\":1,\"id\":\"x\",\"op\":\"next\",\"sequence\":7,\"from\":3,"
                              "\"wait_ms\":60000}",
                              0, NULL);
    ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), 0);
    ck_assert(id == 7 && from == 3 && wait == 60000);
    ck_assert_int_eq(engine_cancel_parse(body, &id, &error), -1); /* cancel has no key "from" */
    json_decref(body);
    static const char *const bad[] = {
        "{}",
        "{\"sequence\":-1}",
        "{\"sequence\":\"7\"}",
        "{\"sequence\":1,\"from\":-1}",
        "{\"sequence\":1,\"wait_ms\":60001}",
        "{\"sequence\":1,\"wait_ms\":-1}",
        "{\"sequence\":1,\"more\":1}",
        "{\"sequence\":1,\"marks\":\"x\"}",
        "{\"sequence\":1,\"marks\":[1]}",
        "{\"sequence\":1,\"marks\":[\"\"]}",
        ("{\"sequence\":1,\"marks\":[\"0123456789012345678901234567890123456789012345678901234567"
         "8901234\"]}"),
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        body = json_loads(bad[i], 0, NULL);
        ck_assert(body);
        ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), -1);
        json_decref(body);
    }
}
END_TEST

START_TEST(run_directories)
{
    char out[ENDPOINT_BYTES], path[ENDPOINT_BYTES], expected[256], longest[200];
    struct error error;
    static const char *const bad[] = {
        "", ".", "..", ".x", "a/b", "a b", "\xc3\xa9", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    setenv("SLUICE_RUN_DIR", scratch, 1);
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(run_dir_path(bad[i], out, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(run_dir_path("my.run-1_x", out, &error), 0);
    snprintf(expected, sizeof expected, "%s/my.run-1_x", scratch);
    ck_assert_str_eq(out, expected);
    ck_assert_int_eq(endpoint_path(out, ENDPOINT_CACHE_LOADER, 12, path, &error), 0);
    snprintf(expected, sizeof expected, "%s/my.run-1_x/cache-loader.12.sock", scratch);
    ck_assert_str_eq(path, expected);

    memset(longest, 'd', sizeof longest);
    longest[0] = '/';
    for (size_t n = 2; n < sizeof longest; n++) {
        char saved = longest[n];
        longest[n] = 0;
        setenv("SLUICE_RUN_DIR", longest, 1);
        if (run_dir_path("default", out, &error) == 0) {
            for (int e = 0; e < ENDPOINT__COUNT; e++)
                ck_assert_int_eq(endpoint_path(out, (enum endpoint)e, 9999, path, &error), 0);
        } else {
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
            ck_assert_uint_gt(n, 60);
        }
        longest[n] = saved;
    }
    unsetenv("SLUICE_RUN_DIR");
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    ck_assert_int_eq(run_dir_path("r", out, &error), 0);
    ck_assert_str_eq(out, "/run/user/7/sluice/r");
    unsetenv("XDG_RUNTIME_DIR");
    ck_assert_int_eq(run_dir_path("r", out, &error), 0);
    snprintf(expected, sizeof expected, "/tmp/sluice-%u/r", (unsigned)geteuid());
    ck_assert_str_eq(out, expected);
}
END_TEST

START_TEST(run_directories_are_private)
{
    struct error error;
    struct stat st;
    char dir[ENDPOINT_BYTES];
    snprintf(dir, sizeof dir, "%s", scratch_path("run")); /* scratch_path reuses its buffers */
    ck_assert_int_eq(run_dir_create(dir, &error), 0);
    ck_assert_int_eq(run_dir_create(dir, &error), 0); /* exists already: no error */
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    chmod(dir, 0750);
    ck_assert_int_eq(run_dir_create(dir, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    chmod(dir, 0700);
    chmod(scratch, 0777);
    ck_assert_int_eq(run_dir_create(dir, &error), -1);
    chmod(scratch, 0700);
    int fd = open(scratch_path("file"), O_CREAT | O_WRONLY, 0600);
    close(fd);
    ck_assert_int_eq(run_dir_create(scratch_path("file"), &error), -1);
    ck_assert_int_eq(run_dir_create("relative", &error), -1);
    if (geteuid() == 0) { /* root has no exemption: another owner of the parent, of the directory */
        ck_assert_int_eq(chown(scratch, 65534, 65534), 0);
        ck_assert_int_eq(run_dir_create(dir, &error), -1);
        ck_assert_int_eq(chown(scratch, 0, 0), 0);
        ck_assert_int_eq(chown(dir, 65534, 65534), 0);
        ck_assert_int_eq(run_dir_open(dir, &error), -1);
        ck_assert_int_eq(chown(dir, 0, 0), 0);
    }
    ck_assert_int_eq(symlink(dir, scratch_path("link")), 0);
    ck_assert_int_eq(run_dir_open(scratch_path("link"), &error), -1);
    unlink(scratch_path("link"));
    int opened = run_dir_open(dir, &error);
    ck_assert_int_ge(opened, 0);
    close(opened);
    ck_assert(endpoint_is_file("cache-loader.12.sock"));
    ck_assert(endpoint_is_file("cache-predictor.sock"));
    ck_assert(!endpoint_is_file("cache-loader..sock"));
    ck_assert(!endpoint_is_file("agent.sock"));

    ck_assert_int_eq(run_dir_state(dir), RUN_UNKNOWN);
    int lock = run_dir_lock(dir, 0, &error);
    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(run_dir_state(dir), RUN_LOCKED);
    uint64_t start = clock_now_ns();
    ck_assert_int_eq(run_dir_lock(dir, 100, &error), -1);
    ck_assert_uint_ge(clock_now_ns() - start, 100 * NS_PER_MS);
    ck_assert_int_eq(error.code, ERR_BUSY);
    char pid[24];
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    ck_assert_ptr_nonnull(strstr(error.text, pid));
    close(lock);
    ck_assert_int_eq(run_dir_state(dir), RUN_GONE);
    lock = run_dir_lock(dir, 0, &error);
    ck_assert_int_ge(lock, 0);
    close(lock);
    unlink(scratch_path("run/lock"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc client");
    TCase *tc = tcase_create("client");
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, sampling_from_text);
    tcase_add_test(tc, submit_fields);
    tcase_add_test(tc, submit_sizes);
    tcase_add_test(tc, next_and_cancel_fields);
    tcase_add_test(tc, run_directories);
    tcase_add_test(tc, run_directories_are_private);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
