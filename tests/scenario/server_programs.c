/* SPDX-License-Identifier: Apache-2.0 */
/* Starts servers of other projects. */
#include "tests/scenario/server_programs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/harness.h"

#define FINISH_MS 120000
#define SOON_MS   30000

static const char python[] = "/usr/bin/python3";

pid_t program_start(const char *const argv[])
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGPIPE, SIG_DFL); /* the harness may ignore it */
        dup2(null, STDIN_FILENO);
        dup2(null, STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    return pid;
}

void program_kill(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "it has exited");
}

void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "no %s", path);
}

/* ---- nginx ----------------------------------------------------------------------------------- */

static uint16_t free_port(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&own, bytes) == 0 &&
              getsockname(fd, (struct sockaddr *)&own, &bytes) == 0,
          "no port");
    close(fd);
    return ntohs(own.sin_port);
}

static bool listens(int family, const void *address, socklen_t bytes)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, address, bytes);
    close(fd);
    return rc == 0;
}

static void wait_port(uint16_t port)
{
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    uint64_t deadline = deadline_in(SOON_MS);
    while (!listens(AF_INET, &four, sizeof four) && !listens(AF_INET6, &six, sizeof six))
        CHECK(deadline_tick(deadline), "nothing listens on port %u", (unsigned)port);
}

void nginx_make(struct nginx *n, const char *name)
{
    if (access(NGINX_PROGRAM, X_OK) != 0)
        test_skip("there is no nginx");
    path_in_dir(n->directory, name);
    CHECK(mkdir(n->directory, 0700) == 0, "no %s", n->directory);
    n->port = free_port();
}

void nginx_start(struct nginx *n, const char *address, const char *lines)
{
    char path[PATH_MAX + 16], text[12 * PATH_MAX];
    const char *d = n->directory;
    snprintf(path, sizeof path, "%s/nginx.conf", d);
    snprintf(text, sizeof text,
             "daemon off; master_process off; pid %s/pid; error_log /dev/null;\n"
             "events { worker_connections 64; }\n"
             "http { access_log off; client_body_temp_path %s/a; proxy_temp_path %s/b;\n"
             "fastcgi_temp_path %s/c; uwsgi_temp_path %s/d; scgi_temp_path %s/e;\n"
             "server { listen %s:%u%s } }\n",
             d, d, d, d, d, d, address, (unsigned)n->port, lines);
    file_write(path, text);
    nginx_again(n);
}

void nginx_again(struct nginx *n)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/nginx.conf", n->directory);
    n->pid =
        program_start((const char *const[]){NGINX_PROGRAM, "-e", "/dev/null", "-c", path, NULL});
    wait_port(n->port);
}

/* ---- S3 -------------------------------------------------------------------------------------- */

void object_store_start(struct object_store *s, const char *object)
{
    struct command c;
    char ready[PATH_MAX], text[16] = "";
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){python, "-c", "import botocore.auth", NULL});
    bool there = c.status == 0;
    command_free(&c);
    if (!there)
        test_skip("there is no python3-botocore");
    path_in_dir(ready, "ready");
    path_in_dir(s->keys, "keys");
    s->pid = program_start((const char *const[]){
        python, SLUICE_SOURCE_DIR "/tests/scenario/s3_server.py", object, s->keys, ready, NULL});
    uint64_t deadline = deadline_in(SOON_MS);
    while (access(ready, R_OK) != 0)
        CHECK(deadline_tick(deadline), "the server does not start");
    FILE *file = fopen(ready, "re");
    CHECK(file && fgets(text, sizeof text, file) && fclose(file) == 0, "no %s", ready);
    s->port = (unsigned)strtoul(text, NULL, 10);
}
