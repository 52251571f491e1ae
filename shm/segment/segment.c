/* SPDX-License-Identifier: Apache-2.0 */
/* Creates, signs, maps and checks segments, and allocates and punches their pages. */
#include "shm/segment/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define PUNCH_SLICE_BYTES (8 * MIB) /* one punch holds kernel locks for about 3 ms at most */
#define NAME_BYTES        128
#define RANDOM_DIGITS     16
#define NAME_TRIES        16
#define SHM_DIR           "/dev/shm"

static const struct {
    const char *name;
    uint32_t version;
} kinds[] = {
#define X(kind, name, version) {name, version},
    SEGMENTS(X)
#undef X
};

const char *segment_name(enum segment_kind kind)
{
    sl_assert((unsigned)kind < SEGMENT__COUNT);
    return kinds[kind].name;
}

/* All names of a run: this prefix and RANDOM_DIGITS hexadecimal digits. Returns the length. */
static size_t prefix_of(char name[NAME_BYTES], const char *run_tag)
{
    sl_assert(run_tag[0] && !strchr(run_tag, '/'));
    int n =
        snprintf(name, NAME_BYTES - RANDOM_DIGITS, "/sluice.%u.%s.", (unsigned)geteuid(), run_tag);
    sl_assert(n > 0 && n < NAME_BYTES - RANDOM_DIGITS);
    return (size_t)n;
}

/* Opens a new file under a random name: a file that another user made in advance under a name that
 * can be predicted would stop every start. Unlinks it at once. -1 and errno. */
static int open_unnamed(const char *run_tag, char name[NAME_BYTES])
{
    size_t n = prefix_of(name, run_tag);
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -1;
        snprintf(name + n, NAME_BYTES - n, "%0*" PRIx64, RANDOM_DIGITS, random);
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0)
            shm_unlink(name); /* immediately: from here on nothing can be left behind */
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Address at which huge pages of a file can be mapped: offset and address must agree. NULL: any
 * address. */
static void *address_for(const struct segment *s)
{
    if (s->kind != SEGMENT_ARENA)
        return NULL;
    uint64_t bytes = s->bytes + HUGE_PAGE_BYTES;
    char *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    munmap(p, bytes);
    return (void *)align_up((uintptr_t)p, HUGE_PAGE_BYTES);
}

static int map(struct segment *s, struct error *error)
{
    int protection = s->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *base = mmap(address_for(s), s->bytes, protection, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
    if (base == MAP_FAILED)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot map the %s segment",
                               segment_name(s->kind));
    s->base = base;
    return 0;
}

static int size_and_sign(struct segment *s, uint64_t boot, struct error *error)
{
    if (ftruncate(s->fd, (off_t)s->bytes) != 0)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot size the %s segment",
                               segment_name(s->kind));
    uint64_t fixed = segment_fixed_bytes(s->kind, s->bytes);
    int rc = segment_allocate(s->fd, 0, fixed);
    if (rc != 0) {
        char text[16];
        return error_set_errno(error, ERR_NO_MEMORY, -rc,
                               "/dev/shm cannot hold the %s segment (%s)", segment_name(s->kind),
                               bytes_format(fixed, text));
    }
    if (map(s, error) != 0)
        return -1;
    struct segment_head *head = s->base;
    head->kind = s->kind;
    head->version = kinds[s->kind].version;
    head->layout_hash = segment_layout_hash(s->kind);
    head->bytes = s->bytes;
    head->boot = boot;
    head->magic = SEGMENT_MAGIC;
    return 0;
}

int segment_create(enum segment_kind kind, const char *run_tag, uint64_t boot, uint64_t bytes,
                   struct segment *out, struct error *error)
{
    sl_assert(bytes >= SEGMENT_HEAD_BYTES && bytes <= (uint64_t)INT64_MAX - PAGE_BYTES);
    char name[NAME_BYTES];
    int fd = open_unnamed(run_tag, name);
    if (fd < 0)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot create " SHM_DIR "%s", name);
    *out = (struct segment){
        .fd = fd, .kind = kind, .writable = true, .bytes = align_up(bytes, PAGE_BYTES)};
    if (size_and_sign(out, boot, error) == 0)
        return 0;
    segment_detach(out);
    return -1;
}

void segment_remove_stale(const char *run_tag)
{
    char prefix[NAME_BYTES];
    size_t n = prefix_of(prefix, run_tag) - 1; /* a directory entry has no slash */
    DIR *dir = opendir(SHM_DIR);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat st;
        if (strncmp(e->d_name, prefix + 1, n) == 0 &&
            strspn(e->d_name + n, "0123456789abcdef") == RANDOM_DIGITS &&
            e->d_name[n + RANDOM_DIGITS] == 0 &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid == geteuid())
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
}

/* Error text with both values, so that the line shows which builds differ. */
static int check_head(const struct segment_head *h, enum segment_kind kind, uint64_t boot,
                      uint64_t file_bytes, struct error *error)
{
    const char *name = segment_name(kind);
    const struct {
        const char *what;
        uint64_t found, expected;
    } checks[] = {
        {"magic", h->magic, SEGMENT_MAGIC},
        {"kind", h->kind, kind},
        {"layout version", h->version, kinds[kind].version},
        {"layout hash", h->layout_hash, segment_layout_hash(kind)},
        {"size", h->bytes, file_bytes},
        {"boot generation", h->boot, boot ? boot : h->boot},
    };
    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        if (checks[i].found != checks[i].expected)
            return error_set(error, ERR_FAILED,
                             "%s segment: %s is %#" PRIx64 ", this program expects %#" PRIx64, name,
                             checks[i].what, checks[i].found, checks[i].expected);
    return 0;
}

int segment_attach(int fd, enum segment_kind kind, bool writable, uint64_t boot,
                   struct segment *out, struct error *error)
{
    const char *name = segment_name(kind);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "%s segment: descriptor %d", name, fd);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)PAGE_BYTES)
        return error_set(error, ERR_FAILED, "%s segment: descriptor %d is not a segment", name, fd);
    struct segment s = {
        .fd = fd, .kind = kind, .writable = writable, .bytes = (uint64_t)st.st_size};
    if (map(&s, error) != 0)
        return -1;
    if (check_head(s.base, kind, boot, s.bytes, error) != 0) {
        munmap(s.base, s.bytes);
        return -1;
    }
    *out = s;
    return 0;
}

int segment_reopen_readonly(int fd, struct error *error)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int copy = open(path, O_RDONLY | O_CLOEXEC);
    if (copy < 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot reopen %s", path);
    return copy;
}

void segment_detach(struct segment *segment)
{
    if (segment->base)
        munmap(segment->base, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    *segment = (struct segment){.fd = -1};
}

uint64_t segment_allocated_bytes(int fd)
{
    struct stat st;
    int rc = fstat(fd, &st);
    sl_assert(rc == 0); /* our own descriptor */
    return (uint64_t)st.st_blocks * 512;
}

int segment_punch(int fd, uint64_t offset, uint64_t bytes)
{
    sl_assert(offset % PAGE_BYTES == 0 && bytes % PAGE_BYTES == 0);
    while (bytes > 0) {
        uint64_t slice = bytes < PUNCH_SLICE_BYTES ? bytes : PUNCH_SLICE_BYTES;
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                      (off_t)slice) != 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        offset += slice;
        bytes -= slice;
    }
    return 0;
}

int segment_map(const struct segment *segment, uint64_t at, uint64_t bytes, uint64_t offset)
{
    sl_assert(segment->writable && at + bytes <= segment->bytes &&
              offset + bytes <= segment->bytes);
    void *address = (char *)segment->base + at;
    void *mapped = mmap(address, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE | MAP_FIXED, segment->fd, (off_t)offset);
    return mapped == address ? 0 : -errno;
}

/* A new mapping of the same pages in place of the old one, which takes its tables with it. */
void segment_free_tables(const struct segment *segment, uint64_t offset, uint64_t bytes)
{
    uintptr_t base = (uintptr_t)segment->base, from = align_up(base + offset, HUGE_PAGE_BYTES);
    uintptr_t to = (base + offset + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (from >= to)
        return;
    int rc = segment_map(segment, from - base, to - from, from - base);
    if (rc != 0) /* there may be no mapping at all now */
        sl_panic("cannot map the %s segment again: %s", segment_name(segment->kind), strerror(-rc));
}

int segment_allocate(int fd, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) { /* one call: tmpfs frees what it allocated when it fails */
        if (fallocate(fd, 0, (off_t)offset, (off_t)bytes) == 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}
