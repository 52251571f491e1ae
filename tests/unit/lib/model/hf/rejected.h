/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of Hugging Face for tests of what is rejected: they are made, and opened. */
#ifndef SLUICE_TEST_HF_REJECTED_H
#define SLUICE_TEST_HF_REJECTED_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/model/hf/hf.h"
#include "tests/unit/lib/model/hf_make.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data"

static char dir[] = "/tmp/sluice-hf-XXXXXX";

static inline void setup(void)
{
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static inline void teardown(void)
{
    hf_unmake(dir);
}

static inline void expect_rejected(const char *reason)
{
    struct hf_model hf;
    struct error error = {0};
    ck_assert_msg(hf_open(&hf, dir, &error) == -1, "taken: %s", reason);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' instead of '%s'", error.text, reason);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}

/* reason NULL: it is taken. */
static inline void expect(const char *reason)
{
    struct hf_model hf;
    struct error error;
    if (reason) {
        expect_rejected(reason);
        return;
    }
    ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
    hf_close(&hf);
}

static inline void make_moved(const char *model, void (*edit)(json_t *config, json_t *tokenizer))
{
    char path[300], names[300];
    const char *folder = strchr(model, '-') ? "converted" : "arch";
    snprintf(path, sizeof path, DATA "/%s/%s.gguf", folder, model);
    snprintf(names, sizeof names, DATA "/hf/%s.json", model);
    hf_make(&(struct hf_make){.gguf = path, .dir = dir, .names = names, .edit = edit});
}

#endif
