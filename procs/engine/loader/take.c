/* SPDX-License-Identifier: Apache-2.0 */
/* Takes LOADS and FLUSH messages of the cache, and rejects what does not agree with the
 * directory. */
#include <errno.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/engine/loader/loader.h"

/* The page of a page slot is stable while it is LOADING. */
uint32_t loader_shard_of(const struct loader *l, uint32_t entry,
                         struct model_extent shard[ENTRY_EXTENTS_MAX])
{
    const struct directory *d = &l->child.directory;
    const struct model_index *m = l->child.model;
    if (entry < model_experts_end(m))
        return model_entry_shard(&model_index_entries(m)[entry], loader_self(l),
                                 d->head->loader_count, shard);
    uint32_t page = atomic_load_explicit(&d->entries[entry].page, memory_order_acquire);
    return page == 0 || page > model_table_pages(m)
               ? 0
               : model_page_shard(m, page - 1, loader_self(l), d->head->loader_count, shard);
}

/* The runs of a LOAD follow from the model index, the number of loaders and the entry's offset:
 * other runs would write to ranges that are not this loader's. */
static bool runs_agree(const struct loader *l, const struct msg_load *load)
{
    const struct directory *d = &l->child.directory;
    const struct model_entry *entry = &model_index_entries(l->child.model)[load->entry];
    uint64_t at = atomic_load_explicit(&d->entries[load->entry].arena_offset, memory_order_acquire);
    if (at % PAGE_BYTES != 0 || at < PAGE_BYTES || at > l->child.arena.bytes ||
        entry->slot_bytes > l->child.arena.bytes - at)
        return false;
    struct model_extent shard[ENTRY_EXTENTS_MAX];
    uint32_t runs = loader_shard_of(l, load->entry, shard);
    if (runs != load->runs_count)
        return false;
    for (uint32_t i = 0; i < runs; i++)
        if (load->runs[i].file_offset != shard[i].file_offset ||
            load->runs[i].bytes != shard[i].read_bytes ||
            load->runs[i].arena_offset != at + shard[i].slot_offset)
            return false;
    return true;
}

/* From the running cache, for this incarnation. */
static bool loads_are_ours(const struct loader *l, const struct msg_loads *m)
{
    const struct directory_head *head = l->child.directory.head;
    return m->loader_incarnation == l->child.incarnation &&
           m->epoch == atomic_load_explicit(&head->epoch, memory_order_acquire);
}

/* It agrees with the directory and with this loader. */
static bool load_agrees(const struct loader *l, const struct msg_load *load)
{
    uint64_t word = entry_read(&l->child.directory.entries[load->entry].word);
    return entry_wants_shard(word, load->generation, loader_self(l)) && runs_agree(l, load);
}

/* Number of prefetch chunks that this demand waits for. */
static void note_waited(struct loader *l)
{
    struct process *process = l->child.process;
    uint32_t before = l->jobs.inflight_prefetch;
    if (before > counter_get(process, CTR_LOADER_demand_waited_chunks_max))
        counter_set(process, CTR_LOADER_demand_waited_chunks_max, before);
}

static void raise_job(struct loader *l, struct job *job, const struct msg_load *load)
{
    counter_add(l->child.process, CTR_LOADER_loads_promoted, 1);
    if (jobs_raise(&l->jobs, job, load->priority, load->demand_ns) && load->priority == LOAD_DEMAND)
        note_waited(l);
}

/* Cancelled before it was accepted: its bit must be cleared, or the entry could never be reset. */
static void fail_untaken(struct loader *l, const struct msg_load *load)
{
    uint64_t word = entry_read(&l->child.directory.entries[load->entry].word);
    if (entry_state_of(word) != ENTRY_DOOMED || entry_generation_of(word) != load->generation ||
        !(entry_pending_of(word) & (1u << loader_self(l))))
        return;
    uint64_t now = clock_now_ns();
    struct job never = {.entry = load->entry,
                        .generation = load->generation,
                        .taken_ns = now,
                        .first_ns = now,
                        .status = ECANCELED};
    loader_end_shard(l, &never);
}

/* Pre: the message is ours and the entry is one. */
static void take_load(struct loader *l, const struct msg_load *load, uint32_t epoch)
{
    struct process *process = l->child.process;
    struct job *job = jobs_find(&l->jobs, load->entry);
    if (!load_agrees(l, load)) {
        counter_add(process, CTR_LOADER_loads_rejected, 1);
        /* The cache sends a LOAD of a cancelled entry on purpose, so that it is checked now. */
        if (job)
            loader_check_jobs(l);
        else
            fail_untaken(l, load);
        return;
    }
    if (job && job->generation == load->generation && job->status == 0) {
        raise_job(l, job, load);
        return;
    }
    if (!job)
        job = jobs_add(&l->jobs, load, epoch, clock_now_ns());
    else
        job = NULL; /* an old job of this entry has not ended: the cache sends again */
    counter_add(process, job ? CTR_LOADER_loads_taken : CTR_LOADER_loads_rejected, 1);
    if (!job)
        return;
    if (load->priority == LOAD_DEMAND)
        note_waited(l);
    loader_choose_copy(l, job);
    if (job->status != 0)
        loader_end_if_due(l, job);
}

static void take_loads(struct loader *l, const struct msg_loads *m)
{
    bool ours = loads_are_ours(l, m);
    for (uint32_t i = 0; i < m->count; i++) {
        if (ours && m->loads[i].entry < l->child.directory.head->entry_count)
            take_load(l, &m->loads[i], m->epoch);
        else
            counter_add(l->child.process, CTR_LOADER_loads_rejected, 1);
    }
}

static void drop_if_older(struct job *job, void *arg)
{
    struct loader *l = arg;
    if (job->epoch == l->flush_epoch)
        return;
    if (job->status == 0)
        jobs_fail(&l->jobs, job, ECANCELED);
    loader_end_if_due(l, job);
}

static void take_flush(struct loader *l, const struct msg_flush *flush)
{
    uint32_t epoch = atomic_load_explicit(&l->child.directory.head->epoch, memory_order_acquire);
    if (flush->loader_incarnation != l->child.incarnation || flush->epoch != epoch)
        return; /* from an earlier cache, or for an earlier loader */
    l->flush_pending = true;
    l->flush_epoch = l->epoch_met = epoch;
    jobs_each(&l->jobs, drop_if_older, l);
    loader_reply_flush(l);
}

static void count_older(struct job *job, void *arg)
{
    struct loader *l = arg;
    if (job->epoch != l->flush_epoch)
        l->flush_pending = false;
}

void loader_reply_flush(struct loader *l)
{
    OBJ_CHECK(l, LOADER_MAGIC);
    if (!l->flush_pending)
        return;
    jobs_each(&l->jobs, count_older, l); /* clears flush_pending while one is left */
    if (!l->flush_pending) {
        l->flush_pending = true;
        return;
    }
    struct msg_flush reply = {.epoch = l->flush_epoch, .loader_incarnation = l->child.incarnation};
    if (channel_send(l->cache, &reply, MSG_FLUSHED) != 0)
        return; /* again in the next round */
    l->flush_pending = false;
    counter_add(l->child.process, CTR_LOADER_flushes, 1);
}

void loader_receive(struct loader *l)
{
    OBJ_CHECK(l, LOADER_MAGIC);
    _Alignas(8) char buf[MSG_BYTES_MAX];
    while (channel_receive(l->cache, buf) > 0) {
        const struct msg_head *head = (const struct msg_head *)(const void *)buf;
        counter_add(l->child.process, CTR_LOADER_messages, 1);
        switch (head->type) {
        case MSG_LOADS: take_loads(l, (const struct msg_loads *)(const void *)buf); break;
        case MSG_FLUSH: take_flush(l, (const struct msg_flush *)(const void *)buf); break;
        default: break; /* the validator passes no other type to a loader */
        }
    }
}
