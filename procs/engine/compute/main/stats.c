/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a finished sequence, with the names of `generate --output json`. */
#include "procs/engine/compute/main/compute.h"

static uint64_t process_counter(const struct child *child, enum service service, uint32_t number,
                                unsigned counter)
{
    return counter_get(&child->procs.head->process[procs_index_of(service, number)], counter);
}

static uint64_t restarts(const struct child *child)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < child->procs.head->processes && i < SERVICE_PROCESSES_MAX; i++)
        sum += atomic_load_explicit(&child->procs.head->process[i].restarts, memory_order_relaxed);
    return sum;
}

static double ms_between(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? (double)(to - from) / 1e6 : 0;
}

static double per_second(uint64_t n, uint64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

static uint64_t grown(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

/* The median is unknown when another incarnation ended the sequence: then the mean. */
static json_t *tpot_json(const struct compute *c, uint32_t number, uint64_t id, uint64_t steps,
                         uint64_t decode_ns)
{
    struct tpot t = c->runner.tpot[number];
    if (t.id != id)
        t.p50_ms = t.p95_ms = t.p99_ms = steps ? (double)decode_ns / 1e6 / (double)steps : 0;
    return json_pack("{s:f, s:f, s:f}", "p50", t.p50_ms, "p95", t.p95_ms, "p99", t.p99_ms);
}

static bool put_int(json_t *o, const char *name, uint64_t value)
{
    return json_object_set_new(o, name, json_integer((json_int_t)value)) == 0;
}

static bool put_real(json_t *o, const char *name, double value)
{
    return json_object_set_new(o, name, json_real(value)) == 0;
}

static json_t *accesses_json(const struct kv_accesses *a)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "bytes_read", (json_int_t)a->bytes_read, "hits",
                     (json_int_t)a->hits, "hits_inflight", (json_int_t)a->hits_inflight, "misses",
                     (json_int_t)a->misses, "skipped", (json_int_t)a->skipped);
}

/* Start: what the engine read before the sequence. Without a token, all that follows is the
 * prompt's. */
static json_t *phases_json(const struct kv_stats *f, uint64_t steps)
{
    struct kv_accesses all = {f->hits, f->hits_inflight, f->misses, f->skipped, f->bytes_read};
    struct kv_accesses prompt = f->first_token_ns ? f->at_first : all;
    struct kv_accesses decode = {
        .hits = grown(prompt.hits, all.hits),
        .hits_inflight = grown(prompt.hits_inflight, all.hits_inflight),
        .misses = grown(prompt.misses, all.misses),
        .skipped = grown(prompt.skipped, all.skipped),
        .bytes_read = grown(prompt.bytes_read, all.bytes_read),
    };
    json_t *decoded = accesses_json(&decode);
    if (decoded)
        json_object_set_new(decoded, "bytes_read_per_token",
                            json_integer((json_int_t)(steps ? decode.bytes_read / steps : 0)));
    return json_pack("{s:{s:I}, s:o, s:o}", "start", "bytes_read", (json_int_t)f->bytes_read_before,
                     "prompt", accesses_json(&prompt), "decode", decoded);
}

static bool put_sequence(const struct compute *c, uint32_t number, json_t *o)
{
    struct kv_request *q = &c->child.kv.head->request[number];
    const struct kv_stats *f = &q->stats;
    uint64_t prompt = atomic_load(&q->prompt_tokens);
    uint64_t tokens = atomic_load(&q->log_tokens) - prompt, steps = tokens > 1 ? tokens - 1 : 0;
    return put_int(o, "prompt_tokens", prompt) && put_int(o, "cached_tokens", f->cached) &&
           put_int(o, "tokens", tokens) &&
           put_real(o, "ttft_ms", ms_between(f->submitted_ns, f->first_token_ns)) &&
           put_real(o, "queue_ms", ms_between(f->submitted_ns, f->started_ns)) &&
           put_real(o, "prefill_tps",
                    per_second(prompt > f->cached ? prompt - f->cached : 0, f->prefill_ns)) &&
           put_real(o, "decode_tps", per_second(steps, f->decode_ns)) &&
           json_object_set_new(
               o, "tpot_ms", tpot_json(c, number, atomic_load(&q->id), steps, f->decode_ns)) == 0 &&
           put_int(o, "hits", f->hits) && put_int(o, "hits_inflight", f->hits_inflight) &&
           put_int(o, "misses", f->misses) && put_int(o, "skipped", f->skipped) &&
           put_int(o, "low_precision_accesses", f->low_precision_accesses) &&
           put_int(o, "evictions", f->evictions) && put_int(o, "bytes_read", f->bytes_read) &&
           json_object_set_new(o, "phases", phases_json(f, steps)) == 0 &&
           put_real(o, "stall_ms", (double)f->stall_ns / 1e6) && put_int(o, "resumes", f->resumes);
}

json_t *stats_json(const struct compute *c, uint32_t number)
{
    const struct child *child = &c->child;
    const struct kv_stats *f = &child->kv.head->request[number].stats;
    json_t *o = json_object();
    if (o && put_sequence(c, number, o) &&
        put_int(o, "peak_memory_bytes",
                process_counter(child, SERVICE_SUPERVISOR, 0, CTR_SUPERVISOR_used_bytes_max)) &&
        put_int(o, "budget_bytes",
                process_counter(child, SERVICE_SUPERVISOR, 0, CTR_SUPERVISOR_budget_bytes)) &&
        put_int(o, "arena_bytes", atomic_load(&child->directory.head->quota_bytes)) &&
        json_object_set_new(o, "preset", json_string(preset_at(f->preset)->name)) == 0 &&
        put_int(o, "restarts", restarts(child)))
        return o;
    json_decref(o);
    return NULL;
}
