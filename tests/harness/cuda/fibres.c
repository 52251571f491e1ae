/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the threads of a GPU's block as fibres in a random order. */
#include "tests/harness/cuda/fibres.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "lib/base/assert.h"

#define THREADS_MAX 1024
#define LANES       32
#define WARPS_MAX   (THREADS_MAX / LANES)
#define STACK_BYTES (64u << 10)
#define SHARED_MAX  (48u << 10) /* what every GPU gives without a request */
#define CANARY      4096
#define GRID_YZ_MAX 65535
#define COPIES_MAX  16 /* of a thread that are not done */

/*             barrier                        all others there
 *   READY ───────────────► AT_BARRIER ────────────────────────► READY
 *     │  │  exchange, operation            all lanes there
 *     │  └─────────────────► EXCHANGING ──────────────────────► READY
 *     └─ returned ─► DONE */
enum state { READY, AT_BARRIER, EXCHANGING, DONE };

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* A fibre is made once, and runs threads of one block after another. Its context is only where it
 * begins: later it is continued with longjmp, which unlike swapcontext makes no system call. */
struct fibre {
    ucontext_t context;
    bool made, begun;
    jmp_buf here;
    enum state state;
    int line; /* of the source, where it waits */
    uint32_t lanes, from;
    uint64_t value, result;
    void (*operation)(void *const registers[LANES]); /* NULL: an exchange */
    void *registers;
    struct copy copy[COPIES_MAX];
    uint32_t copies;
};

static struct {
    struct fibre fibre[THREADS_MAX];
    uint32_t ready[WARPS_MAX]; /* lanes of each warp that may run */
    uint32_t ready_count;      /* of all warps */
    uint32_t threads, now, at_barrier, done;
    jmp_buf scheduler;
    uint8_t *stacks;
    _Alignas(64) uint8_t shared[CANARY + SHARED_MAX + CANARY];
    size_t shared_bytes;
    void (*thread)(const void *arg);
    const void *arg;
    uint32_t random;
    bool failed;
    char error[200];
} run = {.random = 1};

uint32_t fibre_target = 80;
struct fibre_index fibre_thread, fibre_block, fibre_block_size, fibre_grid_size;

void fibres_seed(uint32_t seed)
{
    run.random = seed * 2654435761u | 1;
}

uint32_t fibres_draw(uint32_t below)
{
    run.random ^= run.random << 13;
    run.random ^= run.random >> 17;
    run.random ^= run.random << 5;
    return (uint32_t)((uint64_t)run.random * below >> 32);
}

/* The first error of a launch counts. */
__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    if (run.failed)
        return;
    run.failed = true;
    va_start(args, format);
    vsnprintf(run.error, sizeof run.error, format, args);
    va_end(args);
}

const char *fibres_error(void)
{
    return run.failed ? run.error : NULL;
}

static void make_ready(uint32_t i)
{
    run.fibre[i].state = READY;
    run.ready[i / LANES] |= 1u << i % LANES;
    run.ready_count++;
}

static void stop(enum state state, int line)
{
    struct fibre *f = &run.fibre[run.now];
    f->state = state;
    f->line = line;
    if (_setjmp(f->here) == 0)
        _longjmp(run.scheduler, 1);
}

static void fibre_main(void)
{
    for (;;) {
        run.thread(run.arg);
        if (run.fibre[run.now].copies > 0)
            fail("thread %u ends before its copies", run.now);
        run.fibre[run.now].copies = 0;
        run.done++;
        stop(DONE, 0);
    }
}

/* Runs a fibre until it stops. */
static void continue_fibre(struct fibre *f)
{
    if (_setjmp(run.scheduler) != 0)
        return;
    if (f->begun)
        _longjmp(f->here, 1);
    f->begun = true;
    setcontext(&f->context);
}

static void make_fibre(uint32_t i)
{
    struct fibre *f = &run.fibre[i];
    if (f->made)
        return;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = run.stacks + (size_t)i * STACK_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fibre_main, 0);
    f->made = true;
    f->begun = false;
}

/* After an error, threads are in the middle of a block: the fibres are made again. */
static void forget_fibres(void)
{
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        run.fibre[i].made = false;
        run.fibre[i].copies = 0;
    }
}

uint8_t *fibres_shared(void)
{
    return run.shared + CANARY;
}

uint32_t fibres_lane(void)
{
    return run.now % LANES;
}

void fibres_aligned(const void *p, size_t bytes)
{
    if ((uintptr_t)p % bytes != 0)
        fail("a load of %zu bytes that is not aligned, thread %u", bytes, run.now);
}

void fibres_in_shared(const void *p, size_t bytes)
{
    const uint8_t *at = p, *from = fibres_shared();
    fibres_aligned(p, bytes);
    if (at < from || at + bytes > from + run.shared_bytes)
        fail("an access beyond shared memory, thread %u", run.now);
}

static void do_copy(const struct copy *c)
{
    memcpy(c->to, c->from, c->bytes);
}

void fibres_copy(void *to, const void *from, size_t bytes)
{
    struct fibre *f = &run.fibre[run.now];
    const struct copy copy = {to, from, bytes};
    fibres_in_shared(to, bytes);
    fibres_aligned(from, bytes);
    if (run.failed)
        return;
    if (fibre_target < 80 || f->copies == COPIES_MAX || fibres_draw(2) == 0)
        do_copy(&copy);
    else
        f->copy[f->copies++] = copy;
}

void fibres_copies_wait(void)
{
    struct fibre *f = &run.fibre[run.now];
    while (f->copies > 0)
        do_copy(&f->copy[--f->copies]);
}

void fibres_barrier(int line)
{
    run.at_barrier++;
    stop(AT_BARRIER, line);
}

uint64_t fibres_exchange(uint32_t lanes, uint64_t value, uint32_t from, int line)
{
    struct fibre *f = &run.fibre[run.now];
    f->value = value;
    f->lanes = lanes;
    f->from = from;
    f->operation = NULL;
    if (!(lanes >> run.now % LANES & 1))
        fail("line %d: thread %u is not in its own mask", line, run.now);
    stop(EXCHANGING, line);
    return f->result;
}

void fibres_together(void *registers, void (*operation)(void *const registers[LANES]), int line)
{
    struct fibre *f = &run.fibre[run.now];
    f->lanes = UINT32_MAX;
    f->operation = operation;
    f->registers = registers;
    stop(EXCHANGING, line);
}

/* After a fibre has come to a barrier: all of them continue. */
static void end_barrier(void)
{
    int line = run.fibre[run.now].line;
    if (run.at_barrier < run.threads)
        return;
    run.at_barrier = 0;
    for (uint32_t i = 0; i < run.threads; i++) {
        if (run.fibre[i].line != line)
            fail("a barrier in line %d and one in line %d", line, run.fibre[i].line);
        make_ready(i);
    }
}

static void operate(uint32_t base)
{
    void *registers[LANES];
    for (uint32_t l = 0; l < LANES; l++)
        registers[l] = run.fibre[base + l].registers;
    run.fibre[base].operation(registers);
    for (uint32_t l = 0; l < LANES; l++)
        make_ready(base + l);
}

static void end_exchange(void)
{
    uint32_t base = run.now / LANES * LANES;
    const struct fibre *f = &run.fibre[run.now];
    for (uint32_t l = 0; l < LANES; l++) {
        const struct fibre *o = &run.fibre[base + l];
        if (!(f->lanes >> l & 1))
            continue;
        if (base + l >= run.threads)
            fail("line %d: lane %u of the mask is no thread", f->line, l);
        else if (o->state != EXCHANGING)
            return;
        else if (o->line != f->line || o->lanes != f->lanes || o->operation != f->operation)
            fail("a warp is in line %d and in line %d", f->line, o->line);
    }
    if (run.failed)
        return;
    if (f->operation) {
        operate(base);
        return;
    }
    uint32_t lanes = f->lanes;
    for (uint32_t l = 0; l < LANES; l++) {
        struct fibre *o = &run.fibre[base + l];
        if (!(lanes >> l & 1))
            continue;
        if (!(lanes >> o->from % LANES & 1))
            fail("line %d: lane %u reads lane %u, which is not there", o->line, l, o->from);
        o->result = run.fibre[base + o->from % LANES].value;
        make_ready(base + l);
    }
}

static void start_block(void)
{
    memset(run.shared, 0xa5, sizeof run.shared);
    memset(run.shared + CANARY, 0xff, run.shared_bytes);
    run.ready_count = run.at_barrier = run.done = 0;
    memset(run.ready, 0, sizeof run.ready);
    for (uint32_t i = 0; i < run.threads; i++) {
        make_fibre(i);
        make_ready(i);
    }
}

/* Equal neighbours: a comparison by the C library is far faster than one of bytes. */
static bool untouched(const uint8_t *p, size_t bytes)
{
    return p[0] == 0xa5 && memcmp(p, p + 1, bytes - 1) == 0;
}

static void check_canaries(void)
{
    size_t end = CANARY + run.shared_bytes;
    if (untouched(run.shared, CANARY) && untouched(run.shared + end, sizeof run.shared - end))
        return;
    size_t i = 0;
    while ((i >= CANARY && i < end) || run.shared[i] == 0xa5)
        i++;
    fail("a write at byte %ld of %zu bytes of shared memory", (long)i - CANARY, run.shared_bytes);
}

/* The number of the n-th of these lanes. */
static uint32_t lane_of(uint32_t lanes, uint32_t n)
{
    for (; n > 0; n--)
        lanes &= lanes - 1;
    return (uint32_t)__builtin_ctz(lanes);
}

/* The next fibre: any; or, in every other block, one of the first warp in an order that begins at
 * `first`, so that a warp comes far ahead of others. */
static uint32_t pick_next(bool ahead, uint32_t first)
{
    uint32_t warps = (run.threads + LANES - 1) / LANES, warp = first % warps;
    uint32_t n = fibres_draw(run.ready_count), count;
    while ((count = (uint32_t)__builtin_popcount(run.ready[warp])) == 0 || (!ahead && n >= count)) {
        n -= ahead ? 0 : count;
        warp = (warp + 1) % warps;
    }
    return warp * LANES + lane_of(run.ready[warp], n % count);
}

static void run_block(void)
{
    start_block();
    bool ahead = fibres_draw(2) != 0;
    uint32_t first = fibres_draw(THREADS_MAX);
    while (run.ready_count > 0 && !run.failed) {
        run.now = pick_next(ahead, first);
        run.ready[run.now / LANES] &= ~(1u << run.now % LANES);
        run.ready_count--;
        uint32_t line = run.now / fibre_block_size.x;
        fibre_thread = (struct fibre_index){run.now % fibre_block_size.x, line % fibre_block_size.y,
                                            line / fibre_block_size.y};
        continue_fibre(&run.fibre[run.now]);
        if (run.fibre[run.now].state == AT_BARRIER)
            end_barrier();
        else if (run.fibre[run.now].state == EXCHANGING)
            end_exchange();
    }
    if (!run.failed && run.done < run.threads)
        fail("%u threads ended, %u wait at a barrier, the others in a warp: none can continue",
             run.done, run.at_barrier);
    check_canaries();
}

static uint64_t volume(struct fibre_index i)
{
    return (uint64_t)i.x * i.y * i.z;
}

int fibres_run(struct fibre_index grid, struct fibre_index block, size_t shared_bytes,
               void (*thread)(const void *arg), const void *arg)
{
    run.failed = false;
    if (volume(grid) == 0 || volume(block) == 0 || volume(block) > THREADS_MAX ||
        grid.y > GRID_YZ_MAX || grid.z > GRID_YZ_MAX || shared_bytes > SHARED_MAX)
        fail("a launch of %u x %u x %u blocks with %zu bytes of shared memory", grid.x, grid.y,
             grid.z, shared_bytes);
    if (run.failed)
        return -1;
    if (!run.stacks) {
        run.stacks = mmap(NULL, (size_t)THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        sl_assert(run.stacks != MAP_FAILED);
    }
    run.threads = (uint32_t)volume(block);
    run.shared_bytes = shared_bytes;
    run.thread = thread;
    run.arg = arg;
    fibre_grid_size = grid;
    fibre_block_size = block;
    uint64_t blocks = volume(grid), first = fibres_draw((uint32_t)blocks);
    for (uint64_t i = 0; i < blocks && !run.failed; i++) {
        uint64_t b = (first + i) % blocks; /* not from the first on, and not the same each time */
        fibre_block = (struct fibre_index){(uint32_t)(b % grid.x), (uint32_t)(b / grid.x % grid.y),
                                           (uint32_t)(b / grid.x / grid.y)};
        run_block();
    }
    if (run.failed)
        forget_fibres();
    return run.failed ? -1 : 0;
}
