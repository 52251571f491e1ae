/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up the policies of a GPU by name. */
#include "lib/policy/gpu/policy.h"

#include <string.h>

#include "lib/base/assert.h"

static const char *const names[] = {GPU_POLICY_LIST(CHOICE_NAME)};

enum gpu_policy gpu_policy_find(const char *name)
{
    for (int i = 0; i < GPU_POLICY__COUNT; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum gpu_policy)i;
    return GPU_POLICY__COUNT;
}

enum gpu_policy gpu_policy_of(const char *name, bool deterministic)
{
    enum gpu_policy given = gpu_policy_find(name);
    return given == GPU_POLICY__COUNT && deterministic ? GPU_CENTRIC : given;
}

const char *gpu_policy_name(enum gpu_policy policy)
{
    sl_assert((unsigned)policy < GPU_POLICY__COUNT);
    return names[policy];
}
