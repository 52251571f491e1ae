/* SPDX-License-Identifier: Apache-2.0 */
/* store_seeds DIR MODEL: writes seeds of the fuzz target store into DIR (see store_fuzz.c), made
 * from stores of a small model: valid ones of several shapes, and some with one error. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/lib/model/store_make.h"

#include "lib/model/limits.h"

static char work[] = "/tmp/sluice-seeds-XXXXXX";

static size_t slurp(const char *name, char *buf, size_t cap)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", work, name);
    FILE *in = fopen(path, "r");
    size_t n = in ? fread(buf, 1, cap, in) : 0;
    if (in)
        fclose(in);
    return n;
}

static void write_seed(const char *dir, const char *name, unsigned flags, const char *text,
                       size_t text_bytes, const char *table, size_t table_bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    unsigned char head[4] = {(unsigned char)flags, (unsigned char)text_bytes,
                             (unsigned char)(text_bytes >> 8), (unsigned char)(text_bytes >> 16)};
    if (!out || fwrite(head, 1, 4, out) != 4 || fwrite(text, 1, text_bytes, out) != text_bytes ||
        fwrite(table, 1, table_bytes, out) != table_bytes || fclose(out) != 0) {
        perror(path);
        exit(1);
    }
}

static const struct {
    const char *name;
    struct store_make how;
    const char *find, *replace; /* in the manifest */
    int word;                   /* of the table, to be set to ~0; -1: none */
    unsigned flags;
} seeds[] = {
    {"one", {.stripes = 1, .precision_mask = 1}, "", "", -1, 0},
    {"three", {.stripes = 3, .precision_mask = 5}, "", "", -1, 0},
    {"all", {.stripes = 2, .precision_mask = 15}, "", "", -1, 0},
    {"scattered", {.stripes = 2, .precision_mask = 3, .scattered = true}, "", "", -1, 0},
    {"made", {.stripes = 1, .precision_mask = 1}, "", "", -1, 1},
    {"sixteen", {.stripes = 16, .precision_mask = 2}, "", "", -1, 0},
    {"absent", {.stripes = 1, .precision_mask = 1}, "", "", 8, 0},
    {"head", {.stripes = 1, .precision_mask = 1}, "", "", 6, 0},
    {"version", {.stripes = 1, .precision_mask = 1}, "\"version\": 1", "\"version\": 2", -1, 0},
    {"unknown", {.stripes = 1, .precision_mask = 1}, "\"info\"", "\"more\"", -1, 0},
    {"type", {.stripes = 1, .precision_mask = 1}, "F32", "F99", -1, 0},
    {"shape", {.stripes = 1, .precision_mask = 1}, "\"k\": 4", "\"k\": 8", -1, 0},
    {"layers", {.stripes = 1, .precision_mask = 1}, "\"layers\": ", "\"layers\": 1", -1, 1},
    {"experts", {.stripes = 1, .precision_mask = 1}, "\"experts\": 3", "\"experts\": 2", -1, 1},
    {"hash", {.stripes = 1, .precision_mask = 1}, "\"id\": \"", "\"id\": \"g", -1, 0},
    {"stripe", {.stripes = 1, .precision_mask = 1}, "\"bytes\": ", "\"bytes\": 3", -1, 0},
    {"deep", {.stripes = 1, .precision_mask = 1}, "\"a test\"", "[[[[{}]], 1.5e300]]", -1, 0},
    {"delta",
     {.stripes = 1, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"path\": \"../model.gguf\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     1},
    {"delta_changed",
     {.stripes = 1, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"path\": \"../model.gguf\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     3},
    {"delta_native",
     {.stripes = 1, .precision_mask = 1, .spread = true},
     "{",
     "{\"base\": {\"path\": \"../model.gguf\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     1},
    {"delta_hash",
     {.stripes = 1, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"path\": \"../model.gguf\", \"hash\": \"0123456789abcdefx123456789abcdef\"},",
     -1,
     1},
    {"delta_path",
     {.stripes = 1, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"path\": \"\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     1},
    {"delta_more",
     {.stripes = 1, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"paths\": \"../model.gguf\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     1},
    {"delta_stripes",
     {.stripes = 2, .precision_mask = 8, .spread = true},
     "{",
     "{\"base\": {\"path\": \"../model.gguf\", \"hash\": \"0123456789abcdef0123456789abcdef\"},",
     -1,
     1},
};

int main(int argc, char **argv)
{
    static char text[100000], edited[100100], table[100000];
    struct error error;
    if (argc != 3 || !mkdtemp(work))
        return 2;
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        if (store_make(argv[2], work, &seeds[i].how, &error) != 0) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        size_t text_bytes = slurp(STORE_MANIFEST_FILE, text, sizeof text - 1);
        size_t table_bytes = slurp(STORE_ENTRIES_FILE, table, sizeof table);
        text[text_bytes] = 0;
        char *at = strstr(text, seeds[i].find);
        int before = at ? (int)(at - text) : 0;
        snprintf(edited, sizeof edited, "%.*s%s%s", before, text, at ? seeds[i].replace : "",
                 text + before + (at ? strlen(seeds[i].find) : 0));
        if (seeds[i].word >= 0)
            memset(table + 8 * seeds[i].word, 0xff, 8);
        write_seed(argv[1], seeds[i].name, seeds[i].flags, edited, strlen(edited), table,
                   table_bytes);
    }
    static const char *const made[] = {STORE_MANIFEST_FILE, STORE_MODEL_FILE, STORE_ENTRIES_FILE};
    char path[PATH_MAX];
    for (unsigned i = 0; i < 3 + MODEL_STRIPES_MAX; i++) {
        if (i < 3)
            snprintf(path, sizeof path, "%s/%s", work, made[i]);
        else
            snprintf(path, sizeof path, "%s/" STORE_STRIPE_FILE, work, i - 3);
        unlink(path);
    }
    return rmdir(work) == 0 ? 0 : 1;
}
