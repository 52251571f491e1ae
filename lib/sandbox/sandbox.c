/* SPDX-License-Identifier: Apache-2.0 */
/* Applies a profile to this process: files by Landlock, system calls by seccomp, and what a
 * violation does. */
#include "lib/sandbox/sandbox.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/sandbox/filter.h"
#include "lib/sandbox/landlock.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED true
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

#if defined __x86_64__ || defined __aarch64__
#define ARCHITECTURE_KNOWN true
#else
#define ARCHITECTURE_KNOWN false /* no filter: its numbers were never checked */
#endif

/* For the signal handler, which has no argument. */
static struct {
    sandbox_violation report;
    void *arg;
} violation;

bool sandbox_disabled(void)
{
    return SANITIZED;
}

/* ---- files ---- */

static int no_new_privileges(uint32_t *parts, struct error *error)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "sandbox: no_new_privs");
    *parts |= SANDBOX_NO_NEW_PRIVS;
    return 0;
}

int sandbox_files(const struct sandbox_rule *rules, size_t count, uint32_t *parts,
                  struct error *error)
{
    if (sandbox_disabled())
        return 0;
    if (no_new_privileges(parts, error) != 0)
        return -1;
    return landlock_restrict(rules, count, parts, error);
}

/* ---- system calls ---- */

/* Only functions that are safe in a signal handler. */
static void on_sigsys(int signal, siginfo_t *info, void *context)
{
    (void)context;
    char text[SANDBOX_TEXT_BYTES] = "forbidden system call ", digits[12];
    size_t n = strlen(text), d = sizeof digits;
    unsigned number = (unsigned)info->si_syscall;
    const char *name = filter_call_name(info->si_syscall);
    while (*name && n < sizeof text - 16)
        text[n++] = *name++;
    text[n++] = ' ';
    text[n++] = '(';
    do
        digits[--d] = (char)('0' + number % 10);
    while (number /= 10);
    while (d < sizeof digits)
        text[n++] = digits[d++];
    text[n++] = ')';
    text[n] = 0;
    if (violation.report)
        violation.report(text, violation.arg);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(signal, &standard, NULL);
    raise(signal); /* pending until this handler returns, or at once with SA_NODEFER */
}

static int handle_violations(sandbox_violation report, void *arg, struct error *error)
{
    violation.report = report;
    violation.arg = arg;
    struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "sandbox: SIGSYS");
    return 0;
}

static bool seccomp_available(void)
{
    uint32_t action = SECCOMP_RET_TRAP;
    return ARCHITECTURE_KNOWN && syscall(__NR_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int sandbox_calls(enum sandbox_profile profile, sandbox_violation report, void *arg,
                  uint32_t *parts, struct error *error)
{
    static struct filter filter;
    if (sandbox_disabled() || !seccomp_available())
        return 0;
    filter_make(profile, &filter);
    const struct sock_fprog program = {.len = filter.count, .filter = filter.code};
    if (no_new_privileges(parts, error) != 0 || handle_violations(report, arg, error) != 0)
        return -1;
    long rc = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (rc != 0) /* above 0: a thread that has another filter */
        return error_set_errno(error, ERR_FAILED, rc > 0 ? EBUSY : errno, "sandbox: seccomp");
    *parts |= SANDBOX_SECCOMP;
    return 0;
}

/* ---- what there is ---- */

uint32_t sandbox_available(unsigned *landlock)
{
    *landlock = landlock_version();
    return SANDBOX_NO_NEW_PRIVS | (*landlock ? SANDBOX_LANDLOCK : 0) |
           (seccomp_available() ? SANDBOX_SECCOMP : 0);
}

const char *sandbox_text(uint32_t parts, char text[SANDBOX_TEXT_BYTES])
{
    snprintf(
        text, SANDBOX_TEXT_BYTES, "%s%s%s", parts & SANDBOX_NO_NEW_PRIVS ? ", no_new_privs" : "",
        parts & SANDBOX_LANDLOCK ? ", landlock" : "", parts & SANDBOX_SECCOMP ? ", seccomp" : "");
    memmove(text, text[0] ? text + 2 : "none", text[0] ? strlen(text) - 1 : sizeof "none");
    return text;
}

static bool listed(const char *const *names, size_t count, const char *variable)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(variable, names[i], n) == 0 && variable[n] == '=')
            return true;
    }
    return false;
}

bool sandbox_keeps_variable(const char *variable)
{
    static const char *const kept[] = {
#define SANDBOX_VARIABLE(name) name,
#include "lib/sandbox/profiles.tbl.h"
    };
    return listed(kept, ARRAY_LEN(kept), variable);
}

bool sandbox_secret_variable(const char *variable)
{
    static const char *const secrets[] = {
#define SANDBOX_SECRET(name) name,
#include "lib/sandbox/profiles.tbl.h"
    };
    return listed(secrets, ARRAY_LEN(secrets), variable);
}
