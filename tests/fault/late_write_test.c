/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that a killed loader has submitted can complete after waitpid. The ranges they write to are
 * punched (hole-punch) before reuse: such reads then write to pages that are no longer mapped.
 *
 * A child submits many O_DIRECT reads of a file through io_uring into slots of a real arena, is
 * killed with SIGKILL and reaped; the parent frees the slots, allocates them again and fills them.
 * With clean == false (punched) none of their bytes may change. The control frees them as clean and
 * must show overwritten pages: otherwise no read was outstanding, and the test proves nothing (exit
 * status 77: skipped). */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "shm/arena/arena.h"

#define SLOTS      512u
#define SLOT_BYTES (512 * KIB)
#define ATTEMPTS   10
#define SKIP       77
#define FROM_FILE  0x77
#define REUSED     0x22

extern char **environ;

struct rig {
    struct segment arena;
    struct arena_layout layout;
    struct arena_alloc *a;
    int file;
    uint64_t offset[SLOTS];
};

struct outcome {
    uint32_t landed_at_reap, overwritten; /* pages */
};

static int skip(const char *why)
{
    printf("SKIP late_write: %s\n", why);
    return SKIP;
}

/* ---- the child ------------------------------------------------------------------------------ */

/* late_write_test --child FILE_FD ARENA_FD REGION ARENA_BYTES: submits every read, reports that
 * with a byte on stdout, and waits to be killed. */
static int child_main(char **argv)
{
    int file = atoi(argv[0]), fd = atoi(argv[1]);
    uint64_t region = strtoull(argv[2], NULL, 10), bytes = strtoull(argv[3], NULL, 10);
    struct io_uring ring;
    char *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (arena == MAP_FAILED || io_uring_queue_init(SLOTS, &ring, 0) != 0)
        return 1;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        io_uring_prep_read(sqe, file, arena + region + i * SLOT_BYTES, SLOT_BYTES, i * SLOT_BYTES);
    }
    if (io_uring_submit(&ring) < 0 || write(STDOUT_FILENO, "s", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static pid_t spawn_child(const struct rig *r, int *submitted_fd)
{
    int pipe_fds[2];
    char numbers[4][32];
    snprintf(numbers[0], 32, "%d", r->file);
    snprintf(numbers[1], 32, "%d", r->arena.fd);
    snprintf(numbers[2], 32, "%llu", (unsigned long long)r->layout.class[0].region_offset);
    snprintf(numbers[3], 32, "%llu", (unsigned long long)r->arena.bytes);
    char self[] = "/proc/self/exe", flag[] = "--child";
    char *argv[] = {self, flag, numbers[0], numbers[1], numbers[2], numbers[3], NULL};
    sl_assert(pipe2(pipe_fds, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, r->file, r->file); /* inherited: not close-on-exec */
    posix_spawn_file_actions_adddup2(&actions, r->arena.fd, r->arena.fd);
    pid_t child;
    int rc = posix_spawn(&child, self, &actions, NULL, argv, environ);
    sl_assert(rc == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    *submitted_fd = pipe_fds[0];
    return child;
}

/* ---- the parent ----------------------------------------------------------------------------- */

static uint32_t pages_of(const struct rig *r, int value)
{
    uint32_t n = 0;
    const char *base = r->arena.base;
    for (uint32_t i = 0; i < SLOTS; i++)
        for (uint64_t p = 0; p < SLOT_BYTES; p += PAGE_BYTES)
            n += base[r->offset[i] + p] == value;
    return n;
}

static void take_all(struct rig *r, int fill)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        bool taken = arena_alloc_take(r->a, 0, UINT64_MAX, &r->offset[i]);
        sl_assert(taken);
        memset((char *)r->arena.base + r->offset[i], fill, SLOT_BYTES);
    }
}

static void give_all(struct rig *r, bool clean)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        arena_alloc_give(r->a, r->offset[i], SLOT_BYTES, clean);
}

/* Reads the whole file twice through the same device queue: the child's reads, submitted earlier,
 * have completed by then. */
static void drain_storage(const struct rig *r)
{
    void *buffer;
    sl_assert(posix_memalign(&buffer, PAGE_BYTES, SLOT_BYTES) == 0);
    for (uint32_t i = 0; i < 2 * SLOTS; i++)
        sl_assert(pread(r->file, buffer, SLOT_BYTES, (off_t)(i % SLOTS * SLOT_BYTES)) > 0);
    free(buffer);
}

/* False when the child could not submit. */
static bool kill_and_reuse(struct rig *r, bool clean, struct outcome *o)
{
    int submitted_fd, status;
    char byte;
    take_all(r, 0x11);
    pid_t child = spawn_child(r, &submitted_fd);
    bool submitted = read(submitted_fd, &byte, 1) == 1;
    kill(child, SIGKILL);
    sl_assert(waitpid(child, &status, 0) == child);
    close(submitted_fd);
    o->landed_at_reap = pages_of(r, FROM_FILE);
    give_all(r, clean);
    take_all(r, REUSED);
    drain_storage(r);
    o->overwritten = SLOTS * (uint32_t)(SLOT_BYTES / PAGE_BYTES) - pages_of(r, REUSED);
    give_all(r, false);
    return submitted;
}

static int make_file(void)
{
    char name[] = "./late_write.XXXXXX"; /* in the build directory: a real file system, not tmpfs */
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -1;
    int direct = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(name); /* at once: the file is removed however this test ends */
    char *block = malloc(SLOT_BYTES);
    sl_assert(block != NULL);
    memset(block, FROM_FILE, SLOT_BYTES);
    for (uint32_t i = 0; direct >= 0 && i < SLOTS; i++)
        if (write(fd, block, SLOT_BYTES) != (ssize_t)SLOT_BYTES) {
            close(direct);
            direct = -1;
        }
    fdatasync(fd);
    free(block);
    close(fd);
    return direct;
}

static int open_rig(struct rig *r)
{
    struct error error = {.text = ""};
    r->layout = (struct arena_layout){.dense_offset = PAGE_BYTES,
                                      .classes = 1,
                                      .bytes = PAGE_BYTES + SLOTS * SLOT_BYTES,
                                      .class = {{.slot_bytes = SLOT_BYTES,
                                                 .stride_bytes = SLOT_BYTES,
                                                 .region_offset = PAGE_BYTES,
                                                 .slots = SLOTS}}};
    char tag[32];
    snprintf(tag, sizeof tag, "late-%d", (int)getpid());
    if (segment_create(SEGMENT_ARENA, tag, 1, r->layout.bytes, &r->arena, &error) != 0 ||
        segment_allocate(r->arena.fd, PAGE_BYTES, SLOTS * SLOT_BYTES) != 0)
        return -1;
    segment_punch(r->arena.fd, PAGE_BYTES, SLOTS * SLOT_BYTES);
    r->a = arena_alloc_create(&r->arena, &r->layout, false, &error);
    return r->a ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--child") == 0)
        return child_main(argv + 2);
    struct rig r;
    if ((r.file = make_file()) < 0)
        return skip("no file on a file system with O_DIRECT here");
    if (open_rig(&r) != 0)
        return skip("/dev/shm has less than 256 MiB free");
    uint32_t all = SLOTS * (uint32_t)(SLOT_BYTES / PAGE_BYTES), controls = 0, proofs = 0;
    for (int attempt = 1; attempt <= ATTEMPTS && (controls < 1 || proofs < 2); attempt++) {
        struct outcome control, punched;
        if (!kill_and_reuse(&r, true, &control) || !kill_and_reuse(&r, false, &punched))
            return skip("io_uring does not work here");
        printf("attempt %d: of %u pages, not punched: %u landed before the reap, %u overwritten "
               "after the reuse; punched: %u landed, %u overwritten\n",
               attempt, all, control.landed_at_reap, control.overwritten, punched.landed_at_reap,
               punched.overwritten);
        if (punched.overwritten > 0) {
            printf("FAIL: reads of a killed loader wrote into punched and reused ranges\n");
            return 1;
        }
        controls += control.overwritten > 0;
        proofs += punched.landed_at_reap < all;
    }
    if (controls == 0 || proofs == 0)
        return skip("proves nothing: in no attempt was a read outstanding at the reap");
    printf("PASS: %u controls overwritten, %u punched runs with reads outstanding, none touched\n",
           controls, proofs);
    return 0;
}
