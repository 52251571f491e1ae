/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and applies Landlock rules by system calls. */
#include "lib/sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/bytes.h"

#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#define __NR_landlock_add_rule       445
#define __NR_landlock_restrict_self  446
#endif

#define VERSION_QUERY  1u /* flag of landlock_create_ruleset */
#define RULE_PATH      1
#define RULE_PORT      2
#define VERSION_TCP    4
#define VERSION_SCOPE  6
#define TCP_BIND       (1ull << 0)
#define TCP_CONNECT    (1ull << 1)
#define SCOPE_ABSTRACT (1ull << 0) /* abstract Unix sockets of other processes */
#define SCOPE_SIGNAL   (1ull << 1) /* signals to other processes */
#define FS_WRITE_FILE  (1ull << 1)
#define FS_READ_FILE   (1ull << 2)
#define FS_READ_DIR    (1ull << 3)
#define FS_REMOVE_DIR  (1ull << 4)
#define FS_REMOVE_FILE (1ull << 5)
#define FS_MAKE_DIR    (1ull << 7)
#define FS_MAKE_REG    (1ull << 8)
#define FS_MAKE_SOCK   (1ull << 9)
#define FS_REFER       (1ull << 13)
#define FS_TRUNCATE    (1ull << 14)
#define FS_IOCTL       (1ull << 15)
#define FS_OF_FILES    (FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL)

/* The kernel's struct; older ones accept a longer one whose rest is zero. */
struct ruleset {
    uint64_t files, tcp, scopes;
};

struct path_rule {
    uint64_t access;
    int32_t fd;
} __attribute__((packed));

struct port_rule {
    uint64_t access, port;
};

/* All rights over files that a version has. */
static uint64_t rights_of(unsigned version)
{
    static const unsigned bits[] = {13, 14, 15, 15, 16};
    size_t last = ARRAY_LEN(bits) - 1;
    return (1ull << bits[version - 1 < last ? version - 1 : last]) - 1;
}

unsigned landlock_version(void)
{
    long version = syscall(__NR_landlock_create_ruleset, NULL, 0, VERSION_QUERY);
    return version > 0 ? (unsigned)version : 0;
}

static uint64_t rights_for(uint32_t access)
{
    uint64_t rights = 0;
    if (access & SANDBOX_READ)
        rights |= FS_READ_FILE | FS_READ_DIR;
    if (access & (SANDBOX_WRITE | SANDBOX_FILES))
        rights |=
            FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_TRUNCATE | FS_MAKE_REG | FS_REMOVE_FILE;
    if (access & SANDBOX_WRITE)
        rights |= FS_MAKE_DIR | FS_REMOVE_DIR | FS_REFER;
    if (access & SANDBOX_FILE)
        rights |= FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE;
    if (access & SANDBOX_SOCKETS)
        rights |= FS_MAKE_SOCK | FS_REMOVE_FILE;
    if (access & SANDBOX_DEVICE)
        rights |= FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_IOCTL;
    return rights;
}

static int add_port(int ruleset, const struct sandbox_rule *rule, const struct ruleset *set,
                    struct error *error)
{
    char *at = NULL;
    for (const char *text = rule->path; set->tcp != 0; text = at + 1) {
        unsigned long port = strtoul(text, &at, 10), last = port;
        if (*at == '-')
            last = strtoul(at + 1, &at, 10);
        for (; port <= last; port++) {
            struct port_rule one = {.access = TCP_CONNECT, .port = port};
            if (syscall(__NR_landlock_add_rule, ruleset, RULE_PORT, &one, 0) != 0)
                return error_set_errno(error, ERR_FAILED, errno, "sandbox: port %.40s", text);
        }
        if (*at != ',')
            break;
    }
    return 0;
}

static int add_rule(int ruleset, const struct sandbox_rule *rule, uint64_t handled,
                    struct error *error)
{
    struct stat st;
    bool file = rule->access == SANDBOX_FILE;
    int fd = open(rule->path, O_PATH | O_CLOEXEC | (file ? O_NOFOLLOW : 0));
    if (fd < 0 || fstat(fd, &st) != 0 || (file && !S_ISREG(st.st_mode))) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    uint64_t rights = rights_for(rule->access) & handled;
    if (!S_ISDIR(st.st_mode))
        rights &= FS_OF_FILES;
    struct path_rule attribute = {.access = rights, .fd = fd};
    long rc = rights ? syscall(__NR_landlock_add_rule, ruleset, RULE_PATH, &attribute, 0) : 0;
    int reason = errno;
    close(fd);
    return rc == 0 ? 0 : error_set_errno(error, ERR_FAILED, reason, "sandbox: %.200s", rule->path);
}

int landlock_restrict(const struct sandbox_rule *rules, size_t count, uint32_t *parts,
                      struct error *error)
{
    unsigned version = landlock_version();
    if (version == 0)
        return 0;
    struct ruleset set = {.files = rights_of(version),
                          .tcp = version >= VERSION_TCP ? TCP_BIND | TCP_CONNECT : 0,
                          .scopes = version >= VERSION_SCOPE ? SCOPE_ABSTRACT | SCOPE_SIGNAL : 0};
    size_t bytes = version >= VERSION_SCOPE ? sizeof set
                   : version >= VERSION_TCP ? 2 * sizeof set.files
                                            : sizeof set.files;
    int fd = (int)syscall(__NR_landlock_create_ruleset, &set, bytes, 0);
    if (fd < 0)
        return error_set_errno(error, ERR_FAILED, errno, "sandbox: no Landlock rules");
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = rules[i].access == SANDBOX_CONNECT ? add_port(fd, &rules[i], &set, error)
                                                : add_rule(fd, &rules[i], set.files, error);
    if (rc == 0 && syscall(__NR_landlock_restrict_self, fd, 0) != 0)
        rc = error_set_errno(error, ERR_FAILED, errno, "sandbox: Landlock");
    close(fd);
    if (rc == 0)
        *parts |= SANDBOX_LANDLOCK | (set.tcp ? SANDBOX_NO_TCP : 0);
    return rc;
}
