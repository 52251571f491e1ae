/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the clients: options removed from argv, lists of ids, lookups in the JSON stats. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/common/map.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/stream.h"

START_TEST(sampling_options_are_taken)
{
    char *argv[] = {"generate", "--temp", "0",  "-p",      "text", "--top_p=0.5", "--seed",
                    "-1",       "x",      "--", "--min-p", "1",    NULL};
    int argc = (int)ARRAY_LEN(argv) - 1;
    struct sampling s;
    struct error error;
    sampling_defaults(&s);
    ck_assert_int_eq(sampling_take_args(&s, &argc, argv, &error), 0);
    ck_assert_double_eq(s.temperature, 0);
    ck_assert_double_eq(s.top_p, 0.5);
    ck_assert_int_eq(s.seed, -1);
    ck_assert_double_eq(s.min_p, 0.05); /* after "--" nothing is an option */
    static const char *const left[] = {"generate", "-p", "text", "x", "--", "--min-p", "1"};
    ck_assert_int_eq(argc, (int)ARRAY_LEN(left));
    for (int i = 0; i < argc; i++)
        ck_assert_str_eq(argv[i], left[i]);
    ck_assert_ptr_null(argv[argc]);
}
END_TEST

/* As other short options, -s takes its value attached, too. A text that only begins with it is
 * none. */
START_TEST(short_seed)
{
    static const struct {
        const char *args[2];
        int64_t seed;
        int left;
    } rows[] = {{{"-s", "7"}, 7, 1},      {{"-s42", "x"}, 42, 2}, {{"-s-1", NULL}, -1, 1},
                {{"-shell", "x"}, 99, 3}, {{"-s=4", "x"}, 99, 3}, {{"--", "-s42"}, 99, 3}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *argv[] = {"generate", (char *)(uintptr_t)rows[i].args[0],
                        (char *)(uintptr_t)rows[i].args[1], NULL};
        int argc = rows[i].args[1] ? 3 : 2;
        struct sampling s;
        struct error error;
        sampling_defaults(&s);
        s.seed = 99;
        ck_assert_int_eq(sampling_take_args(&s, &argc, argv, &error), 0);
        ck_assert_msg(s.seed == rows[i].seed && argc == rows[i].left, "row %zu", i);
    }
}
END_TEST

START_TEST(bad_sampling_options_are_rejected)
{
    static const char *const bad[][2] = {
        {"--temp", "hot"},        {"--temp", "-1"}, {"--top-p", "1.5"},
        {"--top-k", "1.5"},       {"--seed", "-2"}, {"--seed", "99999999999999999999"},
        {"-s4x", NULL},           {"-s-2", NULL},   {"--min-p", "nan"},
        {"--repeat-penalty", ""}, {"--top-k", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char *argv[] = {"x", (char *)(uintptr_t)bad[i][0], (char *)(uintptr_t)bad[i][1], NULL};
        int argc = bad[i][1] ? 3 : 2;
        struct sampling s;
        struct error error = {.code = ERR_NONE};
        sampling_defaults(&s);
        ck_assert_msg(sampling_take_args(&s, &argc, argv, &error) == -1, "%s %s was taken",
                      bad[i][0], bad[i][1] ? bad[i][1] : "");
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_ptr_null(strchr(error.text, '\n'));
    }
}
END_TEST

START_TEST(ids_are_read)
{
    static const struct {
        const char *text;
        size_t count; /* 0: rejected */
        uint32_t last;
    } rows[] = {{"1", 1, 1},
                {"1,2,3", 3, 3},
                {"0,4294967294", 2, 4294967294u},
                {"", 0, 0},
                {",", 0, 0},
                {"1,", 0, 0},
                {"1,,2", 0, 0},
                {"1 2", 0, 0},
                {"-1", 0, 0},
                {"4294967295", 0, 0},
                {"99999999999999999999", 0, 0},
                {"1,x", 0, 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t *ids = NULL;
        size_t count = 0;
        struct error error;
        int result = option_ids(rows[i].text, &ids, &count, &error);
        ck_assert_msg((result == 0) == (rows[i].count > 0), "'%s'", rows[i].text);
        if (result == 0) {
            ck_assert_uint_eq(count, rows[i].count);
            ck_assert_uint_eq(ids[count - 1], rows[i].last);
            free(ids);
        }
    }
}
END_TEST

START_TEST(whole_numbers_are_read)
{
    int64_t value = 7;
    struct error error;
    ck_assert_int_eq(option_i64("-n", "12", 0, 100, &value, &error), 0);
    ck_assert_int_eq(value, 12);
    static const char *const bad[] = {"", "x", "1.5", "101", "-1", "9223372036854775808", "1 "};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ck_assert_int_eq(option_i64("-n", bad[i], 0, 100, &value, &error), -1);
    ck_assert_int_eq(value, 12);
}
END_TEST

static const char snapshot[] =
    "{\"state\":\"ready\",\"memory\":{\"budget_bytes\":4096,\"x\":-5},\"processes\":["
    "{\"service\":\"loader\",\"number\":0,\"pid\":7,\"restarts\":2,\"counters\":{\"reads\":10}},"
    "{\"service\":\"loader\",\"number\":1,\"pid\":8,\"restarts\":1,\"counters\":{\"reads\":5}},"
    "{\"service\":\"cache\",\"number\":0,\"counters\":\"none\"}],\"exits\":["
    "{\"service\":\"loader\",\"number\":1,\"pid\":3},{\"service\":\"cache\",\"number\":0,\"pid\":4}"
    "]}";

START_TEST(fields_are_found)
{
    json_t *doc = json_loads(snapshot, 0, NULL);
    ck_assert_ptr_nonnull(doc);
    ck_assert_uint_eq(lookup_processes(doc), 3);
    ck_assert_uint_eq(lookup_counter(doc, "loader", "reads"), 15);
    ck_assert_uint_eq(lookup_counter(doc, "cache", "reads"), 0);
    ck_assert_uint_eq(lookup_u64(lookup_process(doc, "loader", 1), "pid"), 8);
    ck_assert_ptr_null(lookup_process(doc, "loader", 2));
    ck_assert_uint_eq(lookup_restarts(doc), 3);
    char name[LOOKUP_NAME_BYTES];
    ck_assert_uint_eq(lookup_exits(doc), 2);
    ck_assert_str_eq(lookup_name(lookup_exit(doc, 0), name), "cache");
    ck_assert_str_eq(lookup_name(lookup_exit(doc, 1), name), "loader.1");
    ck_assert_ptr_null(lookup_exit(doc, 2));
    ck_assert_uint_eq(lookup_exits(NULL), 0);
    ck_assert_uint_eq(lookup_u64(doc, "memory.budget_bytes"), 4096);
    ck_assert_uint_eq(lookup_u64(doc, "memory.x"), 0);
    ck_assert_uint_eq(lookup_u64(doc, "memory.budget_bytes.deeper"), 0);
    ck_assert_str_eq(lookup_text(doc, "state"), "ready");
    ck_assert_str_eq(lookup_text(doc, "memory"), "");
    ck_assert_str_eq(lookup_text(NULL, "state"), "");
    ck_assert_str_eq(lookup_model(doc), "");
    json_object_set_new(doc, "model", json_pack("{s:s, s:s}", "name", "", "path", "a/b.gguf"));
    ck_assert_str_eq(lookup_model(doc), "b.gguf");
    json_object_set_new(doc, "model", json_pack("{s:s, s:s}", "name", "A b", "path", "a/b.gguf"));
    ck_assert_str_eq(lookup_model(doc), "A b");
    json_decref(doc);
}
END_TEST

/* Every documented key is present, also when the engine reports no statistics. */
START_TEST(progress_is_a_sentence)
{
    static const struct {
        struct engine_progress progress;
        const char *text;
    } rows[] = {
        {{.queue = 1, .tokens = 9, .left_ms = 5}, "1 request before this one"},
        {{.queue = 12}, "12 requests before this one"},
        {{.tokens = 4096, .done = 512, .left_ms = UINT64_MAX}, "prompt: 512 of 4096 tokens"},
        {{.tokens = 4096, .done = 512, .left_ms = 11001}, "prompt: 512 of 4096 tokens, 12 s left"},
        {{.tokens = 2, .done = 1, .left_ms = 119000}, "prompt: 1 of 2 tokens, 119 s left"},
        {{.tokens = 2, .done = 1, .left_ms = 119001}, "prompt: 1 of 2 tokens, 2 min left"},
    };
    char text[96], little[12];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        progress_text(&rows[i].progress, text, sizeof text);
        ck_assert_str_eq(text, rows[i].text);
        progress_text(&rows[i].progress, little, sizeof little);
        ck_assert_uint_lt(strlen(little), sizeof little);
    }
}
END_TEST

START_TEST(generation_stats_are_complete)
{
    static const char *const keys[] = {"text",          "ids",
                                       "finish",        "prompt_tokens",
                                       "tokens",        "ttft_ms",
                                       "prefill_tps",   "decode_tps",
                                       "tpot_ms",       "hits",
                                       "hits_inflight", "misses",
                                       "skipped",       "low_precision_accesses",
                                       "evictions",     "bytes_read",
                                       "stall_ms",      "budget_bytes",
                                       "arena_bytes",   "peak_memory_bytes",
                                       "preset",        "restarts",
                                       "gpu_lost"};
    struct stream_result result = {.finish = "length"};
    json_t *stats = generation_stats_make(&result, NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        ck_assert_msg(json_object_get(stats, keys[i]) != NULL, "no %s", keys[i]);
    json_decref(stats);
}
END_TEST

START_TEST(maps_are_read_and_drawn)
{
    static const char *const bad[] = {
        "{}",
        "{\"experts\": 4, \"rows\": [{\"layer\": 0, \"resident\": \"0..\", \"heat\": \"0000\"}]}",
        "{\"experts\": 4, \"rows\": [{\"layer\": 0, \"resident\": \"0..0\"}]}",
        "{\"experts\": 99999999, \"rows\": []}"};
    struct map map;
    struct error error;
    char line[16];
    json_t *reply =
        json_loads("{\"experts\": 8, \"tokens\": 5, \"rows\": [{\"layer\": 3, \"resident\": "
                   "\"0123.+..\", \"heat\": \"90125700\"}]}",
                   0, NULL);
    ck_assert_int_eq(map_read(reply, &map, &error), 0);
    ck_assert_uint_eq(map.row[0].layer, 3);
    ck_assert_uint_eq(map_resident(&map, 0), 4);
    ck_assert_uint_eq(map_cell(&map, 8), 1);
    ck_assert_uint_eq(map_cell(&map, 7), 2);
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_PRECISION, 1, line, sizeof line), "N842.+..");
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_HEAT, 1, line, sizeof line), "9012!+..");
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_PRECISION, 4, line, sizeof line), "#.");
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_PRECISION, 3, line, sizeof line), "#3.");
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_HEAT, 3, line, sizeof line), "92.");
    ck_assert_str_eq(map_line(&map, 0, MAP_VIEW_PRECISION, 1, line, 4), "N84");
    map_free(&map);
    json_decref(reply);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        reply = json_loads(bad[i], 0, NULL);
        ck_assert_msg(map_read(reply, &map, &error) == -1, "row %zu", i);
        json_decref(reply);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *cases = tcase_create("client");
    tcase_add_test(cases, sampling_options_are_taken);
    tcase_add_test(cases, short_seed);
    tcase_add_test(cases, bad_sampling_options_are_rejected);
    tcase_add_test(cases, ids_are_read);
    tcase_add_test(cases, whole_numbers_are_read);
    tcase_add_test(cases, fields_are_found);
    tcase_add_test(cases, progress_is_a_sentence);
    tcase_add_test(cases, generation_stats_are_complete);
    tcase_add_test(cases, maps_are_read_and_drawn);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
