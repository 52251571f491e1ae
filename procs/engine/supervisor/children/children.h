/* SPDX-License-Identifier: Apache-2.0 */
/* The processes below the supervisor: their state machines, exits, controls and memory, and the
 * main loop. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CHILDREN_CHILDREN_H
#define SLUICE_ENGINE_SUPERVISOR_CHILDREN_CHILDREN_H

#include "procs/engine/supervisor/supervisor.h"

/* spawn.c */
bool child_may_write(enum service service, enum segment_kind kind);
int spawn_child(struct supervisor *s, struct child_record *c, struct error *error);
/* inspect, writing the index to out_fd. The pid, or -1. */
pid_t spawn_inspect(struct supervisor *s, int out_fd, struct error *error);
/* The program that fetches all of a model but its experts through this back end
 * (procs/engine/fetch). Its standard output is out_fd; secrets: it keeps variables with
 * credentials. The pid, or -1. */
#define SPAWN_FETCH_PROGRAM   "%s/sluice-fetch-%s" /* directory of the programs, module */
#define SPAWN_FETCH_ARGUMENTS 5
pid_t spawn_fetch(struct supervisor *s, const struct io_backend_info *server, bool secrets,
                  char *arguments[SPAWN_FETCH_ARGUMENTS], int out_fd, struct error *error);
int spawn_programs_dir(struct supervisor *s, struct error *error);

/* children.c: the state machines. */
int children_make(struct supervisor *s, struct error *error);
void children_event(struct supervisor *s, struct child_record *c, enum fsm_event event);
void children_tick(struct supervisor *s, uint64_t now_ns);
/* Spawns children that are DOWN and can start. */
void children_go(struct supervisor *s);
/* One step of stopping in reverse order; true when nothing is left. */
bool children_stop(struct supervisor *s);
void children_ready_byte(struct supervisor *s, struct child_record *c);
enum proc_state child_state(const struct child_record *c);
struct child_record *child_of(struct supervisor *s, enum service service, uint32_t number);
/* "cache", "loader.0" */
const char *child_name(const struct child_record *c, char buf[32]);
/* By such a name; "loader" alone is loader 0, if there is one. */
struct child_record *child_by_name(struct supervisor *s, const char *name);
/* Every child is READY, except optional ones that are disabled or crash again and again. */
bool children_serve(const struct supervisor *s);

/* reap.c: children that have exited. */
void children_reap(struct supervisor *s);
/* An early exit, or a failure to spawn: the event that follows. */
enum fsm_event child_crashed(struct supervisor *s, struct child_record *c);
/* Publishes whether an essential child cannot be kept running (procs_head.failing). */
void children_judge(struct supervisor *s);

/* controls.c: controls, repeated until acknowledged. */
void control_set(struct supervisor *s, struct child_record *c, enum control_kind kind,
                 uint64_t value, uint32_t epoch);
void controls_repeat(struct supervisor *s, struct child_record *c);
void controls_receive(struct supervisor *s, struct child_record *c);

/* oom_killer.c */
/* After cgroup_enter. Lowers the own score where that is permitted. */
void oom_open(struct supervisor *s);
/* Sets the score of a child; info NULL: of inspect. */
void oom_score_child(const struct supervisor *s, pid_t pid, const struct service_info *info);
void oom_tick(struct supervisor *s, uint64_t now_ns);
/* Once for each process that was reaped after a SIGKILL that we did not send: where memory ran out
 * if that was the OOM killer, else NULL. */
const char *oom_killed(struct supervisor *s);

/* measure.c */
bool measure_process(pid_t pid, struct usage *usage);

/* loop.c */
void loop_run(struct supervisor *s);
int loop_open(struct supervisor *s, struct error *error);
/* Starts the stop: children are stopped in reverse order. status becomes the exit status. */
void loop_stop(struct supervisor *s, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *phase_text(const struct supervisor *s);

#endif
