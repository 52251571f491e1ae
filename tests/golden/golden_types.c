/* SPDX-License-Identifier: Apache-2.0 */
/* The reference decoder against the Python package gguf (type_vectors.py): every element of every
 * block bit for bit, NaN as NaN; and that codes, scales and minimums stay within the limits that
 * unpack.tbl.h states, which products rely on.
 *
 * usage: golden_types [DIR]   DIR: more vectors, written by type_vectors.py --random N DIR */
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/tensor/half.h"
#include "lib/tensor/unpack/unpack.h"
#include "tests/golden/reference.h"

static const uint32_t types[] = {
#define UNPACK(name, ...) TENSOR_##name,
#include "lib/tensor/unpack/unpack.tbl.h"
};

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || bits_of(a) == bits_of(b);
}

static bool within(const int16_t *values, uint32_t count, int16_t max)
{
    for (uint32_t i = 0; i < count; i++)
        if (abs(values[i]) > max)
            return false;
    return true;
}

/* The unit keeps the promises of its row. */
static bool limits_hold(const struct unpack_info *info, const struct unpacked *u)
{
    bool good = within(u->scale, info->unit / UNPACK_SUB, info->scale_max) &&
                within(u->min, info->unit / UNPACK_SUB, info->min_max) &&
                (info->minimums || bits_of(u->dmin) == 0);
    for (uint32_t i = 0; i < info->unit; i++) {
        uint32_t at = i / UNPACK_SUB, first = i / info->sub * info->sub / UNPACK_SUB;
        good = good && abs(u->code[i]) <= info->code_max && u->scale[at] == u->scale[first] &&
               u->min[at] == u->min[first];
    }
    return good;
}

static void check_limits(const struct tensor_type_info *type, const uint8_t *blocks, size_t count)
{
    const struct unpack_info *info = unpack_info(type->ggml_id);
    sl_assert(type->block_elems % info->unit == 0 && info->unit % info->sub == 0);
    size_t bad = 0;
    for (size_t b = 0; b < count; b++) {
        for (uint32_t p = 0; p < type->block_elems / info->unit; p++) {
            struct unpacked u;
            memset(&u, 0xa5, sizeof u);
            info->unpack(blocks + b * type->block_bytes, p, &u);
            bad += !limits_hold(info, &u);
        }
    }
    golden_check(bad == 0, "%s: %zu units are beyond the limits of unpack.tbl.h", type->name, bad);
}

static void check_values(const struct tensor_type_info *type, const uint8_t *blocks,
                         const float *want, size_t count)
{
    float *got = calloc(count * type->block_elems, sizeof *got);
    sl_assert(got);
    unpack_row(type->ggml_id, blocks, count * type->block_elems, got);
    size_t wrong = 0, first = 0;
    for (size_t i = count * type->block_elems; i-- > 0;) {
        if (!same(got[i], want[i])) {
            wrong++;
            first = i;
        }
    }
    golden_check(wrong == 0, "%s: %zu elements differ, first %zu of block %zu: %a instead of %a",
                 type->name, wrong, first % type->block_elems, first / type->block_elems,
                 (double)got[first], (double)want[first]);
    free(got);
}

static void check_type(const char *dir, const struct tensor_type_info *type)
{
    char file[4096], name[32] = {0};
    for (size_t i = 0; type->name[i] != '\0' && i + 1 < sizeof name; i++)
        name[i] = (char)tolower((unsigned char)type->name[i]);
    snprintf(file, sizeof file, "%s/%s.bin", dir, name);
    FILE *f = fopen(file, "rb");
    golden_check(f != NULL, "cannot open %s", file);
    if (!f)
        return;
    sl_assert(fseek(f, 0, SEEK_END) == 0);
    size_t bytes = (size_t)ftell(f), elems_bytes = type->block_elems * sizeof(float);
    size_t count = bytes / (type->block_bytes + elems_bytes);
    golden_check(count > 0 && bytes == count * (type->block_bytes + elems_bytes),
                 "%s has %zu bytes", file, bytes);
    uint8_t *blocks = malloc(count * type->block_bytes + 1);
    float *want = malloc(count * elems_bytes + 1);
    sl_assert(blocks && want && fseek(f, 0, SEEK_SET) == 0 &&
              fread(blocks, type->block_bytes, count, f) == count &&
              fread(want, elems_bytes, count, f) == count);
    fclose(f);
    check_values(type, blocks, want, count);
    check_limits(type, blocks, count);
    printf("%-8s %zu blocks\n", type->name, count);
    free(blocks);
    free(want);
}

/* Other reference data are used for files that the build makes, too. */
static void check_place(void)
{
    static const char file[] = "arch/olmoe_a_q8.gguf";
    char dir[] = "/tmp/golden-types-XXXXXX", arch[64], path[64];
    char *made = strdup(golden_path(file));
    sl_assert(made && mkdtemp(dir) && setenv("SLUICE_GOLDEN_DATA", dir, 1) == 0);
    golden_check(strcmp(golden_path(file), made) == 0, "%s is not that of the build", file);
    snprintf(arch, sizeof arch, "%s/arch", dir);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = mkdir(arch, 0700) == 0 ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    sl_assert(fd >= 0);
    close(fd);
    golden_check(strcmp(golden_path(file), path) == 0, "%s is not that of SLUICE_GOLDEN_DATA",
                 file);
    unlink(path);
    rmdir(arch);
    rmdir(dir);
    free(made);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : golden_path("types");
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        check_type(dir, tensor_type_info(types[t]));
    check_place();
    return golden_result("golden_types");
}
