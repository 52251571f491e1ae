/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the statistics of a generation, and prints them as a line or as JSON. */
#include "procs/clients/common/generation_stats.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"

/* Statistics of the sequence; a key that an older engine does not report becomes 0. X(key, kind) */
#define SEQUENCE_STATS(X)                                                                          \
    X("prompt_tokens", integer)                                                                    \
    X("cached_tokens", integer)                                                                    \
    X("tokens", integer)                                                                           \
    X("ttft_ms", real)                                                                             \
    X("prefill_tps", real)                                                                         \
    X("decode_tps", real)                                                                          \
    X("hits", integer)                                                                             \
    X("hits_inflight", integer)                                                                    \
    X("misses", integer)                                                                           \
    X("skipped", integer)                                                                          \
    X("low_precision_accesses", integer)                                                           \
    X("stall_ms", real)

static json_t *integer(const json_t *value)
{
    return json_is_integer(value) ? json_incref((json_t *)(uintptr_t)value)
                                  : json_integer((json_int_t)json_number_value(value));
}

static json_t *real(const json_t *value)
{
    return json_real(json_number_value(value));
}

static uint64_t grown(const json_t *before, const json_t *after, const char *service,
                      const char *counter)
{
    uint64_t old = lookup_counter(before, service, counter);
    uint64_t now = lookup_counter(after, service, counter);
    return now > old ? now - old : 0; /* a restarted process counts from zero */
}

static void set_u64(json_t *out, const char *key, uint64_t value)
{
    json_object_set_new(out, key, json_integer((json_int_t)value));
}

static void set_own(json_t *out, const struct stream_result *r)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < r->count; i++)
        json_array_append_new(ids, json_integer(r->ids[i]));
    json_object_set_new(out, "text", json_stringn(r->text ? r->text : "", r->text_bytes));
    json_object_set_new(out, "ids", ids);
    json_object_set_new(out, "finish", json_string(r->finish));
}

static void set_tpot(json_t *out, const json_t *stats)
{
    const json_t *given = json_object_get(stats, "tpot_ms");
    json_t *tpot = json_object();
    static const char *const keys[] = {"p50", "p95", "p99"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set_new(tpot, keys[i], real(json_object_get(given, keys[i])));
    json_object_set_new(out, "tpot_ms", tpot);
}

/* Prefers the value compute reported for the sequence over the one of the whole engine. */
static void set_engine(json_t *out, const json_t *stats, const char *key, uint64_t otherwise)
{
    const json_t *reported = json_object_get(stats, key);
    set_u64(out, key, reported ? lookup_u64(stats, key) : otherwise);
}

static uint64_t peak(const json_t *stats, const json_t *after)
{
    uint64_t then = lookup_u64(stats, "peak_memory_bytes");
    uint64_t now = lookup_counter(after, "supervisor", "used_bytes_max");
    return now > then ? now : then;
}

/* Approximate budget under which every expert stays resident: the current minimum without its
 * arena, plus the whole arena. */
static uint64_t resident_budget(const json_t *doc)
{
    uint64_t min_budget = lookup_u64(doc, "memory.min_budget_bytes");
    uint64_t arena_min = lookup_u64(doc, "memory.arena_quota_min_bytes");
    uint64_t all =
        lookup_u64(doc, "model.dense_bytes") + lookup_u64(doc, "model.expert_slot_bytes");
    return min_budget > arena_min ? min_budget - arena_min + all : 0;
}

json_t *generation_stats_make(const struct stream_result *r, const json_t *before,
                              const json_t *after)
{
    json_t *out = json_object();
    set_own(out, r);
#define X(key, kind) json_object_set_new(out, key, kind(json_object_get(r->stats, key)));
    SEQUENCE_STATS(X)
#undef X
    set_tpot(out, r->stats);
    set_engine(out, r->stats, "evictions", grown(before, after, "cache", "evictions"));
    set_engine(out, r->stats, "bytes_read", grown(before, after, "loader", "bytes_read"));
    set_u64(out, "peak_memory_bytes", peak(r->stats, after));
    set_engine(out, r->stats, "budget_bytes", lookup_u64(after, "memory.budget_bytes"));
    set_engine(out, r->stats, "arena_bytes", lookup_u64(after, "memory.arena_quota_bytes"));
    uint64_t budget = lookup_u64(out, "budget_bytes"), needed = resident_budget(after);
    set_u64(out, "resident_budget_bytes", needed < budget ? needed : budget);
    set_u64(out, "all_experts_budget_bytes", needed);
    json_t *phases = json_object_get(r->stats, "phases");
    if (phases)
        json_object_set(out, "phases", phases);
    const char *preset = lookup_text(r->stats, "preset");
    json_object_set_new(out, "preset",
                        json_string(*preset ? preset : lookup_text(after, "params.preset")));
    set_engine(out, r->stats, "restarts", lookup_restarts(after));
    bool lost = lookup_counter(after, "compute", "gpu_lost") != 0;
    json_object_set_new(out, "gpu_lost", json_boolean(lost));
    return out;
}

void generation_stats_print(FILE *out, const json_t *f)
{
    uint64_t tokens = lookup_u64(f, "tokens"), hits = lookup_u64(f, "hits");
    uint64_t accesses =
        hits + lookup_u64(f, "hits_inflight") + lookup_u64(f, "misses") + lookup_u64(f, "skipped");
    char read[16], peak_memory[16], budget[16];
    bytes_format(lookup_u64(f, "phases.decode.bytes_read_per_token"), read);
    bytes_format(lookup_u64(f, "peak_memory_bytes"), peak_memory);
    bytes_format(lookup_u64(f, "budget_bytes"), budget);
    if (tokens == 0) { /* interrupted, or -n 0: there are no rates */
        uint64_t prompt = lookup_u64(f, "prompt_tokens");
        fprintf(out, "no token; prompt of %" PRIu64 " token%s; memory %s of %s\n", prompt,
                prompt == 1 ? "" : "s", peak_memory, budget);
        return;
    }
    fprintf(out,
            "%" PRIu64 " token%s at %.1f tokens/s, first after %.0f ms; %.1f %% of accesses "
            "were hits, %s read per decoded token; memory %s of %s%s\n",
            tokens, tokens == 1 ? "" : "s", json_number_value(json_object_get(f, "decode_tps")),
            json_number_value(json_object_get(f, "ttft_ms")),
            accesses ? 100.0 * (double)hits / (double)accesses : 0.0, read, peak_memory, budget,
            json_is_true(json_object_get(f, "gpu_lost"))
                ? "; the GPU is lost, the CPU computes: see the engine's log (-v)"
                : "");
}

void generation_stats_print_all(FILE *out, const json_t *f)
{
    char arena[16], resident[16];
    bytes_format(lookup_u64(f, "arena_bytes"), arena);
    bytes_format(lookup_u64(f, "all_experts_budget_bytes"), resident);
    generation_stats_print(out, f);
    fprintf(out,
            "prompt: %" PRIu64 " tokens (%" PRIu64
            " kept) at %.1f tokens/s; %.0f ms stalled on experts\n"
            "memory: arena %s; budget for all experts resident: about %s\n",
            lookup_u64(f, "prompt_tokens"), lookup_u64(f, "cached_tokens"),
            json_number_value(json_object_get(f, "prefill_tps")),
            json_number_value(json_object_get(f, "stall_ms")), arena, resident);
}
