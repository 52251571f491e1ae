/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured rates: written and read again, damaged and foreign ones, limits. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/rates/rates.h"
#include "tests/unit/lib/model/gguf_make.h"

static struct rates rates, again;
static struct error error;
static char dir[64], file[128];

static struct rates_cpu a_cpu(uint32_t threads, const char *type, double rate)
{
    struct rates_cpu c = {.name = "a CPU",
                          .threads = threads,
                          .rate = {.dense = rate, .experts = 2 * rate},
                          .machine = {.memory = 3 * rate, .storage = 4, .arithmetic = 5}};
    snprintf(c.type, sizeof c.type, "%s", type);
    return c;
}

static struct rates_gpu a_gpu(uint32_t number, double rate)
{
    return (struct rates_gpu){
        .name = "a GPU",
        .number = number,
        .interface = 5,
        .rate = {.product = {rate, 2, 3, 0}, .pinned = 4, .pageable = 5, .wait_s = 0.25}};
}

static void make(void)
{
    snprintf(dir, sizeof dir, "/tmp/sluice-rates-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/sluice/rates.json", dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    memset(&rates, 0, sizeof rates);
    struct rates_cpu c = a_cpu(4, "Q4_K", 100);
    struct rates_gpu g = a_gpu(0, 7);
    rates_set_cpu(&rates, &c);
    rates_set_gpu(&rates, &g);
}

static void remove_files(void)
{
    char path[96];
    unlink(file);
    snprintf(path, sizeof path, "%s/sluice", dir);
    rmdir(path);
    rmdir(dir);
}

static double found_cpu(uint32_t threads, const char *type)
{
    struct rates_cpu wanted = a_cpu(threads, type, 0);
    const struct rates_cpu *c = rates_find_cpu(&again, &wanted);
    return c ? c->rate.dense : 0;
}

static double found_gpu(uint32_t number, uint32_t interface, const char *name)
{
    struct rates_gpu wanted = {.number = number, .interface = interface};
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    const struct cost_gpu *g = rates_find_gpu(&again, &wanted);
    return g ? g->product[0] : 0;
}

START_TEST(written_and_read)
{
    ck_assert_int_eq(rates_read(&again, &error), 0); /* there is no file */
    ck_assert(again.cpus == 0 && again.gpus == 0);
    ck_assert_msg(rates_write(&rates, &error) == 0, "%s", error.text);
    ck_assert_msg(rates_read(&again, &error) == 0, "%s", error.text);
    ck_assert_mem_eq(&again, &rates, sizeof rates);
    ck_assert_double_eq(found_cpu(4, "Q4_K"), 100);
    ck_assert_double_eq(found_cpu(5, "Q4_K"), 0);
    ck_assert_double_eq(found_cpu(4, "Q8_0"), 0);
    ck_assert_double_eq(found_gpu(0, 5, "a GPU"), 7);
    ck_assert_double_eq(found_gpu(1, 5, "a GPU"), 0);
    ck_assert_double_eq(found_gpu(0, 6, "a GPU"), 0);
    ck_assert_double_eq(found_gpu(0, 5, "another GPU"), 0);
}
END_TEST

/* The same CPU or GPU has one row; beyond the limit the oldest goes. */
START_TEST(rows_are_replaced)
{
    struct rates_cpu c = a_cpu(4, "Q4_K", 200);
    rates_set_cpu(&rates, &c);
    ck_assert_uint_eq(rates.cpus, 1);
    for (uint32_t i = 0; i < RATES_CPUS_MAX; i++) {
        c = a_cpu(10 + i, "Q4_K", 10 + i);
        rates_set_cpu(&rates, &c);
    }
    for (uint32_t i = 0; i < RATES_GPUS_MAX; i++) {
        struct rates_gpu g = a_gpu(1 + i, 10 + i);
        rates_set_gpu(&rates, &g);
    }
    again = rates;
    ck_assert(again.cpus == RATES_CPUS_MAX && again.gpus == RATES_GPUS_MAX);
    ck_assert_double_eq(found_cpu(4, "Q4_K"), 0);
    ck_assert_double_eq(found_cpu(10, "Q4_K"), 10);
    ck_assert_double_eq(found_gpu(0, 5, "a GPU"), 0);
    ck_assert_double_eq(found_gpu(RATES_GPUS_MAX, 5, "a GPU"), 9 + RATES_GPUS_MAX);
    ck_assert_msg(rates_write(&rates, &error) == 0, "%s", error.text);
}
END_TEST

/* A text in place of another one makes the file wrong. */
START_TEST(damaged_files)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"sluice-rates", "sluice-rules"},
        {"\"version\": 1", "\"version\": 2"},
        {"\"version\": 1", "\"version\": 1.0"},
        {"\"number\": 0", "\"number\": -1"},
        {"\"number\": 0", "\"number\": 65536"},
        {"\"number\": 0", "\"number\": \"0\""},
        {"100.0", "1e16"},
        {"100.0", "0.0"},
        {"100.0", "-1.0"},
        {"100.0", "\"x\""},
        {"\"pinned\": 4.0", "\"pinned\": 0.0"},
        {"wait_s", "wait"},
        {"product", "products"},
        {"0.25", "2.0"},
        {"a CPU", "a\\nCPU"},
        {"\"Q4_K\"", "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\""},
        {"\"cpus\"", "\"CPUs\""},
        {"\"gpus\"", "\"GPUs\""},
        {"\"F16\"", "\"F17\""},
    };
    char *text = rates_format(&rates, &error), changed[4096];
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        const char *at = strstr(text, changes[i].from);
        ck_assert_msg(at != NULL, "no %s in %s", changes[i].from, text);
        int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, changes[i].to,
                         at + strlen(changes[i].from));
        ck_assert_msg(rates_parse(changed, (size_t)n, &again, &error) == -1, "accepted: %s",
                      changes[i].to);
        ck_assert(error.code == ERR_BAD_INPUT && again.cpus == 0 && again.gpus == 0);
    }
    for (size_t n = 0; n < strlen(text); n++)
        ck_assert_int_eq(rates_parse(text, n, &again, &error), -1);
    free(text);
}
END_TEST

START_TEST(files_that_are_not_read)
{
    ck_assert_int_eq(rates_write(&rates, &error), 0);
    ck_assert_int_eq(truncate(file, 10), 0);
    ck_assert_int_eq(rates_read(&again, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "rates.json is ignored: "));
    ck_assert_int_eq(truncate(file, RATES_BYTES_MAX + 1), 0);
    ck_assert_int_eq(rates_read(&again, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "longer than"));
    unlink(file);
    ck_assert_int_eq(symlink("/dev/null", file), 0);
    ck_assert_int_eq(rates_read(&again, &error), -1);
    ck_assert_int_eq(error.code, ERR_IO);
    struct rates_gpu g = a_gpu(3, 2e15);
    rates_set_gpu(&rates, &g);
    ck_assert_ptr_null(rates_format(&rates, &error));
}
END_TEST

/* ---- bytes of a model ---- */

/* All dense weights but an embedding that is read by rows, and one expert of each layer; keys and
 * values of half of the context, and states of layers that have them. */
static void check_model(const char *arch, unsigned layers)
{
    static const double hits[] = {0, 0.5, 0.75, 1};
    struct make m;
    struct rates_model r;
    make_arch(&m, arch, layers, true);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index != NULL, "%s", error.text);
    const struct model_hparams *h = &index->hparams;
    ck_assert_uint_eq(h->experts, 3);
    ck_assert_int_eq(rates_model(index, KV_TYPE_F16, 128, 0, hits, &r, &error), 0);
    ck_assert_double_eq(r.cost.hits[2], 0.75);
    uint64_t dense = cost_bytes_sum(&r.cost.output), want = 0;
    for (uint32_t l = 0; l < layers; l++) {
        const struct model_entry *e = &model_index_entries(index)[model_entry_expert(index, l, 0)];
        bool recurrent = h->layer_kind[l] == LAYER_RECURRENT;
        ck_assert_uint_eq(cost_bytes_sum(&r.layer[l].expert), e->payload_bytes);
        ck_assert_uint_eq(r.layer[l].kv,
                          recurrent ? model_recurrent_of(h, l).floats * sizeof(float)
                                    : model_kv_bytes(h, l, KV_SIDE_KEYS, KV_TYPE_F16, 64) +
                                          model_kv_bytes(h, l, KV_SIDE_VALUES, KV_TYPE_F16, 64));
        ck_assert_uint_gt(cost_bytes_sum(&r.layer[l].dense), 0);
        dense += cost_bytes_sum(&r.layer[l].dense);
    }
    for (uint32_t i = 0; i < index->dense_count; i++)
        if (model_index_entries(index)[i].role != DENSE_TOKEN_EMBD)
            want += model_index_entries(index)[i].payload_bytes;
    bool tied = model_entry_dense(index, layers, DENSE_OUTPUT) == ENTRY_NONE;
    if (tied)
        want += model_index_entries(index)[model_entry_dense(index, layers, DENSE_TOKEN_EMBD)]
                    .payload_bytes;
    ck_assert_uint_eq(dense, want);
    char key[RATES_TYPE_BYTES], other[RATES_TYPE_BYTES], start[64];
    const struct model_matrix *w =
        model_index_entries(index)[model_entry_expert(index, 0, 0)].matrix;
    rates_key(index, "auto", key);
    rates_key(index, "generic", other);
    snprintf(start, sizeof start, "%s %ux%u, %u layers", tensor_type_info((uint32_t)w->type)->name,
             w->n, w->k, layers);
    ck_assert_msg(strncmp(key, start, strlen(start)) == 0 && strcmp(key, other) != 0, "%s", key);
    rates_model_free(&r);
    free(index);
}

START_TEST(bytes_of_a_model)
{
    check_model("qwen3moe", 2);
    check_model("qwen35moe", 2);
}
END_TEST

/* Where an indexer chooses 32 positions, these and all of its keys: of a context of 128 half. */
START_TEST(bytes_of_chosen_positions)
{
    static const double hits[] = {0, 0.5, 0.75, 1};
    struct make m;
    struct rates_model r;
    make_arch(&m, "glm-dsa", 2, true);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(index != NULL, "%s", error.text);
    const struct model_hparams *h = &index->hparams;
    ck_assert_int_eq(rates_model(index, KV_TYPE_F16, 128, 0, hits, &r, &error), 0);
    for (uint32_t l = 0; l < h->layers; l++)
        ck_assert_uint_eq(r.layer[l].kv, 2 * (32 * h->head_size + 64 * h->index_size));
    rates_model_free(&r);
    ck_assert_int_eq(rates_model(index, KV_TYPE_F16, 64, 0, hits, &r, &error), 0);
    for (uint32_t l = 0; l < h->layers; l++)
        ck_assert_uint_eq(r.layer[l].kv, 2 * 32 * h->head_size);
    rates_model_free(&r);
    free(index);
}
END_TEST

/* ---- the bound ---- */

START_TEST(longest_of_three)
{
    static const struct rates_machine machine = {.memory = 10, .storage = 2, .arithmetic = 100};
    static const struct {
        struct rates_pass pass;
        double s;
        const char *limit;
    } rows[] = {
        {{.memory_bytes = 30, .storage_bytes = 2, .row_bytes = 100}, 3, "memory"},
        {{.memory_bytes = 30, .storage_bytes = 8, .row_bytes = 100}, 4, "storage"},
        {{.memory_bytes = 30, .storage_bytes = 8, .row_bytes = 700}, 7, "arithmetic"},
        {{.memory_bytes = 0}, 0, "unknown"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rates_bound b = rates_bound(&machine, &rows[i].pass);
        ck_assert_double_eq(b.pass_s, rows[i].s);
        ck_assert_str_eq(b.limit, rows[i].limit);
    }
    static const struct rates_machine unknown = {.storage = 2};
    struct rates_bound b = rates_bound(&unknown, &rows[2].pass);
    ck_assert_double_eq(b.pass_s, 4); /* what is unknown does not count */
    ck_assert_str_eq(b.limit, "storage");
}
END_TEST

/* Two layers, one with experts: dense weights once, the experts of the pass once, keys and values
 * for each row; multiplications for each row. */
START_TEST(bytes_of_a_pass)
{
    static const struct cost_layer layers[] = {
        {.dense = {{100, 0, 0, 0, 0}}, .kv = 7},
        {.dense = {{20, 30, 0, 0, 0}}, .expert = {{0, 0, 0, 0, 1000}}, .kv = 3}};
    static const struct cost_model model = {
        .layers = 2, .experts = 8, .top_k = 2, .layer = layers, .output = {{0, 50, 0, 0, 0}}};
    static const struct rates_counts counts = {
        .rows = 4, .experts = 5, .expert_rows = 8, .bytes_read = 1500};
    struct rates_pass p = rates_pass_of(&model, &counts);
    ck_assert_double_eq(p.memory_bytes, 200 + 5 * 1000 + 4 * 10);
    ck_assert_double_eq(p.storage_bytes, 1500);
    ck_assert_double_eq(p.row_bytes, 4 * 200 + 8 * 1000);
}
END_TEST

/* Files of earlier versions have no rates of memory and storage. */
START_TEST(machine_is_optional)
{
    static const char text[] =
        "{\"format\": \"sluice-rates\", \"version\": 1, \"cpus\": [{\"name\": \"a CPU\", "
        "\"threads\": 4, \"type\": \"Q4_K\", \"dense\": 1.0, \"experts\": 2.0}], \"gpus\": []}";
    ck_assert_msg(rates_parse(text, sizeof text - 1, &again, &error) == 0, "%s", error.text);
    ck_assert_double_eq(again.cpu[0].machine.memory, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rates");
    TCase *t = tcase_create("rates");
    tcase_add_checked_fixture(t, make, remove_files);
    tcase_add_test(t, written_and_read);
    tcase_add_test(t, longest_of_three);
    tcase_add_test(t, bytes_of_a_pass);
    tcase_add_test(t, machine_is_optional);
    tcase_add_test(t, rows_are_replaced);
    tcase_add_test(t, damaged_files);
    tcase_add_test(t, files_that_are_not_read);
    tcase_add_test(t, bytes_of_a_model);
    tcase_add_test(t, bytes_of_chosen_positions);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
