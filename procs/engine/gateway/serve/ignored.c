/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that clients send although they have no effect here: one line of the log per name, so that
 * a person finds out why a setting changes nothing. */
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/serve/serve.h"

/* As it may be in the log: names are untrusted. */
static void plain_name(const char *name, char out[IGNORED_BYTES])
{
    size_t n = 0;
    for (; name[n] && n < IGNORED_BYTES - 1; n++)
        out[n] = (unsigned char)name[n] <= ' ' || (unsigned char)name[n] >= 0x7f ? '?' : name[n];
    out[n] = 0;
}

void ignored_add(void *gateway, const char *name)
{
    struct gateway *g = gateway;
    OBJ_CHECK(g, GATEWAY_MAGIC);
    struct ignored *all = &g->ignored;
    char plain[IGNORED_BYTES];
    counter_add(g->child.process, CTR_GATEWAY_fields_ignored, 1);
    plain_name(name, plain);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->name[i], plain) == 0)
            return;
    if (all->count == IGNORED_NAMES)
        return;
    memcpy(all->name[all->count++], plain, sizeof plain);
    log_info("requests have the field '%s', which is ignored", plain);
}
