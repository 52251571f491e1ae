/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the segments, channels and processes of a rig, and acts as supervisor and compute in it. */
#include "tests/fault/cache_loader_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shm/segment/inherited_fds.h"

#define READY_MS 15000
#define STOP_MS  5000

extern char **environ;

uint64_t rig_deadline(unsigned ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

/* ---- segments ------------------------------------------------------------------------------- */

static void must(int rv, const struct error *error)
{
    ck_assert_msg(rv == 0, "%s", error->text);
}

/* Payload is compared with the demo model itself: a test may damage the copy that the loaders
 * read. */
static void open_model(struct rig *r, bool own_copy)
{
    struct error error;
    int demo = open(SLUICE_DEMO_MODEL, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ck_assert_msg(demo >= 0 && fstat(demo, &st) == 0, "%s: %s", SLUICE_DEMO_MODEL, strerror(errno));
    r->file_bytes = (size_t)st.st_size;
    r->file = mmap(NULL, r->file_bytes, PROT_READ, MAP_PRIVATE, demo, 0);
    ck_assert(r->file != MAP_FAILED);
    snprintf(r->model_path, sizeof r->model_path, "%s", SLUICE_DEMO_MODEL);
    if (own_copy) {
        close(demo);
        snprintf(r->model_path, sizeof r->model_path, "%s/model", r->dir);
        demo = open(r->model_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert(demo >= 0);
        for (size_t at = 0; at < r->file_bytes;) {
            ssize_t n = write(demo, r->file + at, r->file_bytes - at);
            ck_assert(n > 0);
            at += (size_t)n;
        }
    }
    must(model_index_build(demo, r->model_path, &r->model, &error), &error);
    close(demo);
    r->model_fd = open(r->model_path, O_RDONLY | O_CLOEXEC);
    must(run_file_accept(r->model_fd, r->model_path, &r->model->file, &r->model_file, &error),
         &error);
    r->entries = model_index_entries(r->model);
    must(arena_layout_make(r->model, &r->layout, &error), &error);
}

static void create(struct rig *r, enum segment_kind kind, uint64_t bytes)
{
    struct error error;
    char tag[64];
    snprintf(tag, sizeof tag, "rig.%d", (int)getpid());
    must(segment_create(kind, tag, r->boot, bytes, &r->segment[kind], &error), &error);
}

static void create_segments(struct rig *r, const struct params *params, uint32_t loaders)
{
    const struct model_hparams *h = &r->model->hparams;
    struct segment *s = r->segment;
    struct kv_shape kv =
        kv_shape_of(h, KV_TYPE_F16, 64, 64, &(struct kv_counts){.sequences = 1, .kept = 1});
    create(r, SEGMENT_MODEL, SEGMENT_MODEL_OFFSET + r->model->bytes);
    memcpy((char *)s[SEGMENT_MODEL].base + SEGMENT_MODEL_OFFSET, r->model, r->model->bytes);
    create(r, SEGMENT_DIRECTORY, directory_bytes(r->model));
    directory_format(s[SEGMENT_DIRECTORY].base, r->model, &r->layout, loaders);
    create(r, SEGMENT_ARENA, r->layout.bytes);
    create(r, SEGMENT_GATES, gates_bytes(h->hidden, h->experts));
    gates_format(s[SEGMENT_GATES].base, h->layers, h->hidden, h->experts);
    create(r, SEGMENT_ACCESS_LOG, access_log_bytes());
    create(r, SEGMENT_KV, kv_bytes(&kv));
    kv_format(s[SEGMENT_KV].base, &kv);
    create(r, SEGMENT_PROCS, procs_bytes());
    procs_format(s[SEGMENT_PROCS].base, params, loaders);
}

static void attach_own(struct rig *r)
{
    struct error error;
    must(directory_attach(dup(r->segment[SEGMENT_DIRECTORY].fd), true, r->boot, r->model,
                          &r->directory, &error),
         &error);
    must(procs_attach(dup(r->segment[SEGMENT_PROCS].fd), true, r->boot, &r->procs, &error), &error);
    must(access_log_attach(dup(r->segment[SEGMENT_ACCESS_LOG].fd), true, r->boot, &r->access_log,
                           &error),
         &error);
}

static uint64_t quota_of(const struct rig *r, double share)
{
    uint64_t experts = (uint64_t)((double)r->model->expert_slot_bytes * share);
    return r->model->dense_bytes + align_up(experts, PAGE_BYTES);
}

static struct channel *open_channel(struct rig *r, enum endpoint endpoint, unsigned number,
                                    bool listen, enum msg_role role)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    must(endpoint_path(r->dir, endpoint, number, path, &error), &error);
    struct channel *channel =
        listen ? channel_listen(path, role, 1, &error) : channel_dial(path, role, 1, &error);
    ck_assert_msg(channel != NULL, "%s", error.text);
    return channel;
}

static pid_t rig_owner; /* runs the cases; each case is a process of its own */

void rig_cases_start(void)
{
    rig_owner = getpid();
}

void rig_open(struct rig *r, const struct rig_options *o)
{
    struct error error;
    struct params params;
    *r = (struct rig){.boot = clock_now_ns(), .position = 1};
    snprintf(r->dir, sizeof r->dir, "/tmp/sluice-rig-%d-XXXXXX", (int)rig_owner);
    ck_assert(mkdtemp(r->dir) != NULL);
    open_model(r, o->own_copy);
    params_defaults(&params);
    params.loaders = o->loaders;
    params.prefault = o->prefault;
    params.queue_depth = o->depth ? o->depth : params.queue_depth;
    params.io_size = o->chunk ? o->chunk : params.io_size;
    must(params_set(&params, "backend", o->backend ? o->backend : "auto", &error), &error);
    /* What is read is what the test asks for. */
    must(params_set(&params, "policy", "preload=none", &error), &error);
    create_segments(r, &params, o->loaders);
    attach_own(r);
    for (uint32_t i = 0; i < o->loaders; i++)
        r->directory.head->files[i][0] = r->model_file;
    snprintf(r->procs.head->run_dir, sizeof r->procs.head->run_dir, "%s", r->dir);
    snprintf(r->procs.head->model_path, sizeof r->procs.head->model_path, "%s", r->model_path);
    atomic_store(&r->directory.head->quota_bytes, quota_of(r, o->experts_share));
    atomic_store(&r->directory.head->quota_epoch, 1);
    ck_assert(pipe2(r->lifeline, O_CLOEXEC) == 0);
    r->lock = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (uint32_t i = 0; i < SERVICE_PROCESSES_MAX; i++)
        r->ready_fd[i] = -1;
    r->compute = open_channel(r, ENDPOINT_CACHE_COMPUTE, 0, false, ROLE_COMPUTE);
    r->predictor = open_channel(r, ENDPOINT_CACHE_PREDICTOR, 0, false, ROLE_PREDICTOR);
}

/* ---- processes ------------------------------------------------------------------------------ */

struct process *rig_process(struct rig *r, enum service service, uint32_t number)
{
    return &r->procs.head->process[procs_index_of(service, number)];
}

uint64_t rig_counter(struct rig *r, enum service service, uint32_t number, unsigned counter)
{
    return counter_get(rig_process(r, service, number), counter);
}

/* All source descriptors are above the targets: none is overwritten before it is duplicated. */
static void spawn(struct rig *r, uint32_t index, char **argv, int ready)
{
    /* The file is a loader's first; the others ignore it. There is no listening socket. */
    int source[INHERITED_FILES + 1 - INHERITED_LIFELINE] = {r->lifeline[0], ready, r->lock};
    source[INHERITED_HTTP - INHERITED_LIFELINE] = r->lock;
    source[INHERITED_FILES - INHERITED_LIFELINE] = r->model_fd;
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        source[INHERITED_SEGMENTS - INHERITED_LIFELINE + kind] = r->segment[kind].fd;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (size_t i = 0; i < ARRAY_LEN(source); i++) {
        source[i] = fcntl(source[i], F_DUPFD_CLOEXEC, INHERITED_FILES__END);
        ck_assert_int_ge(source[i], INHERITED_FILES__END);
        posix_spawn_file_actions_adddup2(&actions, source[i], INHERITED_LIFELINE + (int)i);
    }
    int rv = posix_spawn(&r->pid[index], argv[0], &actions, NULL, argv, environ);
    ck_assert_msg(rv == 0, "%s: %s", argv[0], strerror(rv));
    posix_spawn_file_actions_destroy(&actions);
    for (size_t i = 0; i < ARRAY_LEN(source); i++)
        close(source[i]);
}

void rig_spawn(struct rig *r, enum service service, uint32_t number, const char *backend)
{
    uint32_t index = procs_index_of(service, number);
    struct process *p = &r->procs.head->process[index];
    char program[512], n[16], incarnation[16], boot[32], backend_text[16];
    snprintf(program, sizeof program, "%s/%s", SLUICE_LIBEXEC, service_info(service)->program);
    snprintf(n, sizeof n, "%u", number);
    snprintf(incarnation, sizeof incarnation, "%u", atomic_load(&p->incarnation) + 1);
    snprintf(boot, sizeof boot, "%llu", (unsigned long long)r->boot);
    snprintf(backend_text, sizeof backend_text, "%s", backend ? backend : "");
    char *argv[] = {program,      "--number", n,    "--incarnation",
                    incarnation,  "--boot",   boot, backend ? "--backend" : NULL,
                    backend_text, NULL};
    int ready[2];
    ck_assert(pipe2(ready, O_CLOEXEC) == 0);
    if (!r->channel[index])
        r->channel[index] =
            open_channel(r, ENDPOINT_SUPERVISOR_CHILD, index, true, ROLE_SUPERVISOR);
    atomic_store(&p->incarnation, atomic_load(&p->incarnation) + 1);
    atomic_store(&p->state, PROC_STARTING);
    spawn(r, index, argv, ready[1]);
    atomic_store(&p->pid, r->pid[index]);
    close(ready[1]);
    r->ready_fd[index] = ready[0];
}

static void tick(struct rig *r)
{
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < SERVICE_PROCESSES_MAX; i++)
        if (r->channel[i])
            channel_tick(r->channel[i], now);
    channel_tick(r->compute, now);
    channel_tick(r->predictor, now);
}

bool rig_tick(struct rig *r, uint64_t deadline)
{
    tick(r);
    (void)poll(NULL, 0, 1);
    return clock_now_ns() < deadline;
}

void rig_wait_ready(struct rig *r, enum service service, uint32_t number)
{
    uint32_t index = procs_index_of(service, number);
    struct pollfd fd = {.fd = r->ready_fd[index], .events = POLLIN};
    uint64_t deadline = rig_deadline(READY_MS);
    while (poll(&fd, 1, 10) == 0)
        ck_assert_msg(rig_tick(r, deadline), "%s is not ready", service_name(service));
    char byte;
    ck_assert_msg(read(fd.fd, &byte, 1) == 1, "%s exited at its start", service_name(service));
    close(fd.fd);
    r->ready_fd[index] = -1;
    atomic_store(&rig_process(r, service, number)->state, PROC_READY);
    while (service == SERVICE_CACHE &&
           !(channel_connected(r->compute) && channel_connected(r->predictor)))
        ck_assert_msg(rig_tick(r, deadline), "the cache accepts no connection");
}

void rig_start(struct rig *r)
{
    rig_spawn(r, SERVICE_CACHE, 0, NULL);
    rig_wait_ready(r, SERVICE_CACHE, 0);
    for (uint32_t i = 0; i < r->procs.head->loaders; i++)
        rig_spawn(r, SERVICE_LOADER, i, NULL);
    for (uint32_t i = 0; i < r->procs.head->loaders; i++)
        rig_wait_ready(r, SERVICE_LOADER, i);
}

void rig_kill(struct rig *r, enum service service, uint32_t number)
{
    uint32_t index = procs_index_of(service, number);
    struct process *p = &r->procs.head->process[index];
    int status;
    atomic_store(&p->state, PROC_KILLED);
    kill(r->pid[index], SIGKILL);
    ck_assert(waitpid(r->pid[index], &status, 0) == r->pid[index]);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                  "%s exited on its own: status %#x", service_name(service), (unsigned)status);
    r->pid[index] = 0;
    atomic_store(&p->reaped, atomic_load(&p->incarnation));
    atomic_store(&p->state, PROC_DOWN);
}

void rig_wait_cleaned(struct rig *r, uint32_t number)
{
    const struct process *p = rig_process(r, SERVICE_LOADER, number);
    uint64_t deadline = rig_deadline(READY_MS);
    while (atomic_load(&p->cleaned) < atomic_load(&p->reaped))
        ck_assert_msg(rig_tick(r, deadline), "the cache does not clean up");
}

void rig_replace_loader(struct rig *r, uint32_t number)
{
    rig_kill(r, SERVICE_LOADER, number);
    rig_wait_cleaned(r, number);
    rig_spawn(r, SERVICE_LOADER, number, NULL);
    rig_wait_ready(r, SERVICE_LOADER, number);
}

void rig_inject(struct rig *r, enum injection point, uint32_t pass)
{
    atomic_store(&r->procs.head->injection_arg, pass);
    atomic_store(&r->procs.head->injection, (uint32_t)point);
}

void rig_wait_stopped(struct rig *r, enum service service, uint32_t number)
{
    uint64_t deadline = rig_deadline(READY_MS);
    pid_t pid = r->pid[procs_index_of(service, number)];
    int status = 0;
    while (waitpid(pid, &status, WNOHANG | WUNTRACED) != pid)
        ck_assert_msg(rig_tick(r, deadline), "%s was not stopped", service_name(service));
    ck_assert_msg(WIFSTOPPED(status), "%s ended: %#x", service_name(service), (unsigned)status);
}

static void stop_process(struct rig *r, uint32_t index)
{
    const struct process *p = &r->procs.head->process[index];
    struct msg_control stop = {.kind = CONTROL_STOP};
    uint64_t deadline = rig_deadline(STOP_MS), next = 0;
    int status;
    while (waitpid(r->pid[index], &status, WNOHANG) != r->pid[index]) {
        if (clock_now_ns() >= next) {
            channel_send(r->channel[index], &stop, MSG_CONTROL);
            next = clock_now_ns() + 100 * NS_PER_MS;
        }
        if (!rig_tick(r, deadline)) {
            kill(r->pid[index], SIGKILL);
            ck_abort_msg("%s does not stop", service_name((enum service)p->service));
        }
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "row %u: status %#x", index,
                  (unsigned)status);
    r->pid[index] = 0;
    atomic_store(&r->procs.head->process[index].reaped, atomic_load(&p->incarnation));
    atomic_store(&r->procs.head->process[index].state, PROC_DOWN);
}

void rig_stop(struct rig *r, enum service service, uint32_t number)
{
    atomic_store(&rig_process(r, service, number)->state, PROC_STOPPING);
    stop_process(r, procs_index_of(service, number));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void rig_cases_end(void)
{
    char pattern[64];
    glob_t left;
    snprintf(pattern, sizeof pattern, "/tmp/sluice-rig-%d-*", (int)rig_owner);
    if (glob(pattern, 0, NULL, &left) != 0)
        return;
    for (size_t i = 0; i < left.gl_pathc; i++)
        nftw(left.gl_pathv[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
    globfree(&left);
}

void rig_close(struct rig *r)
{
    uint32_t cache = procs_index_of(SERVICE_CACHE, 0);
    for (uint32_t index = SERVICE_PROCESSES_MAX;
         index-- > 0;) /* loaders have higher rows than the cache */
        if (r->pid[index] != 0 && index != cache)
            stop_process(r, index);
    if (r->pid[cache] != 0)
        stop_process(r, cache);
    channel_close(r->compute);
    channel_close(r->predictor);
    for (uint32_t index = 0; index < SERVICE_PROCESSES_MAX; index++)
        channel_close(r->channel[index]);
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        segment_detach(&r->segment[kind]);
    munmap((void *)(uintptr_t)r->file, r->file_bytes);
    close(r->model_fd);
    nftw(r->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(r->model);
}

/* ---- the supervisor's controls -------------------------------------------------------------- */

uint64_t rig_control(struct rig *r, enum service service, uint32_t number, uint32_t kind,
                     uint64_t value)
{
    uint32_t index = procs_index_of(service, number);
    struct msg_control control = {.kind = kind, .value = value, .epoch = ++r->control_epoch};
    if (kind == CONTROL_QUOTA) {
        control.epoch = atomic_load(&r->directory.head->quota_epoch) + 1;
        atomic_store(&r->directory.head->quota_bytes, value);
        atomic_store(&r->directory.head->quota_epoch, control.epoch);
    }
    uint64_t start = clock_now_ns(), deadline = rig_deadline(READY_MS), next = 0;
    for (;;) {
        _Alignas(8) char buf[MSG_BYTES_MAX];
        if (clock_now_ns() >= next) {
            channel_send(r->channel[index], &control, MSG_CONTROL);
            next = clock_now_ns() + 50 * NS_PER_MS;
        }
        while (channel_receive(r->channel[index], buf) > 0) {
            const struct msg_ack *ack = (const struct msg_ack *)(const void *)buf;
            if (ack->head.type == MSG_ACK && ack->kind == kind && ack->epoch == control.epoch)
                return clock_now_ns() - start;
        }
        ck_assert_msg(rig_tick(r, deadline), "control %u is not acknowledged", kind);
    }
}

void rig_quota(struct rig *r, uint64_t bytes)
{
    rig_control(r, SERVICE_CACHE, 0, CONTROL_QUOTA, bytes);
}

/* ---- compute -------------------------------------------------------------------------------- */

enum entry_state rig_state(struct rig *r, uint32_t entry)
{
    return entry_state_of(entry_read(&r->directory.entries[entry].word));
}

bool rig_payload_right(struct rig *r, uint32_t entry)
{
    const struct model_entry *e = &r->entries[entry];
    const uint8_t *slot = (const uint8_t *)r->segment[SEGMENT_ARENA].base +
                          atomic_load(&r->directory.entries[entry].arena_offset);
    for (uint32_t i = 0; i < e->extents; i++) {
        const struct model_extent *x = &e->extent[i];
        if (memcmp(slot + x->slot_offset + x->head_bytes, r->file + x->file_offset + x->head_bytes,
                   x->payload_bytes) != 0)
            return false;
    }
    return true;
}

void rig_send_demand(struct rig *r, const uint32_t *entries, uint32_t count, uint32_t attempt)
{
    struct msg_demand demand = {.access_log_position = access_log_written(&r->access_log),
                                .sent_ns = clock_now_ns(),
                                .sequence = 1,
                                .position = r->position,
                                .layer = r->entries[entries[0]].layer,
                                .attempt = attempt};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = entry_pin(&r->directory.entries[entries[i]].word, PINNER_COMPUTE);
        if (entry_state_of(word) != ENTRY_READY)
            demand.wants[demand.count++] = (struct msg_want){.entry = entries[i], .tokens = 1};
    }
    if (demand.count > 0)
        channel_send(r->compute, &demand, MSG_DEMAND);
}

static bool all_ready(struct rig *r, const uint32_t *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (rig_state(r, entries[i]) != ENTRY_READY)
            return false;
    return true;
}

bool rig_demand(struct rig *r, const uint32_t *entries, uint32_t count, unsigned ms)
{
    uint32_t counter = directory_counter_of(&r->directory, entries[0]);
    uint64_t deadline = rig_deadline(ms), again = rig_deadline(100);
    uint32_t attempt = 0;
    rig_send_demand(r, entries, count, attempt);
    for (;;) {
        uint32_t seen = directory_counter_now(&r->directory, counter);
        if (all_ready(r, entries, count))
            break;
        directory_wait(&r->directory, counter, seen, 20 * NS_PER_MS);
        tick(r);
        uint64_t now = clock_now_ns();
        if (now >= deadline)
            return false;
        if (now >= again) {
            rig_send_demand(r, entries, count, ++attempt);
            again = rig_deadline(100);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(rig_payload_right(r, entries[i]), "entry %u: wrong bytes", entries[i]);
    return true;
}

void rig_unpin(struct rig *r, const uint32_t *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        entry_unpin(&r->directory.entries[entries[i]].word, PINNER_COMPUTE);
}

void rig_access(struct rig *r, const uint32_t *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct model_entry *e = &r->entries[entries[i]];
        struct access_record access = {.sequence = 1,
                                       .position = r->position,
                                       .tokens = 1,
                                       .layer = e->layer,
                                       .expert = e->expert,
                                       .kind = ACCESS_EXPERT,
                                       .outcome = ACCESS_HIT};
        access_log_append(&r->access_log, &access);
    }
    rig_unpin(r, entries, count);
}

void rig_hint(struct rig *r, uint32_t layer, const uint32_t *entries, uint32_t count)
{
    struct msg_hint hint = {.sent_ns = clock_now_ns(),
                            .sequence = 1,
                            .position = r->position,
                            .layer = (uint16_t)layer,
                            .count = (uint16_t)count};
    for (uint32_t i = 0; i < count; i++)
        hint.predictions[i] = (struct msg_prediction){entries[i], 0.9f};
    channel_send(r->predictor, &hint, MSG_HINT);
}

bool rig_wait_dense(struct rig *r, unsigned ms)
{
    uint64_t deadline = rig_deadline(ms);
    for (uint32_t e = 0; e < r->model->dense_count; e++) {
        while (rig_state(r, e) != ENTRY_READY)
            if (!rig_tick(r, deadline))
                return false;
        ck_assert_msg(rig_payload_right(r, e), "dense entry %u: wrong bytes", e);
    }
    return true;
}

uint32_t rig_random(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 33) % below);
}
