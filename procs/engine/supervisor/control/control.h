/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on control.sock, and the statistics that they return. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CONTROL_CONTROL_H
#define SLUICE_ENGINE_SUPERVISOR_CONTROL_CONTROL_H

#include "procs/engine/supervisor/supervisor.h"

/* control.c, ops.c, stats.c */
int control_open(struct supervisor *s, struct error *error);
void control_serve(struct supervisor *s);
void control_tick(struct supervisor *s, uint64_t now_ns);
void control_finish(struct supervisor *s);
void control_handle(struct supervisor *s, struct rpc_request *request);
struct pending_request *control_add_pending(struct supervisor *s, struct rpc_request *request,
                                            enum pending_kind kind, uint64_t deadline_ns);
json_t *stats_snapshot(struct supervisor *s);
json_t *stats_status(struct supervisor *s);
json_t *stats_chat(const struct supervisor *s);
json_t *stats_memory(struct supervisor *s);

/* map.c: characters of a layer's experts, other than the digit of the best resident precision. */
#define MAP_NO_EXPERT ' '
#define MAP_ABSENT    '.'
#define MAP_LOADING   '+'
json_t *map_snapshot(struct supervisor *s, struct error *error);

#endif
