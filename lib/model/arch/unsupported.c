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

/* Whole names, as many as there is space for. */
static void list_supported(char *list, size_t cap)
{
    size_t used = 0;
    for (int i = 0; i < ARCH_COUNT; i++) {
        const char *name = arch_list[i]->name;
        if (used + strlen(name) + sizeof ", and 999 more" > cap) {
            snprintf(list + used, cap - used, " and %d more", ARCH_COUNT - i);
            return;
        }
        used += (size_t)snprintf(list + used, cap - used, "%s%s", i ? ", " : "", name);
    }
}

int arch_reject(const struct gguf *g, const char *name, size_t bytes, struct error *error)
{
    char list[220]; /* with the path and the reason it fits an error */
    list_supported(list, sizeof list);
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++) {
        const char *known = unsupported[i].name;
        if (strlen(known) != bytes || memcmp(known, name, bytes) != 0)
            continue;
        if (unsupported[i].later || has_experts(g, known))
            return error_set(error, ERR_BAD_INPUT,
                             "architecture '%s' is not supported yet (supported: %s)", known, list);
        return error_set(error, ERR_BAD_INPUT,
                         "architecture '%s' is not a MoE model: use llama.cpp for it (llama-cli -m "
                         "FILE). Here run: %s",
                         known, list);
    }
    return error_set(error, ERR_BAD_INPUT, "architecture '%s' is not supported (supported: %s)",
                     printable(name, bytes).text, list);
}
