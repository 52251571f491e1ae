/* Asks from outside whether a listener of NNG still hands connections to its socket.
 *
 * NNG 1.5.2's listener can die while its kernel socket goes on accepting and even shaking hands:
 * nothing inside the process tells. A probe shakes hands under a protocol number nobody speaks: a
 * living socket refuses the connection at once (end of file), a dead one leaves it hanging.
 * Non-blocking throughout. The probe never hangs up in the middle of a handshake of its own accord:
 * that is what kills listeners. */
#ifndef SLUICE_IPC_RPC_PROBE_H
#define SLUICE_IPC_RPC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROBE_HELLO_BYTES 8

enum probe_result {
    PROBE_PENDING,
    PROBE_ALIVE,  /* the socket took the connection and refused the protocol */
    PROBE_SILENT, /* somebody holds the path, nobody answers (yet) */
    PROBE_REFUSED /* nobody listens: no such file, or a file left by a dead process */
};

struct probe {
    const char *path; /* NULL: idle; borrowed */
    int fd;           /* -1: not connected yet */
    uint64_t started_ns;
    size_t sent, got;
};

#define PROBE_IDLE ((struct probe){.fd = -1})

/* Begins a probe of an absolute path; the path must stay until its end. */
void probe_start(struct probe *probe, const char *path, uint64_t now_ns);

/* Goes on; anything but PROBE_PENDING ends it. Silence counts after limit_ns. */
enum probe_result probe_step(struct probe *probe, uint64_t now_ns, uint64_t limit_ns);

/* Ends it at once. */
void probe_stop(struct probe *probe);

static inline bool probe_running(const struct probe *probe)
{
    return probe->path != NULL;
}

/* A whole probe, waiting up to limit_ns for its result. */
enum probe_result probe_once(const char *path, uint64_t limit_ns);

#endif
