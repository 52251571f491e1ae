/* The children: one machine (machine.h) per row of the process table. This file feeds events into
 * the table and carries out its actions; nothing here decides by state what the table can decide.
 *
 * Who dies, what happens: a loader's rest is the cache's to clean (row.reaped -> row.cleaned)
 * before a successor is spawned; compute's and the predictor's pins are swept here, after waitpid;
 * the cache's successor rebuilds from the directory. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

enum proc_state child_state(const struct child_slot *c)
{
    return (enum proc_state)atomic_load_explicit(&c->row->state, memory_order_relaxed);
}

const char *child_word(const struct child_slot *c, char buf[32])
{
    if (c->service == SERVICE_LOADER)
        snprintf(buf, 32, "loader.%" PRIu32, c->number);
    else
        snprintf(buf, 32, "%s", c->info->word);
    return buf;
}

struct child_slot *child_of(struct supervisor *s, enum service service, uint32_t number)
{
    for (uint32_t i = 0; i < s->children_count; i++)
        if (s->children[i].service == service && s->children[i].number == number)
            return &s->children[i];
    return NULL;
}

struct child_slot *child_by_word(struct supervisor *s, const char *word)
{
    char buf[32];
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_slot *c = &s->children[i];
        if (strcmp(child_word(c, buf), word) == 0 ||
            (c->number == 0 && strcmp(c->info->word, word) == 0))
            return c;
    }
    return NULL;
}

bool children_serve(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        const struct child_slot *c = &s->children[i];
        bool left_out = child_state(c) == PROC_FAILED && !c->info->essential;
        if (child_state(c) != PROC_READY && !left_out)
            return false;
    }
    return true;
}

static int child_make(struct supervisor *s, enum service service, uint32_t number,
                      struct error *error)
{
    sl_assert(s->children_count < CHILDREN_MAX);
    struct child_slot *c = &s->children[s->children_count];
    *c = (struct child_slot){.magic = CHILD_MAGIC,
                             .service = service,
                             .number = number,
                             .info = service_info(service),
                             .ready_fd = -1};
    c->row_number = procs_row_of(service, number);
    c->row = &s->procs->row[c->row_number];
    c->row->service = service;
    c->row->number = number;
    char path[ENDPOINT_BYTES];
    if (endpoint_path(s->run_dir, ENDPOINT_SUPERVISOR_CHILD, c->row_number, path, error) != 0)
        return -1;
    c->edge = edge_listen(path, ROLE_SUPERVISOR, atomic_load(&s->row->incarnation), error);
    if (!c->edge)
        return -1;
    s->children_count++;
    return 0;
}

int children_make(struct supervisor *s, struct error *error)
{
    for (int service = SERVICE_SUPERVISOR + 1; service < SERVICE__COUNT; service++) {
        uint32_t count = service_count((enum service)service, &s->params);
        for (uint32_t number = 0; number < count; number++)
            if (child_make(s, (enum service)service, number, error) != 0)
                return -1;
    }
    return 0;
}

/* ---- actions ---- */

static void early_death(struct supervisor *s, struct child_slot *c)
{
    bool often = tally_note(&c->tally, clock_now_ns());
    children_event(s, c, often ? EVENT_DIED_OFTEN : EVENT_DIED_EARLY);
}

static void act_spawn(struct supervisor *s, struct child_slot *c)
{
    struct error error;
    char word[32];
    c->wanted_death = c->late = false;
    devices_forgive(s, c);
    c->ready_ns = 0;
    c->deadline_ns = clock_now_ns() + c->info->ready_ms * NS_PER_MS;
    if (spawn_child(s, c, &error) != 0) {
        snprintf(c->words, sizeof c->words, "%.*s", (int)sizeof c->words - 1, error.text);
        log_error("%s", error.text);
        early_death(s, c);
        return;
    }
    atomic_store_explicit(&c->row->pid, (int32_t)c->pid, memory_order_relaxed);
    uint32_t incarnation = atomic_load(&c->row->incarnation);
    if (incarnation > 1) {
        atomic_fetch_add_explicit(&c->row->restarts, 1, memory_order_relaxed);
        c->restarts_by[c->cause]++;
        deaths_restarted(&s->deaths, (uint32_t)(c - s->children));
    }
    counter_add(s->row, CTR_SUPERVISOR_spawns, 1);
    log_debug("%s: incarnation %" PRIu32 " is process %d", child_word(c, word), incarnation,
              (int)c->pid);
}

static void act_announce(struct supervisor *s, struct child_slot *c)
{
    char word[32];
    close(c->ready_fd);
    c->ready_fd = -1;
    c->ready_ns = clock_now_ns();
    c->progress_at_ready = atomic_load_explicit(&c->row->progress, memory_order_relaxed);
    if (atomic_load(&c->row->incarnation) > 1)
        log_info("%s is back (incarnation %" PRIu32 ")", child_word(c, word),
                 atomic_load(&c->row->incarnation));
    budget_child_ready(s, c);
}

static void act_kill(struct child_slot *c)
{
    sl_assert(c->pid > 0);
    /* Not reaped yet, so the number is still its own. SIGKILL also ends a stopped process. */
    kill(c->pid, SIGKILL);
    c->deadline_ns = clock_now_ns() + REAP_NS;
}

static void act_ask_stop(struct supervisor *s, struct child_slot *c)
{
    c->deadline_ns = clock_now_ns() + STOP_NS;
    control_set(s, c, CONTROL_STOP, 0, ++s->next_epoch);
}

/* How it ended, for people. Its own last words come first: they say why. */
static void obituary(struct child_slot *c)
{
    uint32_t number = atomic_load(&c->row->last_signal);
    char own[PROCS_WORDS_BYTES];
    memcpy(own, c->row->last_words, sizeof own);
    own[sizeof own - 1] = 0;
    c->row->last_words[0] = 0;
    for (char *p = own; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    if (own[0])
        memcpy(c->words, own, sizeof own);
    else if (c->late)
        snprintf(c->words, sizeof c->words, "heartbeat too old, killed");
    else if (number)
        snprintf(c->words, sizeof c->words, "signal %" PRIu32 " (%s)", number,
                 strsignal((int)number));
    else
        snprintf(c->words, sizeof c->words, "exit status %" PRIu32,
                 atomic_load(&c->row->last_exit));
}

static void bury(struct supervisor *s, struct child_slot *c)
{
    if (c->service == SERVICE_COMPUTE)
        directory_sweep(&s->directory, PINNER_COMPUTE);
    if (c->service == SERVICE_PREDICTOR)
        directory_sweep(&s->directory, PINNER_PREDICTOR);
    if (c->ready_fd >= 0)
        close(c->ready_fd);
    c->ready_fd = -1;
    c->pid = 0;
    c->ready_ns = 0;
    c->usage = (struct usage){0};
    c->controls[CONTROL_STOP].due = false;
    atomic_store_explicit(&c->row->pid, 0, memory_order_relaxed);
    /* Release: whoever sees the number finds the pins swept. */
    atomic_store_explicit(&c->row->reaped, atomic_load(&c->row->incarnation), memory_order_release);
    struct child_slot *cache = child_of(s, SERVICE_CACHE, 0);
    if (c->service == SERVICE_LOADER)
        control_set(s, cache, CONTROL_LOOK, c->number, ++s->next_epoch);
}

static void act_give_up(struct supervisor *s, struct child_slot *c)
{
    char word[32];
    bury(s, c);
    if (!c->info->essential) {
        log_error("%s does not start and is left out: %s", child_word(c, word), c->words);
        return;
    }
    bool bad_input = atomic_load(&c->row->last_exit) == 2 && atomic_load(&c->row->last_signal) == 0;
    loop_stop(s, bad_input ? 2 : 1, "%s failed: %s", child_word(c, word), c->words);
}

void children_event(struct supervisor *s, struct child_slot *c, enum machine_event event)
{
    OBJ_CHECK(c, CHILD_MAGIC);
    struct machine_step step = machine_step(child_state(c), event);
    if (step.action == ACTION_BROKEN)
        sl_panic("%s %s while %s", c->info->word, machine_event_text(event),
                 proc_state_text(child_state(c)));
    atomic_store_explicit(&c->row->state, step.next, memory_order_relaxed);
    switch ((enum machine_action)step.action) {
    case ACTION_NONE: break;
    case ACTION_SPAWN: act_spawn(s, c); break;
    case ACTION_ANNOUNCE: act_announce(s, c); break;
    case ACTION_KILL: act_kill(c); break;
    case ACTION_ASK_STOP: act_ask_stop(s, c); break;
    case ACTION_BURY: bury(s, c); break;
    case ACTION_BURY_WAIT:
        bury(s, c);
        c->deadline_ns = clock_now_ns() + tally_backoff_ns(&c->tally);
        break;
    case ACTION_GIVE_UP: act_give_up(s, c); break;
    case ACTION_BROKEN: break;
    }
}

/* ---- events ---- */

void children_ready_byte(struct supervisor *s, struct child_slot *c)
{
    char byte;
    ssize_t n = read(c->ready_fd, &byte, 1);
    if (n == 1) {
        children_event(s, c, EVENT_READY);
    } else if (n == 0) {
        /* It closed its end or died; if it died, SIGCHLD tells. */
        close(c->ready_fd);
        c->ready_fd = -1;
    }
}

static enum machine_event classify(struct child_slot *c)
{
    bool progressed =
        c->ready_ns &&
        atomic_load_explicit(&c->row->progress, memory_order_relaxed) != c->progress_at_ready;
    if (progressed)
        tally_clear(&c->tally);
    if (progressed || c->wanted_death || child_state(c) == PROC_STOPPING)
        return EVENT_DIED;
    if (child_state(c) == PROC_STARTING && atomic_load(&c->row->last_exit) == 2 &&
        atomic_load(&c->row->last_signal) == 0)
        return EVENT_DIED_REFUSED;
    if (c->backend[0] && !c->ready_ns) {
        /* A choice of ctl must not end the run: the next one takes the configured back end again.
         */
        log_warn("back end %s does not start here, going back to the configured one", c->backend);
        c->backend[0] = 0;
    }
    return tally_note(&c->tally, clock_now_ns()) ? EVENT_DIED_OFTEN : EVENT_DIED_EARLY;
}

/* Before the machine buries it: what it was is forgotten there. */
static void chronicle(struct supervisor *s, struct child_slot *c)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint32_t number = atomic_load(&c->row->last_signal);
    const struct death_facts facts = {.late = c->late,
                                      .asked = c->wanted_death,
                                      .too_slow = child_state(c) == PROC_KILLED && !c->ready_ns,
                                      .signal = number};
    c->cause = death_cause_of(&facts);
    const struct death death = {.uptime_ms = (clock_now_ns() - s->started_ns) / NS_PER_MS,
                                .wall_ms = (uint64_t)wall.tv_sec * 1000 +
                                           (uint64_t)wall.tv_nsec / NS_PER_MS,
                                .child = (uint32_t)(c - s->children),
                                .incarnation = atomic_load(&c->row->incarnation),
                                .pid = (int32_t)c->pid,
                                .cause = c->cause,
                                .signal = number,
                                .exit_status = atomic_load(&c->row->last_exit)};
    deaths_note(&s->deaths, &death, c->words);
}

static void reap_one(struct supervisor *s, struct child_slot *c, int status)
{
    char word[32];
    atomic_store(&c->row->last_signal, WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0);
    atomic_store(&c->row->last_exit, WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0);
    counter_add(s->row, CTR_SUPERVISOR_deaths, 1);
    enum machine_event event = classify(c);
    obituary(c);
    chronicle(s, c);
    if (s->phase != PHASE_STOP)
        log_warn("%s (process %d) ended: %s", child_word(c, word), (int)c->pid, c->words);
    children_event(s, c, event);
}

void children_reap(struct supervisor *s)
{
    /* By pid, never -1: SIGCHLDs merge, and inspect is nobody's row. Never blocking: a process in
     * an uninterruptible read stays KILLED for as long as it takes. */
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_slot *c = &s->children[i];
        int status;
        if (c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid)
            reap_one(s, c, status);
    }
}

/* Everything it starts after is READY; for loaders: all of them. */
static bool may_start(const struct supervisor *s, const struct child_slot *c)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        const struct child_slot *other = &s->children[i];
        if ((c->info->after & (1u << other->service)) && child_state(other) != PROC_READY)
            return false;
    }
    /* A dead loader's ranges are clean before anybody may be told to write there again. */
    return c->service != SERVICE_LOADER ||
           atomic_load_explicit(&c->row->cleaned, memory_order_acquire) >=
               atomic_load(&c->row->reaped);
}

static bool heartbeat_late(const struct supervisor *s, const struct child_slot *c, uint64_t now_ns)
{
    if (!s->params.watchdog || now_ns < s->alert_ns)
        return false;
    uint64_t beat = atomic_load_explicit(&c->row->heartbeat_ns, memory_order_relaxed);
    if (beat < c->ready_ns)
        beat = c->ready_ns;
    return now_ns > beat && now_ns - beat > s->params.heartbeat * NS_PER_MS;
}

static void killed_too_long(struct supervisor *s, struct child_slot *c)
{
    char word[32];
    c->deadline_ns = UINT64_MAX;
    if (c->service == SERVICE_CACHE && s->phase != PHASE_STOP)
        loop_stop(s, 1, "cache (process %d) was killed and is not gone after 10 s", (int)c->pid);
    else
        log_error("%s (process %d) was killed and is not gone after 10 s", child_word(c, word),
                  (int)c->pid);
}

static void child_tick(struct supervisor *s, struct child_slot *c, uint64_t now_ns)
{
    if (c->pid > 0) /* nobody dials for the dead: nothing to probe */
        edge_tend(c->edge, now_ns);
    controls_repeat(s, c);
    char word[32];
    bool due = now_ns >= c->deadline_ns;
    switch (child_state(c)) {
    case PROC_STARTING:
        if (due)
            children_event(s, c, EVENT_SLOW_START);
        break;
    case PROC_READY:
        if (heartbeat_late(s, c, now_ns)) {
            c->late = true;
            counter_add(s->row, CTR_SUPERVISOR_kills, 1);
            children_event(s, c, EVENT_LATE);
        }
        break;
    case PROC_STOPPING:
        if (due) {
            log_warn("%s does not stop (%s, its connection is %s); killing it", child_word(c, word),
                     proc_wait_text(atomic_load(&c->row->wait)),
                     edge_connected(c->edge) ? "up" : "down");
            children_event(s, c, EVENT_SLOW_STOP);
        }
        break;
    case PROC_BACKOFF:
        if (due)
            children_event(s, c, EVENT_BACKOFF_OVER);
        break;
    case PROC_KILLED:
        if (due)
            killed_too_long(s, c);
        break;
    case PROC_DOWN:
    case PROC_FAILED: break;
    }
}

void children_tick(struct supervisor *s, uint64_t now_ns)
{
    for (uint32_t i = 0; i < s->children_count; i++)
        child_tick(s, &s->children[i], now_ns);
}

void children_go(struct supervisor *s)
{
    if (s->phase == PHASE_STOP)
        return;
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_slot *c = &s->children[i];
        if (child_state(c) == PROC_DOWN && may_start(s, c))
            children_event(s, c, EVENT_GO);
    }
}

static bool gone(const struct child_slot *c)
{
    return c->pid == 0 && child_state(c) != PROC_BACKOFF;
}

bool children_stop(struct supervisor *s)
{
    bool all = true;
    for (int service = SERVICE__COUNT - 1; service > SERVICE_SUPERVISOR; service--) {
        bool stage = true;
        for (uint32_t i = 0; i < s->children_count; i++) {
            struct child_slot *c = &s->children[i];
            if (c->service != (enum service)service || gone(c))
                continue;
            stage = false;
            c->wanted_death = true;
            if (s->fast && child_state(c) == PROC_READY)
                children_event(s, c, EVENT_RESTART);
            else if (s->fast && child_state(c) == PROC_STOPPING)
                children_event(s, c, EVENT_SLOW_STOP);
            else
                children_event(s, c, EVENT_STOP);
        }
        all = all && stage;
        if (!stage && !s->fast)
            break; /* the next stage when this one is gone */
    }
    return all;
}
