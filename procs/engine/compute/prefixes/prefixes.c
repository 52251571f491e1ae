/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the directory of prefixes for the model that runs; what main asks for. */
#include "procs/engine/compute/prefixes/prefixes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "procs/engine/compute/prefixes/worker.h"
#include "procs/engine/compute/slots/slots.h"

#define READ_BYTES_PER_NS 0.5 /* until it is measured */

/* All that the bytes of blocks depend on beside the model. Blocks have the keys of an indexer also
 * where it is not computed, so that they mean nothing. */
static uint64_t shape_of(const struct kv_head *h, const struct model_hparams *model)
{
    uint64_t seen[] = {h->layers, h->ring, h->window, h->state_bytes, h->windows_offset, KV_TILE};
    uint64_t hash = XXH3_64bits(seen, sizeof seen);
    hash = XXH3_64bits_withSeed(h->tile_bytes, sizeof h->tile_bytes, hash);
    hash = XXH3_64bits_withSeed(h->layer_kind, sizeof h->layer_kind, hash);
    if (h->index_tile_bytes[0] == 0)
        return hash;
    hash = XXH3_64bits_withSeed(h->layer_indexed, sizeof h->layer_indexed, hash);
    if (h->index_tile_bytes[1] > 0)
        hash = XXH3_64bits_withSeed(h->index_tile_bytes, sizeof h->index_tile_bytes, hash);
    uint32_t indexer[] = {h->index_tile_bytes[0], model_chooses(model, h->context)};
    return XXH3_64bits_withSeed(indexer, sizeof indexer, hash);
}

static struct prefix_bond bond_of(const struct kv_head *h, const struct model_hparams *model,
                                  uint32_t arithmetic)
{
    struct prefix_bond bond;
    memset(&bond, 0, sizeof bond);
    memcpy(bond.model, h->model_hash, sizeof bond.model);
    bond.shape = shape_of(h, model);
    bond.arithmetic = arithmetic;
    bond.kv_type = h->kv_type;
    return bond;
}

struct prefixes *prefixes_open(struct slots *slots, uint32_t arithmetic, void (*wake)(void *arg),
                               void *arg, struct error *error)
{
    const struct params *params = slots->child->params;
    struct kv_head *kv = slots->child->kv.head;
    const struct prefix_bond bond = bond_of(kv, &slots->child->model->hparams, arithmetic);
    bool clears = atomic_load(&kv->clear_wanted) != atomic_load(&kv->cleared);
    struct prefixes *p = calloc(1, sizeof *p);
    if (!p) {
        error_set(error, ERR_NO_MEMORY, "out of memory (prefixes)");
        return NULL;
    }
    p->slots = slots;
    p->wake = wake;
    p->arg = arg;
    p->read_bytes_per_ns = READ_BYTES_PER_NS;
    if (index_open(&p->index, params->prefix_dir, params->prefix_dir_bytes, &bond, clears, error) !=
        0) {
        free(p);
        return NULL;
    }
    if (worker_start(p, error) == 0)
        return p;
    prefixes_close(p);
    return NULL;
}

void prefixes_close(struct prefixes *p)
{
    if (!p)
        return;
    worker_stop(p);
    index_close(&p->index);
    free(p);
}

void prefixes_clear(struct prefixes *p)
{
    if (!p)
        return;
    prefixes_lock(p);
    p->clears = true;
    p->store.aborted = true;
    pthread_cond_signal(&p->changed);
    prefixes_unlock(p);
}

bool prefixes_clearing(struct prefixes *p)
{
    if (!p)
        return false;
    prefixes_lock(p);
    bool clears = p->clears;
    prefixes_unlock(p);
    return clears;
}

bool prefixes_list(struct prefixes *p, uint32_t at, struct prefix_listed *listed)
{
    return p && index_list(&p->index, at, listed);
}
