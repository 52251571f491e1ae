/* SPDX-License-Identifier: Apache-2.0 */
/* Finds or makes the model that a test uses. */
#include <stdio.h>
#include <unistd.h>

#include "tests/harness/internal.h"

#define SYNTH_MS 60000

static const char *made_type;

void model_set_type(const char *type)
{
    made_type = type;
}

bool test_demo(void)
{
    return !made_type;
}

/* As many layers and experts as the demo model has, and experts of about the same size, so that the
 * same budgets are scarce; but rows that super-blocks fit. */
static void make(const char *path)
{
    struct command c;
    command_run(&c, NULL, SYNTH_MS,
                (const char *const[]){"synth", "-q", "-o", path, "tiny", "layers=8", "hidden=256",
                                      "heads=4", "kv_heads=2", "head_size=64", "experts=32",
                                      "expert_inner=256", "vocab=4096", "skew=0.3", "locality=0.4",
                                      "--type", made_type, NULL});
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
}

const char *test_model(void)
{
    static char path[PATH_MAX];
    if (test_demo())
        return SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf";
    path_in_dir(path, "made.gguf");
    if (access(path, F_OK) != 0)
        make(path);
    return path;
}
