/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of Ceph clusters with a librados of its own (fake.h): bytes of striped files and of
 * one object, ends, errors, an object that gives no answer, reads that are taken back, files that
 * were replaced, and what the client is given. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "lib/io/server/rados/layout.h"
#include "tests/unit/lib/io/server/rados/fake.h"

#define OBJECT_BYTES (64 * KIB)
#define UNIT_BYTES   (16 * KIB)
#define STRIPES      2
#define OBJECTS      6
#define FILE_BYTES   (5 * OBJECT_BYTES + 1000)
#define DEPTH        8
#define SOON_NS      (30 * NS_PER_S)

static char object[OBJECTS][OBJECT_BYTES];
static unsigned char bytes[FILE_BYTES], got[FILE_BYTES + 64 * KIB];
static const uint64_t sizes[] = {FILE_BYTES, OBJECT_BYTES, UNIT_BYTES, STRIPES};
static const struct io_backend *rados;
static struct io *io;
static int fd;

/* Unit by unit, as RAID 0 over the objects of a set: not the arithmetic of layout.c. */
static void make_file(void)
{
    uint64_t in[OBJECTS] = {0}, set = 0, turn = 0;
    char name[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 9));
    for (uint64_t at = 0; at < FILE_BYTES; at += UNIT_BYTES) {
        uint64_t o = set * STRIPES + turn % STRIPES, left = FILE_BYTES - at;
        uint64_t n = left < UNIT_BYTES ? left : UNIT_BYTES;
        memcpy(object[o] + in[o], bytes + at, n);
        in[o] += n;
        turn++;
        if (turn == STRIPES * (OBJECT_BYTES / UNIT_BYTES)) {
            turn = 0;
            set++;
        }
    }
    for (uint64_t o = 0; o < OBJECTS; o++) {
        snprintf(name, sizeof name, "dir/model.%016llx", (unsigned long long)o);
        fake_object(name, object[o], in[o], o == 0 ? sizes : NULL);
    }
    fake_object("plain", bytes, FILE_BYTES, NULL);
    fake_silent(NULL);
    fake_errors(0, 0);
    memset(got, 0xee, sizeof got);
}

static void open_backend(const char *url)
{
    struct error error;
    rados = io_servers[0];
    const struct io_source source = {.url = url, .bytes = FILE_BYTES, .depth = DEPTH};
    io = rados->open(&source, &fd, &error);
    ck_assert_msg(io != NULL, "%s", error.text);
}

static void submit(uint64_t offset, uint32_t n)
{
    struct io_read read = {.fd = -1,
                           .bytes = n,
                           .file_offset = offset,
                           .buffer = got + offset,
                           .tag = (void *)(uintptr_t)(offset + 1)};
    ck_assert_uint_eq(rados->submit(io, &read, 1), 1);
}

static struct io_done next(void)
{
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    while (rados->poll(io, &done, 1) == 0) {
        ck_assert_msg(clock_now_ns() < until, "no completion");
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 2000);
    }
    return done;
}

static struct io_link wait_link(bool up)
{
    struct io_link link;
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    for (rados->link(io, &link); link.up != up && !link.wrong; rados->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until, "the link: %s", link.why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 2000);
        ck_assert_uint_eq(rados->poll(io, &done, 1), 0);
    }
    return link;
}

static void wait_why(const char *why)
{
    struct io_link link;
    struct io_done done;
    uint64_t until = clock_now_ns() + SOON_NS;
    for (rados->link(io, &link); !strstr(link.why, why); rados->link(io, &link)) {
        ck_assert_msg(clock_now_ns() < until, "'%s' instead of '%s'", link.why, why);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        (void)poll(&ready, 1, 2000);
        (void)rados->poll(io, &done, 1);
    }
}

/* A read of more objects than one is sent to is short, as others are at ends of files. */
static void read_all(void)
{
    for (uint64_t at = 0; at < FILE_BYTES;) {
        submit(at, 100 * KIB);
        int64_t n = next().result;
        ck_assert_int_gt(n, 0);
        at += (uint64_t)n;
    }
    ck_assert_mem_eq(got, bytes, FILE_BYTES);
    ck_assert_uint_eq(got[FILE_BYTES], 0xee);
}

START_TEST(reads_a_striped_file)
{
    make_file();
    open_backend("rados://models/dir/model?conf=/c&user=reader&keyring=/k");
    read_all();
    submit(FILE_BYTES + 8, 4096);
    ck_assert_int_eq(next().result, 0);
    memset(got, 0xee, sizeof got);
    for (uint64_t i = 0; i < DEPTH; i++)
        submit(i * 40 * KIB, 40 * KIB);
    struct io_read more = {.bytes = 1};
    ck_assert_uint_eq(rados->submit(io, &more, 1), 0); /* DEPTH are in flight */
    for (int i = 0; i < DEPTH; i++)
        ck_assert_int_eq(next().result, 40 * KIB);
    ck_assert_mem_eq(got, bytes, DEPTH * 40 * KIB);
    ck_assert_str_eq(fake_user(), "client.reader");
    ck_assert_str_eq(fake_pool(), "models");
    ck_assert_str_eq(fake_setting("keyring"), "/k");
    ck_assert_str_eq(fake_setting("log_file"), "");
    ck_assert_str_eq(fake_setting("admin_socket"), "");
    rados->close(io);
    ck_assert_uint_eq(fake_open(), 0);
}
END_TEST

START_TEST(reads_one_object)
{
    make_file();
    open_backend("rados://models/plain?conf=/c");
    submit(0, 300 * KIB);
    ck_assert_int_eq(next().result, 300 * KIB);
    submit(300 * KIB, 64 * KIB);
    ck_assert_int_eq(next().result, FILE_BYTES - 300 * KIB);
    ck_assert_mem_eq(got, bytes, FILE_BYTES);
    ck_assert_str_eq(fake_user(), "client.admin");
    ck_assert_ptr_null(fake_setting("keyring"));
    rados->close(io);
}
END_TEST

/* Nothing is written to the buffers of reads that wait for the object. */
START_TEST(an_object_gives_no_answer)
{
    static const char name[] = "dir/model.0000000000000003";
    make_file();
    open_backend("rados://models/dir/model?conf=/c");
    (void)wait_link(true);
    fake_silent(name);
    submit(0, 16 * KIB);
    ck_assert_int_eq(next().result, 16 * KIB); /* of another one */
    submit(144 * KIB, 32 * KIB);               /* ends of 3 and 2 */
    struct io_link link = wait_link(false);
    ck_assert(!link.wrong && link.since_ns > 0 && strstr(link.why, name));
    wait_why("timed out");
    submit(16 * KIB, 16 * KIB); /* it waits, too */
    fake_silent(NULL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_gt(next().result, 0);
    ck_assert_mem_eq(got + 144 * KIB, bytes + 144 * KIB, 32 * KIB);
    ck_assert(wait_link(true).up);
    rados->close(io);
    ck_assert_uint_eq(fake_open(), 0);
}
END_TEST

START_TEST(abandons)
{
    make_file();
    open_backend("rados://models/dir/model?conf=/c");
    (void)wait_link(true);
    fake_silent("");
    submit(0, 32 * KIB);
    submit(32 * KIB, 32 * KIB);
    rados->abandon(io);
    memset(got, 0x55, 64 * KIB);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(next().result, -ENOTCONN);
    fake_silent(NULL);
    (void)wait_link(true);
    submit(64 * KIB, 32 * KIB);
    ck_assert_int_eq(next().result, 32 * KIB);
    for (int i = 0; i < 64 * (int)KIB; i++)
        ck_assert_uint_eq(got[i], 0x55);
    ck_assert_mem_eq(got + 64 * KIB, bytes + 64 * KIB, 32 * KIB);
    rados->close(io);
}
END_TEST

START_TEST(errors_of_the_cluster)
{
    make_file();
    open_backend("rados://models/dir/model?conf=/c");
    (void)wait_link(true);
    fake_errors(EACCES, 0);
    submit(0, 4096);
    ck_assert_int_eq(next().result, -EIO);
    fake_errors(0, 0);
    fake_object("dir/model.0000000000000001", NULL, 0, NULL); /* it is lost */
    submit(0, 32 * KIB);
    ck_assert_int_eq(next().result, -EIO);
    fake_object("dir/model.0000000000000000", object[0], 100, sizes); /* it is short */
    submit(0, 4096);
    ck_assert_int_eq(next().result, -EIO);
    ck_assert(wait_link(true).up);
    rados->close(io);
}
END_TEST

START_TEST(other_files)
{
    static const uint64_t small[] = {FILE_BYTES - 1, OBJECT_BYTES, UNIT_BYTES, STRIPES},
                          torn[] = {FILE_BYTES, OBJECT_BYTES, 7, STRIPES};
    make_file();
    fake_object("dir/model.0000000000000000", object[0], OBJECT_BYTES, small);
    open_backend("rados://models/dir/model?conf=/c");
    struct io_link link = wait_link(true);
    ck_assert(link.wrong && !link.up && strstr(link.why, "bytes instead of"));
    rados->close(io);
    fake_object("dir/model.0000000000000000", object[0], OBJECT_BYTES, torn);
    open_backend("rados://models/dir/model?conf=/c");
    wait_why("0: its layout is malformed");
    rados->close(io);
}
END_TEST

/* Each reader with libradosstriper locks the first object, which then has another version. */
START_TEST(is_read_with_locks)
{
    make_file();
    open_backend("rados://models/dir/model?conf=/c");
    (void)wait_link(true);
    fake_object("dir/model.0000000000000000", object[0], OBJECT_BYTES, sizes);
    rados->abandon(io);
    ck_assert(wait_link(true).up);
    rados->close(io);
}
END_TEST

/* A file of one object: only its layout shows it. One without stripes has a version. */
START_TEST(other_identities)
{
    static const uint64_t one[] = {8 * KIB, OBJECT_BYTES, UNIT_BYTES, 1},
                          other[] = {8 * KIB, OBJECT_BYTES / 2, UNIT_BYTES, 1};
    struct error error;
    struct io_source source = {.bytes = 8 * KIB, .depth = DEPTH};
    make_file();
    rados = io_servers[0];
    for (int striped = 0; striped < 2; striped++) {
        const char *name = striped ? "one.0000000000000000" : "one";
        source.url = "rados://models/one?conf=/c";
        fake_object(name, bytes, 8 * KIB, striped ? one : NULL);
        io = rados->open(&source, &fd, &error);
        (void)wait_link(true);
        rados->abandon(io);
        ck_assert(wait_link(true).up);
        fake_object(name, bytes, 8 * KIB, striped ? other : NULL);
        rados->abandon(io);
        ck_assert(wait_link(true).wrong);
        rados->close(io);
    }
}
END_TEST

/* While the link is up, nobody asks; a new attempt does. */
START_TEST(is_replaced)
{
    make_file();
    open_backend("rados://models/dir/model?conf=/c");
    (void)wait_link(true);
    rados->abandon(io);
    ck_assert(wait_link(true).up);
    fake_object("dir/model.0000000000000001", object[1], OBJECT_BYTES, NULL);
    rados->abandon(io);
    struct io_link link = wait_link(true);
    ck_assert(link.wrong && strstr(link.why, "replaced"));
    submit(0, 4096);
    rados->abandon(io);
    ck_assert_int_eq(next().result, -ENOTCONN);
    rados->close(io);
    /* Another process, with what this one has told. */
    struct error error;
    const struct io_source source = {.url = "rados://models/dir/model?conf=/c",
                                     .bytes = FILE_BYTES,
                                     .depth = DEPTH,
                                     .identity = link.identity};
    io = rados->open(&source, &fd, &error);
    ck_assert(link.identity != 0 && wait_link(true).wrong);
    rados->close(io);
}
END_TEST

START_TEST(no_cluster)
{
    struct io_link link;
    make_file();
    fake_errors(0, ETIMEDOUT);
    open_backend("rados://models/dir/model?conf=/c&user=x");
    rados->link(io, &link);
    ck_assert(!link.up && !link.known); /* the attempt can take seconds */
    submit(0, 4096);
    wait_why("ceph.conf has no `mon host`: no connection as client.x: Connection timed out");
    rados->link(io, &link);
    ck_assert(!link.up && link.known);
    fake_errors(0, 0);
    ck_assert_int_eq(next().result, 4096); /* it was there for the next attempt */
    rados->close(io);
    static const struct {
        const char *url, *why;
    } rows[] = {{"rados://models/x?conf=/missing", "cannot read /missing: No such file"},
                {"rados://none/x?conf=/c", "the pool none: No such file"},
                {"rados://models/x?conf=/c", "the object x: No such file"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        open_backend(rows[i].url);
        wait_why(rows[i].why);
        rados->close(io);
    }
}
END_TEST

/* Their addresses cannot be asked for. */
START_TEST(monitors)
{
    static const struct {
        const char *hosts, *name; /* NULL: it is connected */
    } rows[] = {{NULL, NULL},
                {"10.0.0.1", NULL},
                {"10.0.0.1:6789,10.0.0.2; 10.0.0.3:3300/0", NULL},
                {"[v2:10.0.0.1:3300,v1:10.0.0.1:6789] [v2:10.0.0.2:3300/0]", NULL},
                {"[fe80::a]:6789, [v2:[2001:db8::b]:3300/0,v1:[::1]:6789/0]", NULL},
                {"mon1", "(mon1)"},
                {"10.0.0.1, mon-2.lan:6789", "(mon-2.lan:6789)"},
                {"[v2:cafe:3300,v1:cafe:6789]", "(v2:cafe:3300)"}};
    make_file();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        fake_monitors(rows[i].hosts);
        open_backend("rados://models/plain?conf=/c");
        if (rows[i].name)
            wait_why(rows[i].name);
        else
            ck_assert(wait_link(true).up);
        rados->close(io);
    }
    fake_monitors(NULL);
}
END_TEST

/* More than the library may hold waits. */
START_TEST(bounds_what_is_in_flight)
{
    static char large[8 * MIB], to[4][8 * MIB];
    make_file();
    fake_object("large", large, sizeof large, NULL);
    struct error error;
    const struct io_source source = {
        .url = "rados://models/large?conf=/c", .bytes = sizeof large, .depth = DEPTH};
    rados = io_servers[0];
    io = rados->open(&source, &fd, &error);
    (void)wait_link(true);
    unsigned before = fake_started();
    fake_silent("");
    for (int i = 0; i < 4; i++) {
        struct io_read read = {.bytes = sizeof large, .buffer = to[i]};
        ck_assert_uint_eq(rados->submit(io, &read, 1), 1);
    }
    ck_assert_uint_eq(fake_started() - before, 2);
    fake_silent(NULL);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(next().result, sizeof large);
    rados->close(io);
}
END_TEST

START_TEST(layouts)
{
    static const struct {
        const char *value[LAYOUT_ATTRIBUTES];
        const char *wrong; /* in the reason */
    } rows[] = {{{"1000", "4194304", "4194304", "1"}, NULL},
                {{"", "4194304", "4194304", "1"}, "malformed"},
                {{"-1", "4194304", "4194304", "1"}, "malformed"},
                {{"1000", "4194304", "0", "1"}, "malformed"},
                {{"1000", "0", "1", "1"}, "malformed"},
                {{"1000", "4096", "4096", "0"}, "malformed"},
                {{"1000", "4097", "4096", "1"}, "malformed"},
                {{"1000", "8589934592", "4096", "1"}, "malformed"},
                {{"1 ", "4096", "4096", "1"}, "malformed"},
                {{"1000000000000000000", "4096", "4096", "1"}, "malformed"},
                {{"1000", "4096", "4096", "2000000"}, "malformed"},
                {{"1000", "65536", "1024", "2"}, "less than 2 KiB"},
                {{"1000", "1024", "1024", "1"}, "less than 2 KiB"},
                {{"1000", "65536", "1024", "1"}, NULL},
                {{"1000", "65536", "2048", "2"}, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char value[LAYOUT_ATTRIBUTES][LAYOUT_VALUE_BYTES];
        struct layout l = {.size = 7};
        for (size_t v = 0; v < LAYOUT_ATTRIBUTES; v++)
            snprintf(value[v], sizeof value[v], "%s", rows[i].value[v]);
        const char *wrong = layout_take(&l, value);
        ck_assert_msg(rows[i].wrong ? wrong && strstr(wrong, rows[i].wrong) : !wrong, "row %zu", i);
        ck_assert_uint_eq(l.size, rows[i].wrong ? 7 : 1000);
    }
    struct layout one = {
        .striped = true, .object_size = 4 * MIB, .stripe_unit = 64 * KIB, .stripe_count = 1};
    struct extent e = layout_extent(&one, 5 * MIB, 100 * MIB); /* to the end of its object */
    ck_assert(e.object == 1 && e.offset == 1 * MIB && e.bytes == 3 * MIB);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rados");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, reads_a_striped_file);
    tcase_add_test(c, reads_one_object);
    tcase_add_test(c, an_object_gives_no_answer);
    tcase_add_test(c, abandons);
    tcase_add_test(c, errors_of_the_cluster);
    tcase_add_test(c, other_files);
    tcase_add_test(c, is_read_with_locks);
    tcase_add_test(c, other_identities);
    tcase_add_test(c, is_replaced);
    tcase_add_test(c, no_cluster);
    tcase_add_test(c, monitors);
    tcase_add_test(c, bounds_what_is_in_flight);
    tcase_add_test(c, layouts);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
