/* SPDX-License-Identifier: Apache-2.0 */
/* The stats snapshot: everything the engine counts, as one JSON object, from the process table and
 * the ledger. Rows of other processes are read without a lock: every field is one atomic word, and
 * a slightly stale value is harmless. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/model/chat/chat.h"
#include "lib/sandbox/sandbox.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/control/control.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

static json_t *u64(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, u64(value));
}

static void put_text(json_t *object, const char *key, const char *text)
{
    json_t *string = json_string(text); /* NULL when it is not UTF-8 */
    json_object_set_new(object, key, string ? string : json_string("?"));
}

static int by_value(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* The newest samples of a process: at most PROCS_SAMPLES, a ring. */
static json_t *samples(const struct process *process)
{
    static uint32_t sorted[PROCS_SAMPLES];
    uint64_t count = atomic_load_explicit(&process->samples_count, memory_order_acquire);
    size_t n = count < PROCS_SAMPLES ? (size_t)count : PROCS_SAMPLES;
    for (size_t i = 0; i < n; i++)
        sorted[i] = atomic_load_explicit(&process->samples_us[i], memory_order_relaxed);
    qsort(sorted, n, sizeof sorted[0], by_value);
    json_t *object = json_object();
    put(object, "count", count);
    put(object, "p50_us", n ? sorted[(n - 1) * 50 / 100] : 0);
    put(object, "p90_us", n ? sorted[(n - 1) * 90 / 100] : 0);
    put(object, "p99_us", n ? sorted[(n - 1) * 99 / 100] : 0);
    put(object, "max_us", n ? sorted[n - 1] : 0);
    return object;
}

static json_t *counters(const struct process *process, enum service service)
{
    size_t count;
    const struct counter_desc *table = counters_of(service, &count);
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++)
        put(object, table[i].name, counter_get(process, (unsigned)i));
    return object;
}

static json_t *process(const struct process *process, enum service service, uint64_t now_ns)
{
    json_t *object = json_object();
    char sandbox[SANDBOX_TEXT_BYTES];
    uint64_t beat = atomic_load_explicit(&process->heartbeat_ns, memory_order_relaxed);
    int32_t pid = atomic_load_explicit(&process->pid, memory_order_relaxed);
    put_text(object, "service", service_name(service));
    put(object, "number", process->number);
    put(object, "pid", (uint64_t)(pid > 0 ? pid : 0));
    put(object, "incarnation", atomic_load(&process->incarnation));
    put_text(object, "state", proc_state_text(atomic_load(&process->state)));
    put_text(object, "wait", proc_wait_text(atomic_load(&process->wait)));
    put_text(object, "sandbox", sandbox_text(atomic_load(&process->sandbox), sandbox));
    put(object, "restarts", atomic_load(&process->restarts));
    put(object, "reaped", atomic_load(&process->reaped));
    put(object, "crashes", atomic_load(&process->crashes));
    put(object, "last_signal", atomic_load(&process->last_signal));
    put(object, "last_exit", atomic_load(&process->last_exit));
    put(object, "heartbeat_age_ms", now_ns > beat && beat ? (now_ns - beat) / NS_PER_MS : 0);
    put(object, "progress", atomic_load_explicit(&process->progress, memory_order_relaxed));
    json_object_set_new(object, "counters", counters(process, service));
    return object;
}

static json_t *restarts_by(const struct child_record *c)
{
    json_t *object = json_object();
    for (int cause = 0; cause < EXIT_CAUSE__COUNT; cause++)
        put(object, exit_cause_name((enum exit_cause)cause), c->restarts_by[cause]);
    return object;
}

static json_t *child(const struct child_record *c, uint64_t now_ns)
{
    json_t *object = process(c->process, c->service, now_ns);
    put_text(object, "exit_message", c->exit_message);
    json_object_set_new(object, "restarts_by", restarts_by(c));
    put(object, "private_bytes", c->usage.anon);
    put(object, "reserved_bytes", c->reserved_bytes);
    put(object, "page_table_bytes", c->usage.page_tables);
    put(object, "threads", c->usage.threads);
    if (c->service == SERVICE_LOADER) {
        put(object, "cleaned", atomic_load(&c->process->cleaned));
        json_object_set_new(object, "demand_to_submission", samples(c->process));
        if (c->backend[0])
            put_text(object, "backend_chosen", c->backend);
    }
    return object;
}

static json_t *processes(struct supervisor *s)
{
    uint64_t now_ns = clock_now_ns();
    json_t *array = json_array();
    json_array_append_new(array, process(s->process, SERVICE_SUPERVISOR, now_ns));
    for (uint32_t i = 0; i < s->children_count; i++)
        json_array_append_new(array, child(&s->children[i], now_ns));
    return array;
}

/* The latest exit records, the oldest first. */
static json_t *exits(const struct supervisor *s)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < exits_retained(&s->exits); i++) {
        const struct exit_record *d = exits_at(&s->exits, i);
        const struct child_record *c = &s->children[d->child];
        json_t *object = json_object();
        put(object, "uptime_ms", d->uptime_ms);
        put(object, "wall_ms", d->wall_ms);
        put_text(object, "service", service_name(c->service));
        put(object, "number", c->number);
        put(object, "incarnation", d->incarnation);
        put(object, "pid", (uint64_t)d->pid);
        put_text(object, "cause", exit_cause_name(d->cause));
        put(object, "signal", d->signal);
        put(object, "exit", d->exit_status);
        json_object_set_new(object, "restarted", json_boolean(d->restarted));
        put_text(object, "exit_message", d->exit_message);
        json_array_append_new(array, object);
    }
    return array;
}

/* Bytes of each segment, by name. */
static json_t *segments(const struct supervisor *s)
{
    json_t *object = json_object();
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        put(object, segment_name((enum segment_kind)kind),
            segment_allocated_bytes(s->segments[kind].fd));
    return object;
}

/* What the OOM killer did here, and the counter of its kills. */
static json_t *oom(const struct supervisor *s)
{
    json_t *object = json_object();
    put(object, "kills", counter_get(s->process, CTR_SUPERVISOR_oom_kills));
    put(object, "kills_counted", s->oom.watch.seen.kills);
    put_text(object, "counter", s->cgroup.counted[0] ? s->cgroup.counted : "/proc/vmstat");
    return object;
}

json_t *stats_memory(struct supervisor *s)
{
    const struct budget *b = &s->budget;
    const struct ledger_facts *f = &b->facts;
    const struct ledger_result *p = &b->ledger;
    json_t *object = json_object();
    put(object, "budget_bytes", b->applied);
    put(object, "budget_wanted_bytes", b->wanted);
    put(object, "min_budget_bytes", p->min_budget);
    put(object, "used_bytes", b->used);
    put(object, "used_bytes_max", b->used_max);
    put(object, "arena_quota_bytes", b->quota);
    put(object, "arena_quota_min_bytes", p->quota_min);
    json_object_set_new(object, "segments", segments(s));
    /* Where the budget goes: these and the quota make it up. */
    json_t *ledger = json_object();
    put(ledger, "margin_bytes", p->margin);
    put(ledger, "segments_bytes", f->segments_bytes);
    put(ledger, "kv_bytes", f->kv_bytes);
    put(ledger, "kv_spare_bytes",
        atomic_load_explicit(&s->directory.head->kv_spare_bytes, memory_order_relaxed));
    uint64_t unlent = ledger_unlent(f).spare;
    put(ledger, "kv_lent_bytes", f->lent_bytes > unlent ? f->lent_bytes - unlent : 0);
    put(ledger, "private_bytes", f->private_bytes);
    put(ledger, "text_bytes", f->text_bytes);
    put(ledger, "kernel_bytes", p->kernel);
    put(ledger, "page_table_bytes", p->page_tables);
    put(ledger, "tmpfs_node_bytes", p->nodes);
    put(ledger, "in_flight_bytes", p->flight);
    put(ledger, "threads", f->threads);
    put(ledger, "processes", f->processes);
    json_object_set_new(object, "plan", ledger);
    uint64_t usage, peak;
    if (cgroup_peak(s, &usage, &peak)) {
        json_t *wall = json_object();
        put_text(wall, "path", s->cgroup.path);
        put(wall, "limit_bytes", s->cgroup.limit);
        put(wall, "usage_bytes", usage);
        put(wall, "peak_bytes", peak);
        json_object_set_new(object, "cgroup", wall);
    }
    json_object_set_new(object, "oom", oom(s));
    return object;
}

static json_t *directory(const struct supervisor *s)
{
    static const char *const names[] = {"absent", "loading", "ready", "doomed"};
    const struct directory *d = &s->directory;
    uint64_t states[ARRAY_LEN(names)] = {0}, dense_ready = 0, pinned = 0;
    for (uint32_t i = 0; i < d->head->entry_count; i++) {
        uint64_t word = entry_read(&d->entries[i].word);
        states[entry_state_of(word)]++;
        dense_ready += i < d->head->dense_count && entry_state_of(word) == ENTRY_READY;
        pinned += i >= d->head->dense_count && i < model_experts_end(s->model) &&
                  entry_pins_of(word) != 0;
    }
    json_t *object = json_object();
    put(object, "entries", d->head->entry_count);
    put(object, "dense", d->head->dense_count - (s->model->page_count > 0));
    put(object, "dense_ready", dense_ready);
    put(object, "experts_pinned", pinned);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        put(object, names[i], states[i]);
    put(object, "epoch", atomic_load(&d->head->epoch));
    put(object, "quota_bytes", atomic_load(&d->head->quota_bytes));
    put(object, "quota_epoch", atomic_load(&d->head->quota_epoch));
    put(object, "quota_applied", atomic_load(&d->head->quota_applied));
    put(object, "experts_payload_max", atomic_load(&d->head->experts_payload_max));
    put(object, "backed_bytes", atomic_load(&d->head->backed_bytes));
    put(object, "owned_bytes", atomic_load(&d->head->owned_bytes));
    put(object, "resident_payload_bytes", atomic_load(&d->head->resident_payload_bytes));
    put(object, "draining", atomic_load(&d->head->draining) != DRAINING_NO);
    json_t *throttles = json_array();
    for (uint32_t i = 0; i < d->head->loader_count && i < DIRECTORY_LOADERS_MAX; i++)
        json_array_append_new(throttles, u64(atomic_load(&d->head->throttle_bytes_per_s[i])));
    json_object_set_new(object, "throttle_bytes_per_s", throttles);
    return object;
}

json_t *stats_chat(const struct supervisor *s)
{
    const struct model_index *m = s->model;
    json_t *object = json_object();
    put_text(object, "family", chat_name((enum chat_family)m->chat.family));
    put_text(object, "bos", m->chat.bos);
    put_text(object, "eos", m->chat.eos);
    put(object, "bos_first", m->chat.bos_first);
    put(object, "bos_added", m->chat.bos_added);
    json_t *gap = json_array();
    for (size_t i = 0; i < CHAT_GAP_TOKENS; i++)
        json_array_append_new(gap, json_string(m->chat.gap[i]));
    json_object_set_new(object, "gap", gap);
    json_t *text =
        m->template_bytes > 0 ? json_stringn(model_index_template(m), m->template_bytes) : NULL;
    if (text)
        json_object_set_new(object, "template", text);
    text = m->tools_template_bytes > 0
               ? json_stringn(model_index_tools_template(m), m->tools_template_bytes)
               : NULL;
    if (text)
        json_object_set_new(object, "tools_template", text);
    return object;
}

/* Elements per type: of tensors of the files, and of the experts of a store, at their best
 * precision. */
static uint64_t count_elements(const struct model_index *m, uint64_t per_type[TENSOR_TYPE_END])
{
    uint64_t all = 0;
    const struct model_tensor *tensors = model_index_tensors(m);
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        const uint64_t *ne = tensors[i].ne;
        per_type[tensors[i].type] += ne[0] * ne[1] * ne[2] * ne[3];
        all += ne[0] * ne[1] * ne[2] * ne[3];
    }
    for (uint32_t l = 0; m->stripe_count > 0 && l < m->hparams.layers; l++)
        for (uint32_t e = 0; model_layer_has_experts(m, l) && e < m->hparams.experts; e++) {
            const struct model_entry *x = &model_index_entries(m)[model_entry_expert(m, l, e)];
            for (int i = 0; x->in_store && i < EXPERT__COUNT; i++) {
                per_type[x->matrix[i].type] += (uint64_t)x->matrix[i].k * x->matrix[i].n;
                all += (uint64_t)x->matrix[i].k * x->matrix[i].n;
            }
        }
    return all;
}

static void put_size(json_t *object, const struct model_index *m)
{
    uint64_t per_type[TENSOR_TYPE_END] = {0};
    int most = 0;
    put(object, "parameters", count_elements(m, per_type));
    for (int i = 0; i < TENSOR_TYPE_END; i++)
        most = per_type[i] > per_type[most] ? i : most;
    put_text(object, "type", tensor_type_info((enum tensor_type)most)->name);
}

static json_t *model(const struct supervisor *s)
{
    const struct model_index *m = s->model;
    json_t *object = json_object();
    put_text(object, "path", s->options.model);
    put_text(object, "name", m->name);
    put_text(object, "arch", m->arch);
    put_text(object, "chat_template", chat_name((enum chat_family)m->chat.family));
    put_text(object, "chat_bos", m->chat.bos);
    put_text(object, "chat_eos", m->chat.eos);
    put(object, "chat_bos_first", m->chat.bos_first);
    put(object, "context", s->params.ctx_size);
    put_text(object, "kv_type", s->params.kv_type);
    put(object, "layers", m->hparams.layers);
    put(object, "experts", m->hparams.experts);
    put(object, "experts_used", m->hparams.experts_used);
    put(object, "vocab", m->hparams.vocab);
    put_size(object, m);
    put(object, "dense_bytes", m->dense_bytes);
    put(object, "table_bytes", (uint64_t)model_table_pages(m) * PAGE_BYTES);
    put(object, "table_cache_bytes", (uint64_t)m->page_count * PAGE_BYTES);
    put(object, "expert_bytes", m->expert_bytes);
    put(object, "expert_slot_bytes", m->expert_slot_bytes);
    return object;
}

/* Parameters whose values are not shown. */
static bool secret(const char *name)
{
    return strcmp(name, "http_key") == 0;
}

static void add_param(const char *name, const char *value, const char *def, const char *help,
                      void *arg)
{
    (void)def;
    (void)help;
    char *end;
    if (secret(name) && value[0])
        value = "(set)";
    long long number = strtoll(value, &end, 10);
    if (*value && *end == 0)
        json_object_set_new(arg, name, json_integer(number));
    else
        put_text(arg, name, value);
}

static json_t *params(const struct supervisor *s)
{
    json_t *object = json_object();
    params_each(&s->params, add_param, object);
    return object;
}

/* The preset requested last, and the choice of auto. */
static void put_preset(const struct supervisor *s, json_t *object)
{
    put_text(object, "preset",
             s->automatic.on ? "auto" : preset_at(atomic_load(&s->procs->preset_requested))->name);
    json_t *chosen = auto_stats(s);
    if (chosen)
        json_object_set_new(object, "auto", chosen);
}

/* Omitted when no copy is in quarantine. */
static void put_quarantined(const struct supervisor *s, json_t *object)
{
    json_t *list = storage_quarantined(s);
    if (json_array_size(list) > 0)
        json_object_set(object, "quarantined", list);
    json_decref(list);
}

/* Omitted when all is well. */
static void put_files(const struct supervisor *s, json_t *object)
{
    struct error error;
    json_t *list = files_replaced(s);
    if (json_array_size(list) > 0)
        json_object_set(object, "replaced", list);
    json_decref(list);
    if (!files_changed(s, &error))
        return;
    json_t *changed = json_object();
    put_text(changed, "code", error_name(error.code));
    put_text(changed, "text", error.text);
    json_object_set_new(object, "fault", changed);
}

json_t *stats_status(struct supervisor *s)
{
    json_t *object = json_object();
    put_text(object, "state", phase_text(s));
    if (s->failing[0])
        put_text(object, "failing", s->failing);
    put_text(object, "name", s->options.run);
    put_text(object, "model", s->options.model);
    if (s->options.url[0])
        put_text(object, "origin", s->options.url);
    if (s->http_url[0])
        put_text(object, "url", s->http_url);
    put(object, "pid", (uint64_t)getpid());
    put(object, "processes", s->children_count + 1);
    put(object, "budget_bytes", s->budget.applied);
    put(object, "used_bytes", s->budget.used);
    put(object, "arena_bytes", s->budget.quota);
    const struct child_record *compute = child_of(s, SERVICE_COMPUTE, 0);
    put(object, "running", counter_get(compute->process, CTR_COMPUTE_sequences_running));
    put(object, "queued", counter_get(compute->process, CTR_COMPUTE_sequences_queued));
    put(object, "oom_kills", counter_get(s->process, CTR_SUPERVISOR_oom_kills));
    put_preset(s, object);
    put_quarantined(s, object);
    put_files(s, object);
    put_text(object, "version", SLUICE_VERSION);
    return object;
}

json_t *stats_snapshot(struct supervisor *s)
{
    json_t *object = json_object();
    put_text(object, "state", phase_text(s));
    if (s->failing[0])
        put_text(object, "failing", s->failing);
    put_text(object, "name", s->options.run);
    put_text(object, "version", SLUICE_VERSION);
    put(object, "uptime_ms", (clock_now_ns() - s->started_ns) / NS_PER_MS);
    json_object_set_new(object, "model", model(s));
    json_object_set_new(object, "processes", processes(s));
    json_object_set_new(object, "exits", exits(s));
    json_object_set_new(object, "memory", stats_memory(s));
    json_t *gpu = gpu_stats(s);
    if (gpu) /* omitted where compute is on the CPU */
        json_object_set_new(object, "gpu", gpu);
    json_t *choice = gpu_choice_stats(s);
    if (choice)
        json_object_set_new(object, "gpu_choice", choice);
    json_object_set_new(object, "directory", directory(s));
    json_object_set_new(object, "params", params(s));
    put_preset(s, object);
    put_quarantined(s, object);
    put_files(s, object);
    return object;
}
