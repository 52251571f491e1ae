/* SPDX-License-Identifier: Apache-2.0 */
/* The test of models with one error, made of EDITS(X), which the including file defines before:
 *
 *   X(architecture, name, message, statements that change struct make *m)
 *
 * A model of one layer with that change must be rejected with the message. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_ARCH_EDITS_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_ARCH_EDITS_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/model/arch/table.h"
#include "lib/model/index/model_index.h"
#include "tests/unit/lib/model/gguf_make.h"

#define X(arch, name, message, ...)                                                                \
    static void arch##_##name(struct make *m)                                                      \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
EDITS(X)
#undef X

static const struct {
    const char *arch, *name, *message;
    void (*edit)(struct make *m);
} edits[] = {
#define X(arch, name, message, ...) {#arch, #name, message, arch##_##name},
    EDITS(X)
#undef X
};

START_TEST(bad_models_are_rejected)
{
    struct make m;
    struct error error = {0};
    char arch[32], *last;
    snprintf(arch, sizeof arch, "%s", edits[_i].arch);
    if (!arch_find(arch, strlen(arch)) && (last = strrchr(arch, '_')) != NULL)
        *last = '-'; /* a name of C has no hyphen */
    make_arch(&m, arch, 1, false);
    edits[_i].edit(&m);
    struct model_index *index = make_index(&m, &error);
    ck_assert_msg(!index, "%s %s: accepted", edits[_i].arch, edits[_i].name);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, edits[_i].message), "%s %s: '%s' lacks '%s'", edits[_i].arch,
                  edits[_i].name, error.text, edits[_i].message);
}
END_TEST

#endif
