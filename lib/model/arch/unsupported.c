/* SPDX-License-Identifier: Apache-2.0 */
/* Why a file is rejected whose architecture is not in arch.tbl.h. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/text/printable.h"

static const struct {
    const char *name;
    bool later; /* it has experts */
} unsupported[] = {
#define LATER(name) {name, true},
#define DENSE(name) {name, false},
#include "lib/model/arch/unsupported.tbl.h"
};

static bool has_experts(const struct gguf *g, const char *arch)
{
    char key[80];
    uint64_t experts;
    snprintf(key, sizeof key, "%s.expert_count", arch);
    return gguf_get_uint(g, key, &experts, NULL) == 1 && experts > 0;
}

int arch_reject(const struct gguf *g, const char *name, size_t bytes, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++) {
        const char *known = unsupported[i].name;
        if (strlen(known) != bytes || memcmp(known, name, bytes) != 0)
            continue;
        return error_set(error, ERR_BAD_INPUT, "architecture '%s' %s", known,
                         unsupported[i].later || has_experts(g, known) ? "is not supported yet"
                                                                       : "is not a MoE model");
    }
    char list[300] = "";
    for (int i = 0; i < ARCH__COUNT; i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, arch_name((enum arch_id)i), sizeof list - strlen(list) - 1);
    }
    return error_set(error, ERR_BAD_INPUT, "architecture '%s' is not supported (supported: %s)",
                     printable(name, bytes).text, list);
}
