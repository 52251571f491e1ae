/* SPDX-License-Identifier: Apache-2.0 */
/* The segments: created, signed and formatted before any child exists. Processes that only read get
 * a separate read-only descriptor, so that a stray write faults instead of corrupting shared
 * state. */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/rings/access_log.h"
#include "shm/rings/gates.h"

#define SHM_DIR "/dev/shm"

static const struct model_hparams *hparams(const struct supervisor *s)
{
    return &s->model->hparams;
}

static uint64_t segment_size(const struct supervisor *s, enum segment_kind kind)
{
    const struct model_hparams *h = hparams(s);
    struct kv_shape kv = kv_shape_for(s);
    switch (kind) {
    case SEGMENT_MODEL: return SEGMENT_MODEL_OFFSET + s->model->bytes;
    case SEGMENT_DIRECTORY: return directory_bytes(s->model);
    case SEGMENT_ARENA: return s->layout.bytes;
    case SEGMENT_GATES: return gates_bytes(h->hidden, h->experts);
    case SEGMENT_ACCESS_LOG: return access_log_bytes();
    case SEGMENT_KV: return kv_bytes(&kv);
    case SEGMENT_PROCS: return procs_bytes();
    case SEGMENT__COUNT: break;
    }
    sl_panic("segment %d has no size", (int)kind);
}

/* Maximum size of the segments without the arena's payload and the KV rows. Token logs grow with
 * use: two full ones of requests and two of slots are reserved here, because all sequences together
 * have KV rows for one context; the ledger counts more of them as they grow. */
uint64_t segments_fixed_bytes(const struct supervisor *s)
{
    uint64_t bytes = PAGE_BYTES; /* the arena's header page */
    static const enum segment_kind whole[] = {SEGMENT_MODEL, SEGMENT_DIRECTORY, SEGMENT_GATES,
                                              SEGMENT_ACCESS_LOG, SEGMENT_PROCS};
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        bytes += align_up(segment_size(s, whole[i]), PAGE_BYTES);
    uint64_t log = align_up(s->params.ctx_size * (sizeof(uint32_t) + sizeof(float)), PAGE_BYTES);
    uint64_t slot_log = align_up(s->params.ctx_size * sizeof(uint32_t), PAGE_BYTES);
    struct kv_shape kv = kv_shape_for(s);
    return bytes + kv_head_bytes(&kv) + 2 * (log + 2 * PAGE_BYTES) + 2 * slot_log;
}

uint64_t segments_space(void)
{
    struct statvfs fs;
    return statvfs(SHM_DIR, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static uint64_t needed(const struct supervisor *s)
{
    const struct budget *b = &s->budget;
    return b->ledger.quota + b->facts.segments_bytes + b->facts.kv_bytes;
}

/* What is free, and what is ours already; UINT64_MAX: not known, with errno. */
static uint64_t space_for_us(const struct supervisor *s)
{
    uint64_t available = segments_space();
    for (int kind = 0; kind < SEGMENT__COUNT && available < UINT64_MAX; kind++)
        if (s->segments[kind].fd >= 0)
            available += segment_allocated_bytes(s->segments[kind].fd);
    return available;
}

/* The ledger's quota becomes larger where processes take less than was estimated. */
uint64_t segments_limit(const struct supervisor *s)
{
    const struct ledger_facts *f = &s->budget.facts;
    uint64_t space = space_for_us(s);
    uint64_t all = f->dense_bytes + f->expert_slot_bytes + f->segments_bytes + f->kv_bytes;
    return space >= all + MIB ? UINT64_MAX : space; /* MIB: quotas are whole steps */
}

/* /dev/shm is often small in containers; without this check a sequence would fail later. */
uint64_t segments_quota(const struct supervisor *s)
{
    const struct ledger_facts *f = &s->budget.facts;
    uint64_t space = space_for_us(s), others = f->segments_bytes + f->kv_bytes;
    return space == UINT64_MAX ? space : space > others ? space - others : 0;
}

int segments_check_space(struct supervisor *s, struct error *error)
{
    uint64_t available = space_for_us(s), need = needed(s);
    if (available == UINT64_MAX)
        return error_set_errno(error, ERR_FAILED, errno, "cannot check " SHM_DIR);
    if (available >= need)
        return 0;
    char have[16], want[16];
    return error_set(error, ERR_NO_MEMORY,
                     SHM_DIR " has %s free, this budget needs %s: enlarge it (mount -o "
                             "remount,size=..., docker run --shm-size=...) or lower --budget",
                     bytes_format(available, have), bytes_format(need, want));
}

static int make_one(struct supervisor *s, enum segment_kind kind, struct error *error)
{
    struct segment *segment = &s->segments[kind];
    if (kind != SEGMENT_MODEL &&
        segment_create(kind, s->run_tag, s->boot, segment_size(s, kind), segment, error) != 0)
        return -1;
    segment->fd = fd_high(segment->fd);
    if (segment->fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor");
    int readonly = segment_reopen_readonly(segment->fd, error);
    if (readonly < 0)
        return -1;
    s->segments_readonly[kind] = fd_high(readonly);
    return s->segments_readonly[kind] < 0
               ? error_set_errno(error, ERR_FAILED, errno, "cannot move a descriptor")
               : 0;
}

/* The table of slots, and that of their pages, may be larger than what is there from the start. */
static int format_kv(struct supervisor *s, struct error *error)
{
    const struct segment *segment = &s->segments[SEGMENT_KV];
    struct kv_shape kv = kv_shape_for(s);
    int rc = segment_allocate(segment->fd, 0, kv_head_bytes(&kv));
    if (rc != 0)
        return error_set_errno(error, ERR_NO_MEMORY, -rc, SHM_DIR " cannot hold the kv segment");
    kv_format(segment->base, &kv);
    return 0;
}

static void format_procs(struct supervisor *s)
{
    struct procs_head *head = s->segments[SEGMENT_PROCS].base;
    device_cache_make(s);
    procs_format(head, &s->params, (uint32_t)s->params.loaders);
    strcpy(head->run_dir, s->run_dir);
    strcpy(head->model_path, s->options.model);
    memcpy(head->model_identity, s->model_identity, sizeof head->model_identity);
    gpu_publish(s, &head->gpus);
    atomic_store(&head->preset_requested, s->preset);
    atomic_store(&head->preset_active, s->preset);
    s->procs = head;
    s->process = &head->process[procs_index_of(SERVICE_SUPERVISOR, 0)];
    atomic_store(&s->process->pid, (int32_t)getpid());
    atomic_store(&s->process->incarnation, 1);
    atomic_store(&s->process->state, PROC_READY);
}

static int format_all(struct supervisor *s, struct error *error)
{
    const struct model_hparams *h = hparams(s);
    directory_format(s->segments[SEGMENT_DIRECTORY].base, s->model, &s->layout,
                     (uint32_t)s->params.loaders);
    gates_format(s->segments[SEGMENT_GATES].base, h->layers, h->hidden, h->experts);
    if (format_kv(s, error) != 0)
        return -1;
    format_procs(s);
    return directory_attach(s->segments[SEGMENT_DIRECTORY].fd, true, s->boot, s->model,
                            &s->directory, error);
}

int segments_make(struct supervisor *s, struct error *error)
{
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        if (make_one(s, (enum segment_kind)kind, error) != 0)
            return -1;
    return format_all(s, error);
}

void segments_drop(struct supervisor *s)
{
    /* Segments are unlinked at creation: closing the last descriptor frees them. The directory
     * shares its descriptor with segments[]. */
    for (int kind = 0; kind < SEGMENT__COUNT; kind++) {
        if (s->segments[kind].fd >= 0)
            close(s->segments[kind].fd);
        if (s->segments_readonly[kind] >= 0)
            close(s->segments_readonly[kind]);
        s->segments[kind].fd = s->segments_readonly[kind] = -1;
    }
}
