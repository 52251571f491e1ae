/* SPDX-License-Identifier: Apache-2.0 */
/* Starts servers of other projects as processes of a test, with which they end: nginx, and the
 * server with S3's signatures. */
#ifndef SLUICE_SCENARIO_SERVER_PROGRAMS_H
#define SLUICE_SCENARIO_SERVER_PROGRAMS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define NGINX_PROGRAM "/usr/sbin/nginx"

pid_t program_start(const char *const argv[]);
void program_kill(pid_t pid);

void file_write(const char *path, const char *text);

/* nginx at address:port ("127.0.0.1", "[::1]", "localhost"); its files are in `directory`. */
struct nginx {
    pid_t pid;
    uint16_t port;
    char directory[PATH_MAX];
};
/* Skips the test without nginx. Makes the directory and takes a port. */
void nginx_make(struct nginx *n, const char *name);
/* `lines` are of its server; they begin behind the port. */
void nginx_start(struct nginx *n, const char *address, const char *lines);
void nginx_again(struct nginx *n);

/* s3_server.py of a file or directory; skips the test without botocore. */
struct object_store {
    pid_t pid;
    unsigned port;
    char keys[PATH_MAX];
};
void object_store_start(struct object_store *s, const char *object);

#endif
