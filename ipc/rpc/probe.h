/* SPDX-License-Identifier: Apache-2.0 */
/* Checks from outside whether an NNG listener still passes connections to its socket.
 *
 * In NNG 1.5.2 a listener can fail while its kernel socket still accepts connections and even
 * completes handshakes; nothing inside the process reports it. The probe sends a handshake with an
 * unused protocol number: a working socket rejects the connection at once (end of file), a broken
 * one leaves it hanging. Non-blocking throughout. The probe never closes in the middle of a
 * handshake by choice: that is what breaks listeners. */
#ifndef SLUICE_IPC_RPC_PROBE_H
#define SLUICE_IPC_RPC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_HELLO_BYTES 8

enum probe_result {
    PROBE_PENDING,
    PROBE_ALIVE,  /* the socket accepted the connection and rejected the protocol */
    PROBE_SILENT, /* connected, but no reply yet */
    PROBE_REFUSED /* no listener: no such file, or a stale file */
};

struct probe {
    const char *path; /* NULL: idle; borrowed */
    int fd;           /* -1: not connected yet */
    uint64_t started_ns;
    size_t sent, got;
};

#define PROBE_IDLE ((struct probe){.fd = -1})

/* Starts a probe of an absolute path; the path must stay valid until it ends. */
void probe_start(struct probe *probe, const char *path, uint64_t now_ns);

/* Advances a probe; any result but PROBE_PENDING ends it. PROBE_SILENT after limit_ns. */
enum probe_result probe_step(struct probe *probe, uint64_t now_ns, uint64_t limit_ns);

/* Aborts a probe. */
void probe_stop(struct probe *probe);

static inline bool probe_running(const struct probe *probe)
{
    return probe->path != NULL;
}

/* Runs a complete probe, waiting up to limit_ns for its result. */
enum probe_result probe_once(const char *path, uint64_t limit_ns);

#endif
