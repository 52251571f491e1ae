/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of web servers with a real server: bytes, ends of files, every way to fail, a server
 * that goes away and comes back, and reads that are taken back. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "tests/harness/web.h"

#define FILE_BYTES (1 * MIB + 1000)
#define DEPTH      8
#define SOON_NS    (30 * NS_PER_S)

static char directory[] = "/tmp/http-test-XXXXXX";
static char file[64];
static unsigned char bytes[FILE_BYTES], got[FILE_BYTES + 64 * KIB];
static struct web server;
static const struct io_backend *http;
static struct io *io;
static int fd;
static uint64_t known; /* identity of the file; 0: any */

static void make_file(uint64_t size)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 9));
    int out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(out, bytes, size), (ssize_t)size);
    close(out);
    memset(got, 0xee, sizeof got);
}

static void open_backend(void)
{
    char url[160];
    struct error error;
    snprintf(url, sizeof url, "http://127.0.0.1:%u/model", (unsigned)server.port);
    http = io_servers[0];
    const struct io_source source = {
        .url = url, .bytes = FILE_BYTES, .depth = DEPTH, .identity = known};
    io = http->open(&source, &fd, &error);
    ck_assert_ptr_nonnull(io);
}

static void serve(void)
{
    make_file(FILE_BYTES);
    ck_assert(web_start(&server, file));
    web_fault(&server, WEB_RIGHT, 0);
    open_backend();
}

static void close_all(void)
{
    http->close(io);
    web_kill(&server);
}

static void submit(uint64_t offset, uint32_t n)
{
    struct io_read read = {.fd = -1,
                           .bytes = n,
                           .file_offset = offset,
                           .buffer = got + offset,
                           .tag = (void *)(uintptr_t)(offset + 1)};
    ck_assert_uint_eq(http->submit(io, &read, 1), 1);
}

/* The next completion, or a failure after some seconds. The descriptor alone wakes it. */
static struct io_done next(void)
{
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    while (http->poll(io, &done, 1) == 0) {
        struct io_link link;
        http->link(io, &link);
        ck_assert_msg(clock_now_ns() < until, "no completion: %s", link.why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
    }
    return done;
}

static struct io_link wait_link(bool up)
{
    struct io_link link;
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    for (http->link(io, &link); link.up != up && !link.wrong; http->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until, "the link: %s", link.why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 1000);
        ck_assert_uint_eq(http->poll(io, &done, 1), 0);
    }
    return link;
}

static void wait_failed(unsigned count)
{
    uint64_t until = clock_now_ns() + SOON_NS;
    while (atomic_load(&server.control->failed) < count) {
        struct io_done done;
        ck_assert_msg(clock_now_ns() < until, "no request came");
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 10);
        ck_assert_uint_eq(http->poll(io, &done, 1), 0);
    }
}

START_TEST(reads_the_file)
{
    serve();
    for (int round = 0; round < 3; round++) {
        memset(got, 0xee, sizeof got);
        for (uint64_t i = 0; i < DEPTH; i++)
            submit(i * 128 * KIB, 128 * KIB);
        struct io_read more = {.bytes = 1};
        ck_assert_uint_eq(http->submit(io, &more, 1), 0); /* DEPTH are in flight */
        for (int i = 0; i < DEPTH; i++)
            ck_assert_int_eq(next().result, 128 * KIB);
    }
    submit(MIB, 4096); /* the last page is not complete */
    ck_assert_int_eq(next().result, 1000);
    ck_assert_mem_eq(got, bytes, FILE_BYTES);
    ck_assert_uint_eq(got[FILE_BYTES], 0xee);
    submit(MIB + 8192, 4096);
    ck_assert_int_eq(next().result, 0);
    /* Connections are kept. */
    ck_assert_uint_eq(atomic_load(&server.control->requests), 1 + 3 * DEPTH + 1);
    ck_assert_uint_le(atomic_load(&server.control->connections), DEPTH + 1);
    close_all();
}
END_TEST

/* One answer fails; the bytes are right in the end, and none beside them is touched. */
START_TEST(fails_once)
{
    static const enum web_fault faults[] = {WEB_CUT,         WEB_SILENT, WEB_BUSY,    WEB_ERROR,
                                            WEB_SHORT,       WEB_LONG,   WEB_WHOLE,   WEB_ENCODED,
                                            WEB_OTHER_RANGE, WEB_DENIED, WEB_REDIRECT};
    serve();
    (void)wait_link(true);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        memset(got, 0xee, sizeof got);
        web_fault(&server, faults[i], 1);
        submit(256 * KIB, 128 * KIB);
        ck_assert_int_eq(next().result, 128 * KIB);
        ck_assert_msg(atomic_load(&server.control->failed) > 0, "fault %d", (int)faults[i]);
        ck_assert_mem_eq(got + 256 * KIB, bytes + 256 * KIB, 128 * KIB);
        ck_assert(got[256 * KIB - 1] == 0xee && got[384 * KIB] == 0xee);
        (void)wait_link(true);
    }
    close_all();
}
END_TEST

/* Every answer fails: reads end after a few tries, and the link stays. */
START_TEST(fails_always)
{
    static const enum web_fault faults[] = {WEB_CUT,   WEB_SILENT, WEB_ERROR,
                                            WEB_SHORT, WEB_LONG,   WEB_OTHER_RANGE};
    serve();
    (void)wait_link(true);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        memset(got, 0xee, sizeof got);
        web_fault(&server, faults[i], 0);
        submit(256 * KIB, 128 * KIB);
        ck_assert_int_eq(next().result, -EIO);
        ck_assert_uint_eq(atomic_load(&server.control->failed), 3);
        ck_assert(got[256 * KIB - 1] == 0xee && got[384 * KIB] == 0xee);
        ck_assert(wait_link(true).up);
    }
    close_all();
}
END_TEST

/* The server says no: the link is down for a reason, and is tried again. */
START_TEST(is_refused)
{
    static const struct {
        enum web_fault fault;
        const char *why;
    } rows[] = {{WEB_BUSY, "503 and asks to wait for 1 s"},
                {WEB_DENIED, "403 (ExpiredToken)"},
                {WEB_WHOLE, "does not serve ranges"},
                {WEB_ENDLESS, "403 (ExpiredToken)"},
                {WEB_MOVED, "it answers 301 (PermanentRedirect), a redirect;"},
                {WEB_REDIRECT, "redirects to http://other.lan/x;"}};
    serve();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        (void)wait_link(true);
        web_fault(&server, rows[i].fault, 0);
        submit(0, 4096);
        struct io_link link = wait_link(false);
        ck_assert_msg(!link.wrong && strstr(link.why, rows[i].why), "%s", link.why);
        wait_failed(2); /* the read, and an attempt */
        web_fault(&server, WEB_RIGHT, 0);
        ck_assert_int_eq(next().result, 4096);
    }
    ck_assert_mem_eq(got, bytes, 4096);
    close_all();
}
END_TEST

START_TEST(comes_back)
{
    serve();
    (void)wait_link(true);
    web_fault(&server, WEB_STALL, 4);
    for (uint64_t i = 0; i < 4; i++)
        submit(i * 64 * KIB, 64 * KIB);
    wait_failed(4);
    web_kill(&server); /* with four reads in flight */
    struct io_link link = wait_link(false);
    ck_assert(!link.wrong && link.since_ns > 0 && link.why[0]);
    submit(4 * 64 * KIB, 64 * KIB); /* it waits, too */
    ck_assert(web_start(&server, file));
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
    serve();
    (void)wait_link(true);
    web_fault(&server, WEB_STALL, 2);
    submit(0, 64 * KIB);
    submit(64 * KIB, 64 * KIB);
    wait_failed(2);
    http->abandon(io);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(next().result, -ENOTCONN);
    (void)wait_link(true);
    submit(128 * KIB, 64 * KIB);
    ck_assert_int_eq(next().result, 64 * KIB);
    for (int i = 0; i < 128 * (int)KIB; i++)
        ck_assert_uint_eq(got[i], 0xee);
    ck_assert_mem_eq(got + 128 * KIB, bytes + 128 * KIB, 64 * KIB);
    close_all();
}
END_TEST

/* In a process that was started later, with what this one knows of the file. */
START_TEST(knows_the_file_of_another_process)
{
    serve();
    struct io_link link = wait_link(true);
    ck_assert(link.up && link.identity != 0);
    http->close(io);
    known = link.identity;
    open_backend();
    ck_assert(wait_link(true).identity == known);
    http->close(io);
    web_fault(&server, WEB_IGNORANT, 0);
    open_backend();
    link = wait_link(true);
    ck_assert_msg(link.wrong && strstr(link.why, "replaced on the server"), "%s", link.why);
    known = 0;
    close_all();
}
END_TEST

/* Whether the server looks at the condition or not. */
START_TEST(notices_another_file)
{
    static const enum web_fault faults[] = {WEB_REPLACED, WEB_IGNORANT};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        serve();
        (void)wait_link(true);
        web_fault(&server, faults[i], 0);
        submit(0, 4096);
        struct io_link link = wait_link(false);
        ck_assert_msg(link.wrong && strstr(link.why, "replaced on the server"), "%s", link.why);
        ck_assert_uint_eq(got[0], 0xee);
        http->abandon(io);
        ck_assert_int_eq(next().result, -ENOTCONN);
        close_all();
    }
    serve();
    web_fault(&server, WEB_WEAK, 0);
    submit(0, 4096);
    ck_assert_int_eq(next().result, 4096);
    close_all();
}
END_TEST

START_TEST(sizes)
{
    static const uint64_t others[] = {FILE_BYTES - 1, 1};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        make_file(others[i]);
        ck_assert(web_start(&server, file));
        open_backend();
        struct io_link link = wait_link(true);
        ck_assert(link.wrong && !link.up && strstr(link.why, "bytes instead of"));
        close_all();
    }
}
END_TEST

START_TEST(no_server)
{
    server.port = 1;
    open_backend();
    submit(0, 4096);
    struct io_link link;
    http->link(io, &link);
    ck_assert(!link.up && link.why[0]);
    http->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    http->close(io);
}
END_TEST

int main(void)
{
    if (!mkdtemp(directory))
        return EXIT_FAILURE;
    snprintf(file, sizeof file, "%s/file", directory);
    Suite *s = suite_create("http");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, reads_the_file);
    tcase_add_test(c, fails_once);
    tcase_add_test(c, fails_always);
    tcase_add_test(c, is_refused);
    tcase_add_test(c, comes_back);
    tcase_add_test(c, abandons);
    tcase_add_test(c, knows_the_file_of_another_process);
    tcase_add_test(c, notices_another_file);
    tcase_add_test(c, sizes);
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
