/* SPDX-License-Identifier: Apache-2.0 */
/* Items of --devices, and the resulting copies. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "procs/engine/child/run_cache.h"
#include "procs/engine/child/run_storage.h"

static struct params p, own;
static struct error e;
static struct storage_paths paths;

/* A model index with two stripes; with stripe_count 0, that of a GGUF file. */
static struct {
    struct model_index index;
    struct model_stripe stripes[2];
} model;

static void setup(void)
{
    params_defaults(&p);
    memset(&model, 0, sizeof model);
    model.index.stripes_offset = (uint64_t)((char *)model.stripes - (char *)&model);
    strcpy(model.stripes[0].path, "/s/experts.0.bin");
    strcpy(model.stripes[1].path, "/s/experts.1.bin");
}

static void set_storage(const char *text)
{
    ck_assert_int_eq(params_set(&p, "devices", text, &e), 0);
}

START_TEST(items_override_only_their_keys)
{
    set_storage("/a:queue_depth=8:throttle=100MB,:backend=pread,/b:x/c:io_size=64KiB:direct_io=off,"
                "/d:mirror=/e/f:queue_depth=2");
    ck_assert_uint_eq(storage_count(&p), 4);
    ck_assert_int_eq(storage_take(&p, 0, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, "/a");
    ck_assert_str_eq(paths.mirror, "");
    ck_assert_uint_eq(own.queue_depth, 8);
    ck_assert_uint_eq(own.throttle, 100000000);
    ck_assert_uint_eq(own.io_size, p.io_size);
    ck_assert_str_eq(own.backend, "auto");
    ck_assert_int_eq(storage_take(&p, 1, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, "");
    ck_assert_str_eq(own.backend, "pread");
    ck_assert_uint_eq(own.queue_depth, p.queue_depth); /* no settings of the previous item */
    ck_assert_int_eq(storage_take(&p, 2, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, "/b:x/c"); /* a colon within a path */
    ck_assert_uint_eq(own.io_size, 65536);
    ck_assert_uint_eq(own.direct_io, 0);
    ck_assert_int_eq(storage_take(&p, 3, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, "/d");
    ck_assert_str_eq(paths.mirror, "/e/f");
    ck_assert_uint_eq(own.queue_depth, 2);
    ck_assert_int_eq(storage_take(&p, 4, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, ""); /* beyond the list: the global parameters */
    ck_assert_mem_eq(&own, &p, sizeof p);
}
END_TEST

START_TEST(wrong_items_are_named)
{
    static const char *const cases[][2] = {
        {"/a,/b:depht=8", "device 1: unknown key 'depht'; expected one of: backend, queue_depth, "},
        {"/a:budget=1GiB", "device 0: unknown key 'budget'"},
        {"/a:queue_depth=0", "device 0: --queue-depth: 0 is out of range"},
        {"/a:backend=tape", "device 0: --backend: 'tape' is not one of"},
        {"/a:throttle=", "device 0: --throttle: '' is not a size"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rc = 0;
        set_storage(cases[i][0]);
        for (uint32_t n = 0; n < storage_count(&p) && rc == 0; n++)
            rc = storage_take(&p, n, &own, &paths, &e);
        ck_assert_int_eq(rc, -1);
        ck_assert_int_eq(e.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(e.text, cases[i][1]) != NULL, "%s: '%s'", cases[i][0], e.text);
    }
}
END_TEST

/* The copies as text, in order. */
static const char *copies_of(uint32_t loader, enum run_source source)
{
    static char text[RUN_COPIES_MAX * MODEL_PATH_BYTES];
    struct run_copies copies;
    ck_assert_msg(run_copies(&p, &model.index, "/m", loader, source, &copies, &e) == 0, "%s",
                  e.text);
    text[0] = 0;
    for (uint32_t i = 0; i < copies.count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, copies.path[i]);
    }
    return text;
}

START_TEST(copies_of_a_file)
{
    static const struct {
        const char *devices;
        uint32_t loader;
        const char *copies;
    } table[] = {
        {"", 0, "/m"},
        {"", 3, "/m"},
        {"/a,/b", 0, "/a /b /m"},
        {"/a,/b", 1, "/b /a /m"},
        {",/b", 0, "/m /b"},
        {",/b", 1, "/b /m"},
        {"/a,/b,/c,/d,/e", 1, "/b /c /d /e"}, /* up to the maximum of copies */
        {"/a:mirror=/x:queue_depth=1,/a", 0, "/a /x /m"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        set_storage(table[i].devices);
        ck_assert_str_eq(copies_of(table[i].loader, RUN_EXPERTS), table[i].copies);
        ck_assert_str_eq(copies_of(table[i].loader, RUN_DENSE), ""); /* the same file */
    }
}
END_TEST

/* The files of the index have holes in place of experts: no loader may read one of them there. */
START_TEST(copies_of_a_model_on_a_server)
{
    strcpy(p.origin, "nbd://host/m");
    set_storage("nbd://1.2.3.4/m,nbd://1.2.3.4/m:mirror=/x");
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS), "nbd://1.2.3.4/m");
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "nbd://1.2.3.4/m /x");
    ck_assert_str_eq(copies_of(0, RUN_DENSE), "/m");
    model.index.part_count = 2;
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "nbd://1.2.3.4/m /x");
    ck_assert_str_eq(copies_of(1, RUN_DENSE), "/s/experts.1.bin");
    ck_assert_ptr_eq(run_inspected(&model.index, 1, RUN_DENSE), &model.stripes[1].file);
    model.index.part_count = 0;
    model.index.stripe_count = 2;
    strcpy(model.stripes[1].mirror, "/mirror");
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "nbd://1.2.3.4/m /x");
    ck_assert_str_eq(copies_of(1, RUN_DENSE), "/m/model.gguf");
    ck_assert_ptr_eq(run_inspected(&model.index, 1, RUN_DENSE), &model.index.file);
}
END_TEST

/* Nothing but the origin has its URL, however many files there are: a parameter has 511 bytes. */
START_TEST(files_of_a_model_on_a_server)
{
    strcpy(p.origin, "https://host/a/m.gguf?x=1#address=1.2.3.4");
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS), p.origin);
    ck_assert_str_eq(copies_of(3, RUN_EXPERTS), p.origin); /* several loaders of one file */
    set_storage(":queue_depth=8,/b");
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS), "https://host/a/m.gguf?x=1#address=1.2.3.4 /b");
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "/b https://host/a/m.gguf?x=1#address=1.2.3.4");
    model.index.stripe_count = 2;
    strcpy(p.origin, "s3://bucket/a/manifest.json?endpoint=http://1.2.3.4:9");
    set_storage(":mirror=/x,/y");
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS),
                     "s3://bucket/a/experts.0.bin?endpoint=http://1.2.3.4:9 /x");
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "/y");
    model.index.part_count = 2;
    model.index.stripe_count = 0;
    memset(p.origin, 'a', sizeof p.origin - 1);
    memcpy(p.origin, "nbd://host/", strlen("nbd://host/"));
    memcpy(p.origin + sizeof p.origin - 3, "/m", 2);
    struct run_copies copies;
    set_storage("");
    ck_assert_int_eq(run_copies(&p, &model.index, "/m", 1, RUN_EXPERTS, &copies, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_INPUT);
}
END_TEST

START_TEST(copies_of_a_stripe)
{
    model.index.stripe_count = 2;
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS), "/s/experts.0.bin");
    set_storage("/copy/0,:mirror=/copy/1");
    ck_assert_str_eq(copies_of(0, RUN_EXPERTS), "/copy/0 /s/experts.0.bin");
    ck_assert_str_eq(copies_of(1, RUN_EXPERTS), "/s/experts.1.bin /copy/1");
    ck_assert_str_eq(copies_of(1, RUN_DENSE), "/m/model.gguf");
}
END_TEST

START_TEST(storage_devices_have_names)
{
    char text[256];
    static struct model_entry entries[2] = {{.in_store = 0}, {.in_store = 1}};
    set_storage("/a,/b");
    p.loaders = 2;
    model.index.entries_offset = (uint64_t)((char *)entries - (char *)&model);
    run_storage_text(&p, &model.index, "/m", 1, 1, text, sizeof text);
    ck_assert_str_eq(text, "loader.1's device /b");
    model.index.stripe_count = 2;
    set_storage("");
    run_storage_text(&p, &model.index, "/m", 1, 1, text, sizeof text);
    ck_assert_str_eq(text, "loader.1's device /s/experts.1.bin");
    run_storage_text(&p, &model.index, "/m", 1, 0, text, sizeof text);
    ck_assert_str_eq(text, "loader.1's device /m/model.gguf");
    run_storage_text(&p, &model.index, "/m", 9, 1, text, sizeof text); /* no such loader */
    ck_assert_str_eq(text, "loader.9");
}
END_TEST

/* Of the device, of all, and none; a colon may be in a directory. */
START_TEST(caches_have_a_directory_and_a_size)
{
    char directory[STORAGE_PATH_BYTES];
    uint64_t bytes;
    set_storage("nbd://a:77/:cache=/ssd/a:b:200GiB:mirror=/c,nbd://b/,:cache=/d,/x:cache=:1GiB");
    ck_assert_int_eq(params_set(&p, "device_cache", "/all:3GB", &e), 0);
    ck_assert_int_eq(storage_take(&p, 0, &own, &paths, &e), 0);
    ck_assert_str_eq(paths.path, "nbd://a:77/");
    ck_assert_str_eq(paths.mirror, "/c");
    ck_assert_int_eq(storage_cache(&own, directory, &bytes, &e), 0);
    ck_assert_str_eq(directory, "/ssd/a:b");
    ck_assert_uint_eq(bytes, 200 * GIB);
    ck_assert_int_eq(storage_take(&p, 1, &own, &paths, &e), 0);
    ck_assert_int_eq(storage_cache(&own, directory, &bytes, &e), 0);
    ck_assert_str_eq(directory, "/all");
    ck_assert_uint_eq(bytes, 3000000000);
    for (uint32_t i = 2; i < 4; i++) {
        ck_assert_int_eq(storage_take(&p, i, &own, &paths, &e), 0);
        ck_assert_int_eq(storage_cache(&own, directory, &bytes, &e), -1);
        ck_assert_ptr_nonnull(strstr(e.text, "DIR:SIZE"));
    }
    params_defaults(&p);
    ck_assert_int_eq(storage_cache(&p, directory, &bytes, &e), 0);
    ck_assert_str_eq(directory, "");
}
END_TEST

/* Its name has the model and the loader; slots are no more than experts; a local file has none. */
START_TEST(cache_files_have_a_shape)
{
    static struct {
        struct model_index index;
        struct model_entry entries[3];
    } m;
    static struct run_cache c;
    const uint8_t identity[16] = {0xab, 1};
    m.index.entries_offset = sizeof m.index;
    m.index.entry_count = 3; /* one dense tensor, two experts */
    for (uint32_t i = 1; i < 3; i++) {
        m.entries[i].kind = ENTRY_EXPERT;
        m.entries[i].extents = 1;
        m.entries[i].slot_bytes = m.entries[i].extent[0].read_bytes = i * 4 * (uint64_t)PAGE_BYTES;
    }
    set_storage("nbd://a/:cache=/ssd:64MiB");
    ck_assert(run_cache(&p, &m.index, "/m.gguf", identity, 0, &c));
    ck_assert_str_eq(c.path, "/ssd/sluice-ab010000000000000000000000000000-0-of-1.cache");
    ck_assert_uint_eq(c.slot_bytes, 9 * PAGE_BYTES);
    ck_assert_uint_eq(c.slots, 2);
    set_storage("nbd://a/:cache=/ssd:70000");
    ck_assert(run_cache(&p, &m.index, "/m.gguf", identity, 0, &c));
    ck_assert_uint_eq(c.slots, 1);
    set_storage("nbd://a/:cache=/ssd:9KiB");
    ck_assert(run_cache(&p, &m.index, "/m.gguf", identity, 0, &c));
    ck_assert_uint_eq(c.slots, 0);
    set_storage("/local:cache=/ssd:64MiB");
    ck_assert(!run_cache(&p, &m.index, "/m.gguf", identity, 0, &c) && !c.idle);
    m.index.entry_count = 1; /* a part of a split model without experts */
    ck_assert(!run_cache(&p, &m.index, "/m.gguf", identity, 0, &c) && !c.idle);
    set_storage("nbd://a/:cache=/ssd:64MiB");
    ck_assert(!run_cache(&p, &m.index, "/m.gguf", identity, 0, &c) && c.idle);
}
END_TEST

START_TEST(quarantine_words)
{
    uint32_t word = 5u << QUARANTINE_ERRNO_SHIFT, seen = 0;
    for (uint32_t source = 0; source < RUN_SOURCES; source++)
        for (uint32_t copy = 0; copy < RUN_COPIES_MAX; copy++) {
            uint32_t bit = quarantine_bit((enum run_source)source, copy);
            ck_assert_uint_eq(seen & bit, 0);
            seen |= bit;
        }
    ck_assert_int_eq(quarantine_errno(word | seen), 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_devices");
    TCase *t = tcase_create("run_devices");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, items_override_only_their_keys);
    tcase_add_test(t, wrong_items_are_named);
    tcase_add_test(t, copies_of_a_file);
    tcase_add_test(t, copies_of_a_stripe);
    tcase_add_test(t, copies_of_a_model_on_a_server);
    tcase_add_test(t, files_of_a_model_on_a_server);
    tcase_add_test(t, storage_devices_have_names);
    tcase_add_test(t, caches_have_a_directory_and_a_size);
    tcase_add_test(t, cache_files_have_a_shape);
    tcase_add_test(t, quarantine_words);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
