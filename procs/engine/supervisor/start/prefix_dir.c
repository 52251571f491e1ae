/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on storage: their directory, and the hash of the model that they belong to. compute,
 * which reads and writes them, may not see the model's files. */
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/prefix/directory.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/kv/kv.h"

int prefix_dir_make(const struct supervisor *s, struct error *error)
{
    if (!s->params.prefix_dir[0])
        return 0;
    int fd = prefix_directory_open(s->params.prefix_dir, true, error);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -1;
}

/* Size and time of every file, because the samples of a file may miss a change; of a store also the
 * checksums of its experts. */
static XXH128_hash_t hash_of(const struct model_index *m, const uint8_t samples[WARM_HASH_BYTES])
{
    XXH128_hash_t hash = XXH3_128bits(samples, WARM_HASH_BYTES);
    uint64_t seen[4] = {hash.low64, hash.high64, m->file.bytes, (uint64_t)m->file.mtime_ns};
    hash = XXH3_128bits(seen, sizeof seen);
    for (uint32_t i = 0; i < m->stripe_count + m->part_count; i++) {
        const struct model_file_id *f = &model_index_stripes(m)[i].file;
        uint64_t next[4] = {hash.low64, hash.high64, f->bytes, (uint64_t)f->mtime_ns};
        hash = XXH3_128bits(next, sizeof next);
    }
    if (m->checksum_count == 0)
        return hash;
    return XXH3_128bits_withSeed(model_index_checksums(m), m->checksum_count * sizeof(uint64_t),
                                 hash.low64 ^ hash.high64);
}

int prefix_dir_publish(struct supervisor *s, struct error *error)
{
    uint8_t samples[WARM_HASH_BYTES];
    struct kv_head *kv = s->segments[SEGMENT_KV].base;
    if (!s->params.prefix_dir[0])
        return 0;
    if (warm_hash_model(s, samples, error) != 0)
        return -1;
    XXH128_hash_t hash = hash_of(s->model, samples);
    kv->model_hash[0] = hash.low64;
    kv->model_hash[1] = hash.high64;
    return 0;
}
