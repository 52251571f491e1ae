/* SPDX-License-Identifier: Apache-2.0 */
/* Reads vectors, texts and NumPy files of the reference data. */
#include "tests/golden/reference.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"

struct golden_tally golden_tally;

const char *golden_path(const char *file)
{
    static char path[4096], made[4096];
    const char *dir = getenv("SLUICE_GOLDEN_DATA");
    snprintf(path, sizeof path, "%s/%s", dir ? dir : SLUICE_SOURCE_DIR "/tests/golden/data", file);
    snprintf(made, sizeof made, "%s/%s", SLUICE_GOLDEN_MADE, file);
    return access(path, F_OK) != 0 && access(made, F_OK) == 0 ? made : path;
}

const char *golden_demo_path(void)
{
    return SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf";
}

json_t *golden_json(const char *file)
{
    json_error_t why;
    json_t *root = json_load_file(golden_path(file), 0, &why);
    if (!root)
        log_fatal(1, "%s: %s", golden_path(file), why.text);
    return root;
}

static void models_of(const char *list, void (*each)(const char *path, const char *name))
{
    json_t *models = golden_json(list), *item;
    size_t i;
    sl_assert(json_array_size(models) > 0);
    json_array_foreach(models, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        char file[160], key[128];
        for (int q8 = 0; q8 <= json_is_true(json_object_get(item, "q8")); q8++) {
            snprintf(key, sizeof key, "%s%s", name, q8 ? "_q8" : "");
            snprintf(file, sizeof file, "arch/%s.gguf", key);
            each(golden_path(file), key);
        }
    }
    json_decref(models);
}

void golden_models(void (*each)(const char *path, const char *name))
{
    static const char *const lists[] = {
        "arch/arch.json",   "arch/router.json", "arch/minimax_m2.json",
        "arch/scaled.json", "arch/numpy.json",  "arch/oss.json",
        "arch/mla.json",    "arch/gemma4.json", "arch/recurrent.json"};
    each(golden_demo_path(), "demo");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        models_of(lists[i], each);
}

struct golden_ids golden_ids_of(const json_t *array)
{
    struct golden_ids ids = {.count = json_array_size(array)};
    ids.id = calloc(ids.count + 1, sizeof *ids.id);
    sl_assert(ids.id && json_is_array(array));
    for (size_t i = 0; i < ids.count; i++)
        ids.id[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

void golden_ids_free(struct golden_ids *ids)
{
    free(ids->id);
    ids->id = NULL;
}

char *golden_text(const char *file, size_t *bytes)
{
    FILE *f = fopen(golden_path(file), "rb");
    if (!f)
        log_fatal(1, "cannot open %s", golden_path(file));
    sl_assert(fseek(f, 0, SEEK_END) == 0);
    long size = ftell(f);
    sl_assert(size >= 0 && fseek(f, 0, SEEK_SET) == 0);
    char *text = malloc((size_t)size + 1);
    sl_assert(text && fread(text, 1, (size_t)size, f) == (size_t)size);
    text[size] = 0;
    *bytes = (size_t)size;
    fclose(f);
    return text;
}

/* Format: magic, version 1.0, little-endian header length, a Python dictionary, the data. */
float *golden_npy(const char *file, size_t *rows, size_t *columns)
{
    size_t bytes;
    char *all = golden_text(file, &bytes);
    const char *shape = strstr(all + 10, "'shape': (");
    sl_assert(bytes > 128 && memcmp(all, "\x93NUMPY\x01", 7) == 0 && shape);
    sl_assert(strstr(all + 10, "'<f4'") && strstr(all + 10, "'fortran_order': False"));
    sl_assert(sscanf(shape, "'shape': (%zu, %zu)", rows, columns) == 2);
    size_t header = 10 + (uint8_t)all[8] + 256 * (size_t)(uint8_t)all[9];
    size_t floats = *rows * *columns;
    sl_assert(bytes == header + floats * sizeof(float));
    float *values = malloc(floats * sizeof *values);
    sl_assert(values);
    memcpy(values, all + header, floats * sizeof *values);
    free(all);
    return values;
}

void golden_check(int ok, const char *fmt, ...)
{
    golden_tally.checks++;
    if (ok)
        return;
    golden_tally.failed++;
    va_list args;
    va_start(args, fmt);
    printf("FAILED: ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

int golden_result(const char *name)
{
    printf("%s: %u checks, %u failed\n", name, golden_tally.checks, golden_tally.failed);
    return golden_tally.failed ? 1 : 0;
}
