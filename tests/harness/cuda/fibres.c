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
/* Not a power of two: the tops of all stacks would share a few lines of the processor's caches. */
#define STACK_BYTES ((64u << 10) + 5 * 64)
#define SHARED_MAX  (48u << 10) /* what every GPU gives without a request */
#define CANARY      4096
#define GRID_YZ_MAX 65535
#define COPIES_MAX  16 /* of a thread that are not done */

/*             barrier                        all others there
 *   ready ───────────────► at a barrier ──────────────────────► ready
 *     │  │  exchange, operation            all lanes there
 *     │  └─────────────────► exchanging ──────────────────────► ready
 *     └─ returned ─► done */

/* Where a fibre continues. The compiler's own functions save three registers; with those of the C
 * library, kernels took twice the time. */
#ifdef __x86_64__
typedef void *place[5];
#define HERE(p)  __builtin_setjmp(p)
#define GO_TO(p) __builtin_longjmp(p, 1)
#else /* not every compiler has them there */
typedef jmp_buf place;
#define HERE(p)  _setjmp(p)
#define GO_TO(p) _longjmp(p, 1)
#endif

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* A fibre is made once, and runs threads of one block after another. Its context is only where it
 * begins: a switch with it makes a system call. */
struct fibre {
    ucontext_t context;
    bool made;
    struct copy copy[COPIES_MAX];
    uint32_t copies;
};

/* Of its lanes: what they wait with. */
struct warp {
    uint32_t ready, exchanging; /* masks */
    int line[LANES];            /* of the source */
    uint32_t lanes[LANES], from[LANES];
    uint64_t value[LANES], result[LANES];
    void (*operation[LANES])(void *const registers[LANES]); /* NULL: an exchange */
    void *registers[LANES];
};

static struct {
    struct fibre fibre[THREADS_MAX];
    struct warp warp[WARPS_MAX];
    struct fibre_index index[THREADS_MAX];
    place here[THREADS_MAX];
    bool begun[THREADS_MAX];
    uint32_t ready; /* mask of the warps that have lanes which may run */
    uint32_t threads, warps, now, at_barrier, done;
    bool ahead; /* one warp runs as far as it can, from `first` on */
    uint32_t first;
    place scheduler;
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

static uint32_t draw_bits(void)
{
    run.random ^= run.random << 13;
    run.random ^= run.random >> 17;
    run.random ^= run.random << 5;
    return run.random;
}

uint32_t fibres_draw(uint32_t below)
{
    return (uint32_t)((uint64_t)draw_bits() * below >> 32);
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

static void make_ready(uint32_t warp, uint32_t lanes)
{
    run.warp[warp].ready |= lanes;
    run.ready |= 1u << warp;
}

/* ---- the next fibre ---- */

/* The first bit of the mask, which has some, from number `from` on and around. */
static uint32_t next_bit(uint32_t mask, uint32_t from)
{
    uint32_t turned = mask >> from | mask << (-from % 32);
    return ((uint32_t)__builtin_ctz(turned) + from) % 32;
}

/* Any; or, in every other block, one of the first warp in an order that begins at `first`, so that
 * a warp comes far ahead of others. */
static uint32_t pick_next(void)
{
    uint32_t bits = draw_bits();
    uint32_t from = run.ahead ? run.first : (uint32_t)((uint64_t)bits * run.warps >> 32);
    uint32_t warp = next_bit(run.ready, from);
    return warp * LANES + next_bit(run.warp[warp].ready, bits % LANES);
}

static void take(uint32_t i)
{
    struct warp *w = &run.warp[i / LANES];
    w->ready &= ~(1u << i % LANES);
    if (w->ready == 0)
        run.ready &= ~(1u << i / LANES);
    run.now = i;
    fibre_thread = run.index[i];
}

/* Not a part of the function that has HERE: a compiler's GO_TO must not be there. */
__attribute__((noinline, noreturn)) static void continue_next(void)
{
    if (run.ready == 0 || run.failed)
        GO_TO(run.scheduler);
    take(pick_next());
    if (run.begun[run.now])
        GO_TO(run.here[run.now]);
    run.begun[run.now] = true;
    setcontext(&run.fibre[run.now].context);
    abort();
}

/* Others continue, until this fibre is ready and chosen. */
static void stop(void)
{
    if (HERE(run.here[run.now]) == 0)
        continue_next();
}

static void fibre_main(void)
{
    for (;;) {
        run.thread(run.arg);
        if (run.fibre[run.now].copies > 0)
            fail("thread %u ends before its copies", run.now);
        run.fibre[run.now].copies = 0;
        run.done++;
        stop();
    }
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
    run.begun[i] = false;
}

/* After an error, threads are in the middle of a block: the fibres are made again. */
static void forget_fibres(void)
{
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        run.fibre[i].made = false;
        run.fibre[i].copies = 0;
    }
}

/* ---- what threads call ---- */

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

/* The last one has come: all of them continue. */
static void end_barrier(int line)
{
    run.at_barrier = 0;
    for (uint32_t i = 0; i < run.threads; i++) {
        int other = run.warp[i / LANES].line[i % LANES];
        if (other != line)
            fail("a barrier in line %d and one in line %d", line, other);
        make_ready(i / LANES, 1u << i % LANES);
    }
}

void fibres_barrier(int line)
{
    run.warp[run.now / LANES].line[run.now % LANES] = line;
    if (++run.at_barrier == run.threads)
        end_barrier(line);
    stop();
}

static void end_operation(struct warp *w)
{
    void *registers[LANES];
    memcpy(registers, w->registers, sizeof registers);
    w->operation[0](registers);
}

static void end_exchange(struct warp *w, uint32_t lanes)
{
    for (uint32_t l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1))
            continue;
        uint32_t from = w->from[l] % LANES;
        if (!(lanes >> from & 1))
            fail("line %d: lane %u reads lane %u, which is not there", w->line[l], l, from);
        w->result[l] = w->value[from];
    }
}

/* The lane waits for those of the mask, which must be there for the same. The last one that comes
 * does it for all. */
static void meet(struct warp *w, uint32_t lane, uint32_t lanes)
{
    uint32_t warp = run.now / LANES, left = run.threads - warp * LANES, others;
    if (left < LANES && lanes >> left != 0)
        fail("line %d: lane %u of the mask is no thread", w->line[lane],
             left + (uint32_t)__builtin_ctz(lanes >> left));
    if ((others = w->exchanging & lanes) != 0) {
        uint32_t o = (uint32_t)__builtin_ctz(others); /* like all of them */
        if (w->line[o] != w->line[lane] || w->lanes[o] != lanes ||
            w->operation[o] != w->operation[lane])
            fail("a warp is in line %d and in line %d", w->line[lane], w->line[o]);
    }
    w->lanes[lane] = lanes;
    w->exchanging |= 1u << lane;
    if ((lanes & ~w->exchanging) == 0 && !run.failed) {
        if (w->operation[lane])
            end_operation(w);
        else
            end_exchange(w, lanes);
        w->exchanging &= ~lanes;
        make_ready(warp, lanes);
    }
    stop();
}

uint64_t fibres_exchange(uint32_t lanes, uint64_t value, uint32_t from, int line)
{
    struct warp *w = &run.warp[run.now / LANES];
    uint32_t lane = run.now % LANES;
    w->value[lane] = value;
    w->from[lane] = from;
    w->operation[lane] = NULL;
    w->line[lane] = line;
    if (!(lanes >> lane & 1))
        fail("line %d: thread %u is not in its own mask", line, run.now);
    meet(w, lane, lanes);
    return w->result[lane];
}

void fibres_together(void *registers, void (*operation)(void *const registers[LANES]), int line)
{
    struct warp *w = &run.warp[run.now / LANES];
    uint32_t lane = run.now % LANES;
    w->operation[lane] = operation;
    w->registers[lane] = registers;
    w->line[lane] = line;
    meet(w, lane, UINT32_MAX);
}

/* ---- blocks ---- */

static void start_block(void)
{
    memset(run.shared, 0xa5, sizeof run.shared);
    memset(run.shared + CANARY, 0xff, run.shared_bytes);
    run.at_barrier = run.done = run.ready = 0;
    for (uint32_t w = 0; w < run.warps; w++) {
        uint32_t left = run.threads - w * LANES;
        run.warp[w].ready = run.warp[w].exchanging = 0;
        make_ready(w, left < LANES ? (1u << left) - 1 : UINT32_MAX);
    }
    run.ahead = fibres_draw(2) != 0;
    run.first = fibres_draw(run.warps);
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

static void run_block(void)
{
    start_block();
    if (HERE(run.scheduler) == 0)
        continue_next();
    if (!run.failed && run.done < run.threads)
        fail("%u threads ended, %u wait at a barrier, the others in a warp: none can continue",
             run.done, run.at_barrier);
    check_canaries();
}

static uint64_t volume(struct fibre_index i)
{
    return (uint64_t)i.x * i.y * i.z;
}

static void make_threads(struct fibre_index block)
{
    run.threads = (uint32_t)volume(block);
    run.warps = (run.threads + LANES - 1) / LANES;
    for (uint32_t i = 0; i < run.threads; i++) {
        uint32_t line = i / block.x;
        run.index[i] = (struct fibre_index){i % block.x, line % block.y, line / block.y};
        make_fibre(i);
    }
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
    make_threads(block);
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
