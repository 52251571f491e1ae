/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor prepares this before its children run, and it outlives them: options, run
 * directory, model, files, devices, segments, the socket of the gateway, the service manager. */
#ifndef SLUICE_ENGINE_SUPERVISOR_START_START_H
#define SLUICE_ENGINE_SUPERVISOR_START_START_H

#include "procs/engine/supervisor/supervisor.h"

/* options.c */
int options_take(struct supervisor *s, int argc, char **argv, struct error *error);

/* run_dir.c: the run directory, its lock, files that a crashed predecessor left. */
int run_dir_take(struct supervisor *s, struct error *error);
void run_dir_clear(const struct supervisor *s);
void run_dir_remove(const struct supervisor *s);
/* Moves a descriptor above FD_MIN, close-on-exec. -1 with errno. */
int fd_high(int fd);

/* origin.c: of a model on a server (-m URL), fetches all but its experts into a directory, which
 * becomes the model; the parameter `origin` gets the address of its host. Nothing without a URL. */
int origin_take(struct supervisor *s, struct error *error);

/* model.c: runs inspect, checks what it wrote, resolves the parameters that depend on it. */
int model_take(struct supervisor *s, struct error *error);
/* Whether a preset can run here: its policy parameters are valid, its precisions and plan are
 * available, and under --max-loss its measured loss holds and is small enough. share: of the
 * experts' bytes that fit. Fills *knobs. */
int model_check_preset(struct supervisor *s, uint32_t preset, double share, struct knobs *knobs,
                       struct error *error);
/* The same of the preset that the engine starts with. That of a tuning, which nobody has named, is
 * replaced by auto where it cannot run: a start with a tuning never fails for its preset. */
int model_check_start(struct supervisor *s, double share, struct error *error);
/* Whether the requested preset is a lossy one, or one that cannot be resolved. */
bool model_requests_lossy(const struct supervisor *s);
/* Whether the requested preset, which can run now, could also run with this throttle of a loader
 * (0: none) in place of the present one; 0 also if it cannot run now, since that is not because of
 * the throttle. */
int model_check_throttle(struct supervisor *s, uint32_t loader, uint64_t bytes_per_s,
                         struct error *error);

/* tuned.c: before the start. Takes the store, plan and preset of the model's tuning, or offers to
 * make one. */
int tuned_take(struct supervisor *s, struct error *error);

/* warm.c: the experts that earlier runs used. Before the children start; after they ended. */
void warm_begin(struct supervisor *s);
/* Samples of the model's files. -1 with *error. */
int warm_hash_model(const struct supervisor *s, uint8_t hash[WARM_HASH_BYTES], struct error *error);
void warm_end(struct supervisor *s);

/* files.c: the files of the loaders. */
/* Opens every copy of every file. A copy that cannot be opened is logged and left out; -1 for the
 * inspected files and for a loader without any. */
int files_open(struct supervisor *s, struct error *error);
/* Before a loader is spawned: what is known about its files, and their descriptors. */
void files_publish(struct supervisor *s, uint32_t loader);
void files_inherit(struct supervisor *s, uint32_t loader, posix_spawn_file_actions_t *actions);
/* While the loader is down: opens the paths of its copies that are in quarantine or missing again.
 * Returns the copies that stay in quarantine. */
uint32_t files_renew(struct supervisor *s, uint32_t loader, uint32_t quarantined);
/* Reports replaced files once, and a file that changed in place and has no other copy. */
void files_watch(struct supervisor *s);
/* True while there is such a file, with ERR_MODEL_CHANGED. */
bool files_changed(const struct supervisor *s, struct error *error);
/* Paths of the replaced files. */
json_t *files_replaced(const struct supervisor *s);

/* storage.c */
/* One loader for each of --devices. Checks all of them, so that storage_params cannot fail
 * later. */
int storage_resolve(struct supervisor *s, struct error *error);
/* Checks the URL of a server and that the loader of it is there. `to` gets the same URL with the
 * address of the host in numbers: a process with a sandbox cannot ask for it. */
int storage_address(struct supervisor *s, const char *url, char to[PARAM_TEXT_BYTES],
                    struct error *error);
/* The program of a child: loaders of servers have others (lib/io/backends.tbl.h). */
const char *storage_program(const struct supervisor *s, enum service service, uint32_t number);
/* The row of the servers that this loader reads; NULL: files only. */
const struct io_backend_info *storage_server(const struct supervisor *s, uint32_t loader);
/* Whether any loader connects with TCP. */
bool storage_uses_tcp(const struct supervisor *s);
/* Private memory and threads of a loader for its servers; the kernel's memory for what all loaders
 * receive by TCP. */
uint64_t storage_server_bytes(const struct supervisor *s, uint32_t loader);
uint32_t storage_server_threads(const struct supervisor *s, uint32_t loader);
uint64_t storage_socket_bytes(const struct supervisor *s);
/* Whether this child, and no other, gets the variables with secrets (lib/sandbox/profiles.tbl.h):
 * a loader that signs requests and has no file with credentials. */
bool storage_needs_secrets(const struct supervisor *s, enum service service, uint32_t number);
/* The parameters for a loader's device. Valid until the next call. */
const struct params *storage_params(struct supervisor *s, uint32_t loader);
/* "loader.1 PATH: REASON" for every copy in quarantine. */
json_t *storage_quarantined(const struct supervisor *s);
/* Before a loader's successor is spawned: clears the quarantine if requested. */
void storage_clear_quarantine(struct supervisor *s, struct child_record *c);

/* device_cache.c: files in front of servers. Checks what was given; then makes the files, once the
 * model is known by its bytes. What fails then is logged, and loaders run without. */
int device_cache_check(struct supervisor *s, struct error *error);
void device_cache_make(struct supervisor *s);
/* The file has no slots any more: of a loader that does not run, whose server may have other bytes
 * now and does not say so. */
void device_cache_empty(struct supervisor *s, uint32_t loader);

/* prefix_dir.c: makes the directory of prefixes, and checks it; the model that its files are bound
 * to, in the kv segment. Nothing without --prefix-dir. */
int prefix_dir_make(const struct supervisor *s, struct error *error);
int prefix_dir_publish(struct supervisor *s, struct error *error);

/* segments.c */
/* Free bytes of /dev/shm; UINT64_MAX: not known, with errno. */
uint64_t segments_space(void);
/* The largest budget with which it surely holds all segments; UINT64_MAX: any. */
uint64_t segments_limit(const struct supervisor *s);
/* What /dev/shm has for the arena beside the other segments, with what the arena has there. */
uint64_t segments_quota(const struct supervisor *s);
/* Whether it holds what the ledger says. */
int segments_check_space(struct supervisor *s, struct error *error);
int segments_make(struct supervisor *s, struct error *error);
uint64_t segments_fixed_bytes(const struct supervisor *s);
void segments_drop(struct supervisor *s);

/* http.c: the socket of the gateway, which outlives it: clients that connect during a restart wait
 * in the socket's queue. With --print-memory there is none: the engine may run that it is for. */
int http_listen(struct supervisor *s, struct error *error);
/* Memory of the gateway: private bytes reserved in the ledger, bytes it can grow by, and kernel
 * memory for its connections. */
uint64_t http_reservation_bytes(const struct params *p, const struct model_index *m);
uint64_t http_growth(const struct params *p, const struct model_index *m);
uint64_t http_kernel(const struct params *p);

/* notify.c: systemd, or another service manager that set NOTIFY_SOCKET. */
void notify_take(struct supervisor *s);
void notify_send(const struct supervisor *s, const char *text);
/* The keep-alive of systemd's WatchdogSec=, twice per period, and a changed phase as STATUS=. */
void notify_alive(struct supervisor *s, uint64_t now_ns);

#endif
