/* SPDX-License-Identifier: Apache-2.0 */
/* A process gives up what it does not need: files and TCP (Landlock), system calls (seccomp), new
 * privileges. What each process keeps is one table, profiles.tbl.h with calls.tbl.h, and
 * docs/sandbox.md.
 *
 *   sandbox_files(rules, count, &parts, &error);          // while the process has one thread
 *   sandbox_calls(SANDBOX_LOADER, on_violation, arg, &parts, &error);   // of all threads
 *
 * Both are final. What the kernel does not provide is left out, and missing from *parts. A system
 * call that is not permitted ends the process with SIGSYS after on_violation; calls that libraries
 * try at will fail with an error instead (ERRNO in calls.tbl.h), and so do all in the supervisor
 * and in a process with a driver (filter.c). */
#ifndef SLUICE_SANDBOX_SANDBOX_H
#define SLUICE_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

enum sandbox_profile {
#define SANDBOX_PROFILE(id, name, groups, files, network) SANDBOX_##id,
#include "lib/sandbox/profiles.tbl.h"
    SANDBOX_PROFILE__COUNT
};

/* Parts of a sandbox that are in effect. */
enum sandbox_parts {
    SANDBOX_NO_NEW_PRIVS = 1,
    SANDBOX_LANDLOCK = 2, /* files */
    SANDBOX_SECCOMP = 4,
    SANDBOX_NO_TCP = 8 /* Landlock of Linux 6.7 */
};
#define SANDBOX_ALL (SANDBOX_NO_NEW_PRIVS | SANDBOX_LANDLOCK | SANDBOX_SECCOMP)

enum sandbox_access {
    SANDBOX_READ = 1,     /* files are read, directories listed */
    SANDBOX_WRITE = 2,    /* files are made, written, renamed and removed */
    SANDBOX_SOCKETS = 4,  /* socket files are made and removed */
    SANDBOX_DEVICE = 8,   /* files are read and written; calls of drivers (ioctl) */
    SANDBOX_FILES = 16,   /* as SANDBOX_WRITE, but no directory is made or removed */
    SANDBOX_CONNECT = 32, /* TCP connects to a port, of any address: Landlock of Linux 6.7 */
    SANDBOX_FILE = 64     /* this regular file is read, written and cut; a link is not followed */
};

/* What TLS reads: certificates of authorities that the system trusts, and its configuration. */
#define SANDBOX_AUTHORITIES                                                                        \
    {                                                                                              \
        "/etc/ssl", "/etc/pki", "/etc/crypto-policies", "/usr/share/ca-certificates",              \
            "/usr/local/share/ca-certificates"                                                     \
    }

struct sandbox_rule {
    const char *path; /* a file, or a directory with all below it; ignored if it does not exist.
                       * With SANDBOX_CONNECT: ports in digits, as
                       * 3300,6800-7568 */
    uint32_t access;  /* enum sandbox_access */
};

/* True in a build with sanitizers, whose runtimes need calls that no profile permits: both
 * functions then do nothing. */
bool sandbox_disabled(void);

/* No new privileges, and no files but those of the rules. Other threads keep their rights. -1 when
 * the kernel has Landlock and rejects a rule. */
int sandbox_files(const struct sandbox_rule *rules, size_t count, uint32_t *parts,
                  struct error *error);

/* Gets one line that names the call. It runs in a signal handler. */
typedef void (*sandbox_violation)(const char *text, void *arg);

/* Restricts all threads to the profile's system calls. */
int sandbox_calls(enum sandbox_profile profile, sandbox_violation violation, void *arg,
                  uint32_t *parts, struct error *error);

/* Returns the parts that the kernel provides; *landlock: version of its interface, 0: none. */
uint32_t sandbox_available(unsigned *landlock);

/* "no_new_privs, landlock, seccomp"; "none". */
#define SANDBOX_TEXT_BYTES 64
const char *sandbox_text(uint32_t parts, char text[SANDBOX_TEXT_BYTES]);

/* True for a variable ("NAME=value") that children keep. */
bool sandbox_keeps_variable(const char *variable);
/* True for one that only a child that needs it may have, with a sandbox or without. */
bool sandbox_secret_variable(const char *variable);

#endif
