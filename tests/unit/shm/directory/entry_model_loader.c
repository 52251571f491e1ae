/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders, the device, and what remains of both after an exit. */
#include <string.h>

#include "lib/base/assert.h"
#include "tests/unit/shm/directory/entry_model.h"

static unsigned orphan_bit(uint8_t entry, uint8_t slot, uint8_t chunk)
{
    return 1u << ((entry * SLOTS_MAX + slot) * CHUNKS_MAX + chunk);
}

unsigned load_bit(uint8_t entry, uint8_t slot, uint8_t generation, uint8_t epoch, uint8_t inc)
{
    unsigned span = m->kills + 1u; /* epochs and incarnations count kills */
    sl_assert(generation < m->generations && epoch < span && inc < span);
    return (((entry * m->slots + slot) * m->generations + generation) * span + epoch) * span + inc;
}

static unsigned load_bits(void)
{
    unsigned span = m->kills + 1u;
    unsigned n = ENTRIES * m->slots * m->generations * span * span;
    sl_assert(n <= 64);
    return n;
}

void punch_slot(struct world *w, uint8_t slot)
{
    if (m->no_punch)
        return;
    for (uint8_t c = 0; c < CHUNKS_MAX; c++) {
        w->content[slot][c] = 0;
        for (uint8_t e = 0; e < ENTRIES; e++)
            w->orphans &= (uint8_t)~orphan_bit(e, slot, c);
    }
    /* A read in flight keeps its page: it completes, but not into a page of the arena. */
    for (unsigned d = 0; d < m->loaders; d++)
        for (unsigned j = 0; j < JOBS; j++) {
            struct job *job = &w->loader[d].job[j];
            for (unsigned c = 0; c < CHUNKS_MAX; c++)
                if (job->entry != NONE && job->slot == slot && job->read[c] == READ_FLYING)
                    job->read[c] = READ_DETACHED;
        }
}

/* ---- the device */

unsigned storage_choices(void)
{
    return LOADERS_MAX * JOBS * CHUNKS_MAX * 2 + ENTRIES * SLOTS_MAX * CHUNKS_MAX;
}

static bool land_orphan(struct world *w, unsigned bit)
{
    uint8_t chunk = bit % CHUNKS_MAX, slot = bit / CHUNKS_MAX % SLOTS_MAX;
    uint8_t entry = (uint8_t)(bit / CHUNKS_MAX / SLOTS_MAX);
    if (!(w->orphans & 1u << bit))
        return false;
    w->content[slot][chunk] = (uint8_t)(entry + 1); /* the bit stays: it may land again */
    what = "device: a read of a dead loader lands";
    return true;
}

bool storage_step(struct world *w, unsigned choice)
{
    if (choice >= LOADERS_MAX * JOBS * CHUNKS_MAX * 2)
        return land_orphan(w, choice - LOADERS_MAX * JOBS * CHUNKS_MAX * 2);
    bool error = choice % 2;
    unsigned c = choice / 2 % CHUNKS_MAX, j = choice / 2 / CHUNKS_MAX % JOBS;
    struct job *job = &w->loader[choice / 2 / CHUNKS_MAX / JOBS].job[j];
    if (job->entry == NONE || (job->read[c] != READ_FLYING && job->read[c] != READ_DETACHED))
        return false;
    if (error) {
        job->failed = 1;
        what = "device: a read fails";
    } else {
        if (job->read[c] == READ_FLYING)
            w->content[job->slot][c] = (uint8_t)(job->entry + 1);
        what = "device: a read lands";
    }
    job->read[c] = READ_LANDED;
    return true;
}

/* ---- loaders */

static void clear_job(struct job *job)
{
    memset(job, 0, sizeof *job);
    job->entry = NONE;
}

/* Reads that a process leaves at the device when it forgets a job or is reaped. */
static void abandon(struct world *w, struct job *job)
{
    for (uint8_t c = 0; c < CHUNKS_MAX; c++)
        if (job->entry != NONE && job->read[c] == READ_FLYING)
            w->orphans |= (uint8_t)orphan_bit(job->entry, job->slot, c);
    clear_job(job);
}

static void skip_todo(struct job *job)
{
    for (unsigned c = 0; c < CHUNKS_MAX; c++)
        if (job->read[c] == READ_TODO)
            job->read[c] = READ_LANDED;
}

static bool flying(const struct job *job)
{
    for (unsigned c = 0; c < CHUNKS_MAX; c++)
        if (job->read[c] == READ_FLYING || job->read[c] == READ_DETACHED)
            return true;
    return false;
}

static bool submitted_all(const struct job *job)
{
    for (unsigned c = 0; c < CHUNKS_MAX; c++)
        if (job->read[c] == READ_TODO || job->read[c] == READ_CHECKED)
            return false;
    return true;
}

static bool take(struct world *w, unsigned d, unsigned bit)
{
    struct loader *l = &w->loader[d];
    unsigned span = m->kills + 1u, x = bit;
    uint8_t inc = (uint8_t)(x % span), epoch = (uint8_t)(x / span % span);
    x /= span * span;
    uint8_t generation = (uint8_t)(x % m->generations);
    uint8_t slot = (uint8_t)(x / m->generations % m->slots);
    uint8_t entry = (uint8_t)(x / m->generations / m->slots);
    struct job *free = NULL;
    for (unsigned j = 0; j < JOBS; j++) {
        if (l->job[j].entry == entry)
            return false; /* a job exists: only its priority would be raised */
        if (l->job[j].entry == NONE)
            free = &l->job[j];
    }
    if (!(w->sent[d] >> bit & 1) || !free || l->phase != LOADER_UP)
        return false;
    uint64_t word = step_read(w, entry);
    if (!m->take_unchecked &&
        (!m->ops->pending(word, generation, d) || epoch != w->epoch || inc != l->incarnation))
        return false;
    bool cancelled = !m->take_unchecked && !m->ops->wants(word, generation, d);
    if (cancelled && m->reject_cancelled)
        return false;
    clear_job(free);
    free->entry = entry;
    free->slot = slot;
    free->generation = generation;
    free->epoch = epoch;
    free->failed = cancelled; /* nothing to read: its shard fails at once */
    for (unsigned c = d; c < m->chunks && !cancelled; c += m->loaders)
        free->read[c] = READ_TODO;
    what = cancelled ? "loader: takes the LOAD of a cancelled entry" : "loader: takes a LOAD";
    return true;
}

static bool check_chunk(struct world *w, unsigned d, struct job *job, unsigned c)
{
    if (job->entry == NONE || job->read[c] != READ_TODO)
        return false;
    if (m->take_unchecked || m->ops->wants(step_read(w, job->entry), job->generation, d)) {
        job->read[c] = READ_CHECKED;
        what = "loader: reads the word before a chunk";
    } else {
        job->failed = 1;
        skip_todo(job);
        what = "loader: sees that its part is not wanted any more";
    }
    return true;
}

static bool end(struct world *w, unsigned d, unsigned j)
{
    struct loader *l = &w->loader[d];
    struct job *job = &l->job[j];
    if (job->entry == NONE)
        return false;
    bool fail = job->failed || job->dropped;
    if (fail && !l->call.active)
        skip_todo(job);
    bool early = fail ? m->fail_before_completion : m->publish_before_data;
    if (!submitted_all(job) || (flying(job) && !early))
        return false;
    struct fn_args args = {fail ? FN_FAIL : FN_DONE, job->generation, d};
    int result;
    l->call_job = (uint8_t)j;
    if (call_step(w, job->entry, &l->call, args, &result)) {
        l->call_job = 0;
        abandon(w, job);
    }
    what = fail ? "loader: part fail" : "loader: part done";
    return true;
}

static bool submit_checked(struct loader *l)
{
    for (unsigned j = 0; j < JOBS; j++)
        for (unsigned c = 0; c < CHUNKS_MAX; c++)
            if (l->job[j].entry != NONE && l->job[j].read[c] == READ_CHECKED) {
                l->job[j].read[c] = READ_FLYING;
                what = "loader: submits a chunk";
                return true;
            }
    return false;
}

static bool has_checked(const struct loader *l)
{
    for (unsigned j = 0; j < JOBS; j++)
        for (unsigned c = 0; c < CHUNKS_MAX; c++)
            if (l->job[j].entry != NONE && l->job[j].read[c] == READ_CHECKED)
                return true;
    return false;
}

static bool take_flush(struct world *w, struct loader *l)
{
    if (l->phase != LOADER_UP || l->flush_taken >= w->flush_sent)
        return false;
    l->flush_taken = w->flush_sent;
    for (unsigned j = 0; j < JOBS; j++)
        if (l->job[j].entry != NONE && l->job[j].epoch < l->flush_taken) {
            l->job[j].dropped = 1;
            skip_todo(&l->job[j]);
        }
    what = "loader: FLUSH, drops what is not submitted";
    return true;
}

static bool reply_flush(struct loader *l)
{
    if (l->flush_replied >= l->flush_taken)
        return false;
    for (unsigned j = 0; j < JOBS; j++)
        if (l->job[j].entry != NONE && l->job[j].epoch < l->flush_taken)
            return false;
    l->flush_replied = l->flush_taken;
    what = "loader: FLUSHED";
    return true;
}

/* A dropped job may also be forgotten: the cache that sent the FLUSH clears the bits itself. */
static bool forget_dropped(struct job *job)
{
    if (job->entry == NONE || !job->dropped || flying(job))
        return false;
    clear_job(job);
    what = "loader: forgets a flushed job";
    return true;
}

unsigned loader_choices(void)
{
    return 11 + load_bits();
}

bool loader_step(struct world *w, unsigned d, unsigned choice)
{
    struct loader *l = &w->loader[d];
    if (l->phase == LOADER_REAPED)
        return false;
    if (l->call.active) /* one thread: it finishes the current call */
        return choice == 0 && end(w, d, l->call_job);
    if (has_checked(l))
        return choice == 0 && submit_checked(l);
    switch (choice) {
    case 0: return false;
    case 1: return take_flush(w, l);
    case 2: return reply_flush(l);
    case 3:
    case 4: return check_chunk(w, d, &l->job[0], choice - 3);
    case 5:
    case 6: return check_chunk(w, d, &l->job[1], choice - 5);
    case 7:
    case 8: return end(w, d, choice - 7);
    case 9:
    case 10: return forget_dropped(&l->job[choice - 9]);
    default: return take(w, d, choice - 11);
    }
}

/* ---- exit and start, called by the supervisor */

void loader_reap(struct world *w, unsigned d)
{
    struct loader *l = &w->loader[d];
    for (unsigned j = 0; j < JOBS; j++)
        abandon(w, &l->job[j]);
    *l = (struct loader){.phase = LOADER_REAPED,
                         .incarnation = l->incarnation,
                         .job = {{.entry = NONE}, {.entry = NONE}}};
    w->uncleaned |= (uint8_t)(1u << d);
}

void loader_spawn(struct world *w, unsigned d)
{
    w->loader[d].phase = LOADER_UP;
    w->loader[d].incarnation++;
}
