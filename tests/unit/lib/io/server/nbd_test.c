/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of network block devices with real servers: bytes, ends of files, errors, a server
 * that goes away and comes back, and reads that are taken back. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "tests/harness/nbdkit.h"

#define FILE_BYTES (1 * MIB + 1000)
#define DEPTH      8
#define OPENSSL    "/usr/bin/openssl"
#define SOON_NS    (20 * NS_PER_S)

static char directory[] = "/tmp/nbd-test-XXXXXX";
static char file[64], plugin_file[80];
static unsigned char bytes[FILE_BYTES + 64 * KIB], got[FILE_BYTES + 64 * KIB];
static struct nbdkit server;
static const struct io_backend *nbd;
static struct io *io;
static int fd;

static void make_file(uint64_t size)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i < FILE_BYTES ? (unsigned char)(i * 31 + (i >> 9)) : 0;
    int out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(out, bytes, size), (ssize_t)size);
    close(out);
    memset(got, 0xee, sizeof got);
}

static const char *served[8]; /* arguments of the server */

static void serve(const char *const args[])
{
    size_t n = 0;
    while (args[n] && n + 1 < ARRAY_LEN(served))
        n++;
    memmove(served, args, n * sizeof *args);
    served[n] = NULL;
    ck_assert_msg(nbdkit_start(&server, directory, args), "nbdkit does not start");
}

static void serve_file(void)
{
    serve((const char *const[]){"file", plugin_file, NULL});
}

static void open_backend(void)
{
    char url[160];
    struct error error;
    snprintf(url, sizeof url, "nbd+unix:///?socket=%s", server.socket);
    nbd = io_servers[0];
    const struct io_source source = {.url = url, .bytes = FILE_BYTES, .depth = DEPTH};
    io = nbd->open(&source, &fd, &error);
    ck_assert_ptr_nonnull(io);
}

static void close_all(void)
{
    nbd->close(io);
    nbdkit_kill(&server);
}

static void submit(uint64_t offset, uint32_t n)
{
    struct io_read read = {.fd = -1,
                           .bytes = n,
                           .file_offset = offset,
                           .buffer = got + offset,
                           .tag = (void *)(uintptr_t)(offset + 1)};
    ck_assert_uint_eq(nbd->submit(io, &read, 1), 1);
}

/* The next completion, or a failure after some seconds. The descriptor alone wakes it. */
static struct io_done next(void)
{
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    while (nbd->poll(io, &done, 1) == 0) {
        struct io_link link;
        nbd->link(io, &link);
        ck_assert_msg(clock_now_ns() < until, "no completion: %s", link.why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
    }
    return done;
}

/* nbdkit 1.32 may abort when a connection ends with requests in flight. */
static void serve_again_if_dead(void)
{
    if (server.pid > 0 && waitpid(server.pid, NULL, WNOHANG) == server.pid)
        serve(served);
}

static struct io_link wait_link(bool up)
{
    struct io_link link;
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    for (nbd->link(io, &link); link.up != up && !link.wrong; nbd->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until, "the link: %s", link.why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
        ck_assert_uint_eq(nbd->poll(io, &done, 1), 0);
        if (up)
            serve_again_if_dead();
    }
    return link;
}

static void wait_why(const char *why)
{
    struct io_link link;
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    for (nbd->link(io, &link); !strstr(link.why, why); nbd->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until && !link.up, "'%s' instead of '%s'", link.why, why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
        ck_assert_uint_eq(nbd->poll(io, &done, 1), 0);
    }
}

START_TEST(reads_the_file)
{
    make_file(FILE_BYTES);
    serve_file();
    open_backend();
    for (uint64_t i = 0; i < DEPTH; i++)
        submit(i * 128 * KIB, 128 * KIB);
    struct io_read more = {.bytes = 1};
    ck_assert_uint_eq(nbd->submit(io, &more, 1), 0); /* DEPTH are in flight */
    for (int i = 0; i < DEPTH; i++)
        ck_assert_int_eq(next().result, 128 * KIB);
    submit(MIB, 4096); /* the last page is not complete */
    ck_assert_int_eq(next().result, 1000);
    ck_assert_mem_eq(got, bytes, FILE_BYTES);
    ck_assert_uint_eq(got[FILE_BYTES], 0xee);
    submit(MIB + 8192, 4096);
    ck_assert_int_eq(next().result, 0);
    close_all();
}
END_TEST

START_TEST(comes_back)
{
    make_file(FILE_BYTES);
    serve((const char *const[]){"--filter=delay", "file", plugin_file, "delay-read=300ms", NULL});
    open_backend();
    (void)wait_link(true);
    for (uint64_t i = 0; i < 4; i++)
        submit(i * 64 * KIB, 64 * KIB);
    nbdkit_kill(&server); /* with four reads in flight */
    struct io_link link = wait_link(false);
    ck_assert(!link.wrong && link.since_ns > 0);
    submit(4 * 64 * KIB, 64 * KIB); /* it waits, too */
    serve_file();
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(next().result, 64 * KIB);
    ck_assert_mem_eq(got, bytes, 5 * 64 * KIB);
    ck_assert(wait_link(true).up);
    close_all();
}
END_TEST

/* Nothing is written to the buffers of reads that were taken back. */
START_TEST(abandons)
{
    make_file(FILE_BYTES);
    serve((const char *const[]){"--filter=delay", "file", plugin_file, "delay-read=500ms", NULL});
    open_backend();
    (void)wait_link(true);
    submit(0, 64 * KIB);
    submit(64 * KIB, 64 * KIB);
    nbd->abandon(io);
    memset(got, 0x55, 128 * KIB);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(next().result, -ENOTCONN);
    (void)wait_link(true);
    submit(128 * KIB, 64 * KIB);
    ck_assert_int_eq(next().result, 64 * KIB); /* later than the others would have come */
    for (int i = 0; i < 128 * (int)KIB; i++)
        ck_assert_uint_eq(got[i], 0x55);
    ck_assert_mem_eq(got + 128 * KIB, bytes + 128 * KIB, 64 * KIB);
    close_all();
}
END_TEST

/* There are no reads that a new connection would free. */
START_TEST(connects_while_reads_are_taken_back)
{
    make_file(FILE_BYTES);
    serve_file();
    open_backend();
    struct io_link link = {.up = false};
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    submit(0, 4096);
    nbd->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    for (nbd->link(io, &link); !link.up; nbd->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until, "the link: %s", link.why);
        nbd->abandon(io);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
        ck_assert_uint_eq(nbd->poll(io, &done, 1), 0);
    }
    submit(0, 4096);
    ck_assert_int_eq(next().result, 4096);
    close_all();
}
END_TEST

START_TEST(errors_of_the_server)
{
    make_file(FILE_BYTES);
    serve((const char *const[]){"--filter=error", "file", plugin_file, "error-pread=EIO",
                                "error-pread-rate=100%", NULL});
    open_backend();
    submit(0, 4096);
    ck_assert_int_eq(next().result, -EIO);
    ck_assert(wait_link(true).up); /* the connection stays */
    close_all();
    serve((const char *const[]){"--filter=error", "file", plugin_file, "error-pread=ENOMEM",
                                "error-pread-rate=100%", NULL});
    open_backend();
    submit(0, 4096);
    ck_assert_int_eq(next().result, -EIO); /* the server's memory, not ours */
    close_all();
}
END_TEST

/* A device has whole blocks; another size is another file. */
START_TEST(sizes)
{
    make_file(FILE_BYTES);
    serve((const char *const[]){"--filter=truncate", "file", plugin_file, "round-up=4096", NULL});
    open_backend();
    submit(MIB, 4096);
    ck_assert_int_eq(next().result, 4096);
    ck_assert_mem_eq(got + MIB, bytes + MIB, 4096);
    close_all();
    static const uint64_t others[] = {FILE_BYTES - 1, FILE_BYTES + 64 * KIB};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        make_file(others[i] > FILE_BYTES ? FILE_BYTES : others[i]);
        ck_assert_int_eq(truncate(file, (off_t)others[i]), 0);
        serve_file();
        open_backend();
        struct io_link link = wait_link(true);
        ck_assert(link.wrong && !link.up && strstr(link.why, "bytes instead of"));
        close_all();
    }
}
END_TEST

static bool run_program(const char *const args[])
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawn(&pid, args[0], &actions, NULL, (char *const *)args, NULL);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* A key and a certificate, which is its own authority, as server and client want them. */
static void make_certificate(const char *in)
{
    char key[96], certificate[96], authority[96];
    snprintf(key, sizeof key, "%s/server-key.pem", in);
    snprintf(certificate, sizeof certificate, "%s/server-cert.pem", in);
    snprintf(authority, sizeof authority, "%s/ca-cert.pem", in);
    ck_assert_int_eq(mkdir(in, 0700), 0);
    ck_assert(run_program((const char *const[]){
        OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=test", "-addext",
        "subjectAltName=IP:127.0.0.1", NULL}));
    ck_assert_int_eq(link(certificate, authority), 0);
}

/* False: this machine does not have the address. */
static bool take_port(const char *address)
{
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool six = strchr(address, ':') != NULL;
    socklen_t n = six ? sizeof own : sizeof four;
    struct sockaddr *at = six ? (struct sockaddr *)&own : (struct sockaddr *)&four;
    int one = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = one >= 0 && bind(one, at, n) == 0 && getsockname(one, at, &n) == 0;
    if (one >= 0)
        close(one);
    snprintf(server.port, sizeof server.port, "%u",
             (unsigned)ntohs(six ? own.sin6_port : four.sin_port));
    server.address = address;
    return has;
}

static void open_tcp(const char *certificates)
{
    char url[256];
    struct error error;
    bool six = strchr(server.address, ':') != NULL;
    snprintf(url, sizeof url, "nbd%s://%s%s%s:%s/%s%s", certificates ? "s" : "", six ? "[" : "",
             server.address, six ? "]" : "", server.port, certificates ? "?tls-certificates=" : "",
             certificates ? certificates : "");
    nbd = io_servers[0];
    const struct io_source source = {.url = url, .bytes = FILE_BYTES, .depth = DEPTH};
    io = nbd->open(&source, &fd, &error);
    ck_assert_ptr_nonnull(io);
}

/* By an authority of the client's, for the address; by another one. */
static void check_certificates(const char *right, const char *other)
{
    char setting[96];
    snprintf(setting, sizeof setting, "--tls-certificates=%s", right);
    serve((const char *const[]){"--tls=require", setting, "file", plugin_file, NULL});
    open_tcp(right);
    submit(0, 4096);
    ck_assert_int_eq(next().result, 4096);
    ck_assert_mem_eq(got, bytes, 4096);
    nbd->close(io);
    open_tcp(other);
    submit(0, 4096);
    wait_why("certificate");
    nbd->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    close_all();
}

START_TEST(six)
{
    bool has = take_port("::1");
    if (has) {
        make_file(FILE_BYTES);
        serve_file();
        open_tcp(NULL);
        submit(0, 4096);
        ck_assert_int_eq(next().result, 4096);
        ck_assert_mem_eq(got, bytes, 4096);
        close_all();
    } else {
        printf("SKIP nbd over IPv6: this machine has no ::1\n");
    }
    server.address = NULL;
}
END_TEST

START_TEST(certificates)
{
    char right[64], other[64];
    snprintf(right, sizeof right, "%s/right", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    make_file(FILE_BYTES);
    make_certificate(right);
    make_certificate(other);
    ck_assert(take_port("127.0.0.1"));
    check_certificates(right, other);
    server.address = NULL;
    ck_assert(run_program((const char *const[]){"/bin/rm", "-r", right, other, NULL}));
}
END_TEST

/* A key, and a certificate of the authority of `of`, for a client. */
static void make_client(const char *in, const char *of)
{
    char key[96], certificate[96], request[96], authority[96], own[96], authority_key[96];
    snprintf(key, sizeof key, "%s/client-key.pem", in);
    snprintf(certificate, sizeof certificate, "%s/client-cert.pem", in);
    snprintf(request, sizeof request, "%s/request.pem", in);
    snprintf(own, sizeof own, "%s/ca-cert.pem", in);
    snprintf(authority, sizeof authority, "%s/ca-cert.pem", of);
    snprintf(authority_key, sizeof authority_key, "%s/server-key.pem", of);
    ck_assert_int_eq(mkdir(in, 0700), 0);
    ck_assert_int_eq(link(authority, own), 0);
    ck_assert(run_program((const char *const[]){
        OPENSSL, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", key, "-out", request, "-subj", "/CN=client", NULL}));
    ck_assert(run_program((const char *const[]){OPENSSL, "x509", "-req", "-in", request, "-CA",
                                                authority, "-CAkey", authority_key, "-set_serial",
                                                "2", "-days", "2", "-out", certificate, NULL}));
}

/* Not with this directory: no read is served. */
static void check_refused(const char *directory_of_client)
{
    struct io_link link;
    open_tcp(directory_of_client);
    submit(0, 4096);
    uint64_t until = clock_now_ns() + SOON_NS;
    for (nbd->link(io, &link); !link.known; nbd->link(io, &link)) {
        struct io_done done;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ck_assert(clock_now_ns() < until && !link.up);
        (void)poll(&ready, 1, 1000);
        ck_assert_uint_eq(nbd->poll(io, &done, 1), 0);
    }
    nbd->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    nbd->close(io);
}

/* A server that wants certificates of its clients. */
START_TEST(clients_have_certificates)
{
    char right[64], other[64], client[64], stranger[64], setting[96];
    snprintf(right, sizeof right, "%s/right", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    snprintf(client, sizeof client, "%s/client", directory);
    snprintf(stranger, sizeof stranger, "%s/stranger", directory);
    make_file(FILE_BYTES);
    make_certificate(right);
    make_certificate(other);
    make_client(client, right);
    make_client(stranger, other);
    char trusted[96], own[96]; /* the stranger trusts the server, which does not know it */
    snprintf(trusted, sizeof trusted, "%s/ca-cert.pem", right);
    snprintf(own, sizeof own, "%s/ca-cert.pem", stranger);
    ck_assert(unlink(own) == 0 && link(trusted, own) == 0);
    ck_assert(take_port("127.0.0.1"));
    snprintf(setting, sizeof setting, "--tls-certificates=%s", right);
    serve((const char *const[]){"--tls=require", "--tls-verify-peer", setting, "file", plugin_file,
                                NULL});
    check_refused(stranger);
    check_refused(right); /* no certificate of a client there */
    open_tcp(client);
    submit(0, 4096);
    ck_assert_int_eq(next().result, 4096);
    ck_assert_mem_eq(got, bytes, 4096);
    close_all();
    server.address = NULL;
    ck_assert(
        run_program((const char *const[]){"/bin/rm", "-r", right, other, client, stranger, NULL}));
}
END_TEST

START_TEST(no_server)
{
    snprintf(server.socket, sizeof server.socket, "%s/none", directory);
    open_backend();
    submit(0, 4096);
    struct io_link link;
    nbd->link(io, &link);
    ck_assert(!link.up && link.why[0]);
    nbd->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    nbd->close(io);
    server.socket[0] = 0;
}
END_TEST

int main(void)
{
    if (nbdkit_missing()) {
        printf("SKIP nbd: %s\n", nbdkit_missing());
        return EXIT_SUCCESS;
    }
    if (!mkdtemp(directory))
        return EXIT_FAILURE;
    snprintf(file, sizeof file, "%s/file", directory);
    snprintf(plugin_file, sizeof plugin_file, "file=%s", file);
    Suite *s = suite_create("nbd");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, reads_the_file);
    tcase_add_test(c, comes_back);
    tcase_add_test(c, abandons);
    tcase_add_test(c, connects_while_reads_are_taken_back);
    tcase_add_test(c, errors_of_the_server);
    tcase_add_test(c, sizes);
    if (access(OPENSSL, X_OK) == 0) {
        tcase_add_test(c, certificates);
        tcase_add_test(c, clients_have_certificates);
    } else {
        printf("SKIP nbd certificates: there is no openssl\n");
    }
    tcase_add_test(c, six);
    tcase_add_test(c, no_server);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    unlink(file);
    rmdir(directory);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
