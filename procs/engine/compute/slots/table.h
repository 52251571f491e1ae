/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the kv segment to the policy of reuse (lib/policy/reuse): plain tables, read again for each
 * decision, because every act changes them. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_TABLE_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_TABLE_H

#include "lib/policy/reuse/reuse.h"
#include "shm/kv/kv.h"

struct slots;

struct slots_table {
    struct reuse_table table; /* of the arrays below: valid as long as they are */
    struct reuse_slot slot[KV_SLOTS_MAX];
    struct reuse_version version[KV_STATES_MAX];
};

const struct reuse_table *slots_table(const struct slots *p, struct slots_table *s);

/* The RUNNING request that owns a slot, and its row; NULL: none. */
const struct kv_request *slots_request(const struct slots *p, uint32_t slot, uint32_t *row);

/* Whether it is kept: nobody owns it, and it has rows. */
bool slots_is_kept(const struct slots *p, uint32_t slot);

/* Memory beside the pool that what is kept may have now. */
uint64_t slots_spare_bytes(const struct slots *p);

/* How many of the first positions of a slot are in pages that others have, too. */
uint32_t slots_joint_rows(const struct slots *p, uint32_t slot);

/* Complete rows of a slot: those that are kept, or kv_valid of the RUNNING request that owns it. */
uint32_t slots_rows(const struct slots *p, uint32_t slot);

#endif
