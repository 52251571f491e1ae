/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a filter: the architecture, then a comparison per permitted call, then the calls
 * that fail, then SIGSYS. In some profiles every other call fails, too (fails), or every other
 * socket (asks_for_addresses). Calls of another architecture (32-bit, x32) end the process. The
 * kernel stores for each number whether it is permitted whatever its arguments are, so that the
 * length of the program costs nothing for those. */
#include "lib/sandbox/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sluice_call_names.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

/* Calls that the headers of an older system lack; the numbers are those of all architectures. */
#ifndef __NR_faccessat2
#define __NR_faccessat2 439
#endif
#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif
#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#define __NR_landlock_add_rule       445
#define __NR_landlock_restrict_self  446
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define X32_FIRST    0x40000000u
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0 /* sandbox_calls does nothing */
#endif

enum group {
#define SANDBOX_GROUP(id, name, text) GROUP_##id,
#include "lib/sandbox/profiles.tbl.h"
    GROUP__COUNT
};

enum groups {
#define SANDBOX_GROUP(id, name, text) id = 1 << GROUP_##id,
#include "lib/sandbox/profiles.tbl.h"
};

/* Children inherit the filter of the supervisor: what it forbids would fail in them without an
 * error. STAT includes FSTAT. */
enum profile_calls {
#define SANDBOX_PROFILE(id, name, groups, files, network) CALLS_OF_##id = (groups),
#include "lib/sandbox/profiles.tbl.h"
};
#define INHERITED(id)                                                                              \
    (SANDBOX_##id == SANDBOX_LOADER_NET || SANDBOX_##id == SANDBOX_LOADER_TLS ||                   \
             SANDBOX_##id == SANDBOX_LOADER_CEPH || SANDBOX_##id == SANDBOX_LOADER_NET_CACHE ||    \
             SANDBOX_##id == SANDBOX_LOADER_TLS_CACHE ||                                           \
             SANDBOX_##id == SANDBOX_LOADER_CEPH_CACHE || SANDBOX_##id == SANDBOX_FETCH ||         \
             SANDBOX_##id == SANDBOX_PUSH || SANDBOX_##id == SANDBOX_SUPERVISOR_NET                \
         ? CALLS_OF_SUPERVISOR_NET                                                                 \
         : INHERITED_GPU(id))
#define INHERITED_GPU(id)                                                                          \
    (SANDBOX_##id == SANDBOX_COMPUTE_GPU || SANDBOX_##id == SANDBOX_COMPUTE_GPU_FILES ||           \
             SANDBOX_##id == SANDBOX_SUPERVISOR_GPU                                                \
         ? CALLS_OF_SUPERVISOR_GPU                                                                 \
     : SANDBOX_##id == SANDBOX_SUPERVISOR_GPU_NET ? CALLS_OF_SUPERVISOR_GPU_NET                    \
                                                  : CALLS_OF_SUPERVISOR)
#define SANDBOX_PROFILE(id, name, groups, files, network)                                          \
    _Static_assert(((groups) & ~(INHERITED(id) | FSTAT)) == 0,                                     \
                   name " needs calls that the supervisor's filter forbids");
#include "lib/sandbox/profiles.tbl.h"

static const uint32_t profile_groups[] = {
#define SANDBOX_PROFILE(id, name, groups, files, network) (groups),
#include "lib/sandbox/profiles.tbl.h"
};

struct rule {
    uint32_t group;
    int call;
    enum { ALWAYS, ARGUMENT, SELF, STREAM } kind;
    unsigned argument;
    uint64_t mask, value;
};

#if defined __x86_64__
#define X86_RULE(group, call)  {(group), __NR_##call, ALWAYS, 0, 0, 0},
#define X86_ERROR(call, error) {__NR_##call, (error)},
#else
#define X86_RULE(group, call)
#define X86_ERROR(call, error)
#endif

static const struct rule rules[] = {
#define CALL(group, call)     {(group), __NR_##call, ALWAYS, 0, 0, 0},
#define CALL_X86(group, call) X86_RULE(group, call)
#define CALL_IF(group, call, argument, mask, value, text)                                          \
    {(group), __NR_##call, ARGUMENT, (argument), (mask), (value)},
#define CALL_PRCTL(group, option)  {(group), __NR_prctl, ARGUMENT, 0, UINT32_MAX, (option)},
#define CALL_SELF(group, call)     {(group), __NR_##call, SELF, 0, UINT32_MAX, 0},
#define CALL_STREAM(group, family) {(group), __NR_socket, STREAM, 0, UINT32_MAX, (family)},
#include "lib/sandbox/calls.tbl.h"
};

static const struct {
    int call, error;
} errors[] = {
#define ERRNO(call, error)     {__NR_##call, (error)},
#define ERRNO_X86(call, error) X86_ERROR(call, error)
#include "lib/sandbox/calls.tbl.h"
};

static void put(struct filter *f, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    sl_assert(f->count < FILTER_MAX);
    f->code[f->count++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct filter *f, size_t offset)
{
    put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void result(struct filter *f, uint32_t value)
{
    put(f, BPF_RET | BPF_K, value, 0, 0);
}

static void load_number(struct filter *f)
{
    load(f, offsetof(struct seccomp_data, nr));
}

/* The next instruction is skipped unless the accumulator is `value`. */
static void unless(struct filter *f, uint32_t value, uint8_t skipped)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

static void permit_always(struct filter *f, const struct rule *r)
{
    unless(f, (uint32_t)r->call, 1);
    result(f, SECCOMP_RET_ALLOW);
}

/* Arguments are 64 bits; the upper half counts only where the mask has bits there: of an int, it is
 * whatever the caller left in the register. */
static void permit_argument(struct filter *f, const struct rule *r, uint64_t value)
{
    size_t low = offsetof(struct seccomp_data, args) + r->argument * sizeof(uint64_t);
    uint32_t high_mask = (uint32_t)(r->mask >> 32);
    uint8_t tests = high_mask ? 7 : 4;
    unless(f, (uint32_t)r->call, tests + 1);
    if (high_mask) {
        load(f, low + sizeof(uint32_t));
        put(f, BPF_ALU | BPF_AND | BPF_K, high_mask, 0, 0);
        unless(f, (uint32_t)(value >> 32), 4);
    }
    load(f, low);
    put(f, BPF_ALU | BPF_AND | BPF_K, (uint32_t)r->mask, 0, 0);
    unless(f, (uint32_t)value, 1);
    result(f, SECCOMP_RET_ALLOW);
    load_number(f);
}

/* The next `skipped` instructions are skipped unless the lower half of the argument, masked, is
 * `value`. */
static void unless_argument(struct filter *f, unsigned argument, uint32_t mask, uint32_t value,
                            uint8_t skipped)
{
    load(f, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t));
    put(f, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    unless(f, value, skipped);
}

/* socket(family, SOCK_STREAM | flags, 0 or IPPROTO_TCP). Landlock does not restrict other protocols
 * of streams. */
static void permit_stream(struct filter *f, const struct rule *r)
{
    enum { TEST = 3 /* instructions */ };
    unless(f, (uint32_t)r->call, 3 * TEST + 2);
    unless_argument(f, 0, UINT32_MAX, (uint32_t)r->value, 2 * TEST + 1);
    unless_argument(f, 1, 0xf, SOCK_STREAM, TEST + 1);
    unless_argument(f, 2, ~(uint32_t)IPPROTO_TCP, 0, 1);
    result(f, SECCOMP_RET_ALLOW);
    load_number(f);
}

/* Where other calls fail instead of ending the process: the end of the supervisor is that of the
 * engine, and which calls a driver can do without depends on its version. */
static bool fails(enum sandbox_profile profile)
{
    return profile == SANDBOX_SUPERVISOR || profile == SANDBOX_SUPERVISOR_GPU ||
           profile == SANDBOX_SUPERVISOR_NET || profile == SANDBOX_SUPERVISOR_GPU_NET ||
           profile == SANDBOX_COMPUTE_GPU || profile == SANDBOX_COMPUTE_GPU_FILES;
}

/* librados asks for addresses, by UDP, of the monitors that its file names, or when it names none.
 * That is a fault of the file, and the cluster may be one copy of several. */
static bool asks_for_addresses(enum sandbox_profile profile)
{
    return profile == SANDBOX_LOADER_CEPH || profile == SANDBOX_LOADER_CEPH_CACHE ||
           profile == SANDBOX_FETCH || profile == SANDBOX_PUSH;
}

static void fail(struct filter *f, int call, int error)
{
    unless(f, (uint32_t)call, 1);
    result(f, SECCOMP_RET_ERRNO | (uint32_t)error);
}

void filter_make(enum sandbox_profile profile, struct filter *f)
{
    sl_assert(profile < SANDBOX_PROFILE__COUNT);
    f->count = 0;
    load(f, offsetof(struct seccomp_data, arch));
    put(f, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    result(f, SECCOMP_RET_KILL_PROCESS);
    load_number(f);
#ifdef X32_FIRST
    put(f, BPF_JMP | BPF_JGE | BPF_K, X32_FIRST, 0, 1);
    result(f, SECCOMP_RET_KILL_PROCESS);
#endif
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const struct rule *r = &rules[i];
        if ((r->group & profile_groups[profile]) == 0)
            continue;
        if (r->kind == ALWAYS)
            permit_always(f, r);
        else if (r->kind == STREAM)
            permit_stream(f, r);
        else
            permit_argument(f, r, r->kind == SELF ? (uint64_t)getpid() : r->value);
    }
    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        fail(f, errors[i].call, errors[i].error);
    if (asks_for_addresses(profile))
        fail(f, __NR_socket, EACCES);
    result(f, fails(profile) ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRAP);
}

const char *filter_call_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
#define CALL_NAME(name) {__NR_##name, #name},
        SLUICE_CALL_NAMES
#undef CALL_NAME
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].number == number)
            return names[i].name;
    return "?";
}
