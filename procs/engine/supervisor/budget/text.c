/* SPDX-License-Identifier: Apache-2.0 */
/* Program text and libraries: page cache that exists because the engine runs, counted once per
 * file. Measured when every child is READY, from two tables of the kernel: which pages of which
 * files the processes have mapped (pagemap), and which of those, and of the pages that a fault
 * reads around them, are in memory (mincore). Library pages used only by other programs do not
 * count.
 *
 * Before that: a share of the size of our libraries and of the children's programs. */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/io/backends.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define FILES_MAX  64
#define LINE_BYTES (PATH_MAX + 128)
#define BATCH      512 /* page-map entries per read */

/* A fault that misses the page cache reads 128 KiB around it. */
#define AROUND_PAGES 16
#define PAGE_PRESENT (1ull << 63)

/* Libraries of children that the supervisor does not map: PCRE2, liburing. */
#define OTHER_LIBRARIES (704 * KIB)
/* Those of the gateway: the HTTP library and its TLS libraries, which are mostly unused.
 */
#define HTTP_LIBRARIES (2 * MIB)
/* Share of programs and libraries that the engine touches; measured: 65 to 75 %. */
#define TOUCHED_PERCENT 80

struct text_file {
    dev_t dev;
    ino_t ino;
    char path[256];
    uint64_t pages;
    unsigned char
        *ours; /* one byte per page: near a page that a process of the engine has mapped */
};

struct text_files {
    uint32_t count;
    struct text_file file[FILES_MAX];
};

struct range { /* one line of maps */
    uint64_t address, bytes, offset;
    char path[256];
};

/* Only ranges of files count, without the engine's segments. */
static bool parse(const char *line, struct range *r)
{
    uint64_t to, inode;
    int path_at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %*s %" SCNu64 " %n", &r->address,
               &to, &r->offset, &inode, &path_at) < 4 ||
        inode == 0 || path_at == 0)
        return false;
    const char *path = line + path_at;
    size_t n = strcspn(path, "\n");
    if (path[0] != '/' || n >= sizeof r->path || strncmp(path, "/dev/shm/", 9) == 0 ||
        strncmp(path, "/memfd:", 7) == 0)
        return false;
    memcpy(r->path, path, n);
    r->path[n] = 0;
    r->bytes = to - r->address;
    return true;
}

static struct text_file *file_of(struct text_files *files, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return NULL;
    for (uint32_t i = 0; i < files->count; i++)
        if (files->file[i].dev == st.st_dev && files->file[i].ino == st.st_ino)
            return &files->file[i];
    if (files->count == FILES_MAX)
        return NULL;
    struct text_file *f = &files->file[files->count];
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    strcpy(f->path, path);
    f->pages = align_up((uint64_t)st.st_size, PAGE_BYTES) / PAGE_BYTES;
    f->ours = calloc(f->pages, 1);
    if (!f->ours)
        return NULL;
    files->count++;
    return f;
}

static void mark(struct text_file *f, uint64_t page)
{
    uint64_t from = page > AROUND_PAGES ? page - AROUND_PAGES : 0;
    for (uint64_t i = from; i <= page + AROUND_PAGES && i < f->pages; i++)
        f->ours[i] = 1;
}

/* Without a page map (hardened kernels) every page of the range counts. */
static void add_range(struct text_files *files, const struct range *r, int pagemap)
{
    struct text_file *f = file_of(files, r->path);
    if (!f)
        return;
    uint64_t entry[BATCH], pages = r->bytes / PAGE_BYTES, first = r->offset / PAGE_BYTES;
    for (uint64_t at = 0; at < pages;) {
        uint64_t n = pages - at < BATCH ? pages - at : BATCH;
        off_t where = (off_t)((r->address / PAGE_BYTES + at) * sizeof entry[0]);
        bool known = pagemap >= 0 && pread(pagemap, entry, n * sizeof entry[0], where) ==
                                         (ssize_t)(n * sizeof entry[0]);
        for (uint64_t i = 0; i < n; i++)
            if (!known || (entry[i] & PAGE_PRESENT))
                mark(f, first + at + i);
        at += n;
    }
}

static void add_process(struct text_files *files, pid_t pid, bool whole)
{
    char path[48], line[LINE_BYTES];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return;
    snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
    int pagemap = whole ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    struct range range;
    while (fgets(line, sizeof line, maps))
        if (parse(line, &range))
            add_range(files, &range, pagemap);
    if (pagemap >= 0)
        close(pagemap);
    fclose(maps);
}

/* Pages of a file in memory that count for us. For files of other users the kernel reports all
 * pages, and all are counted. */
static uint64_t resident(const struct text_file *f)
{
    uint64_t found = 0;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    unsigned char *in_memory = malloc(f->pages);
    void *map =
        fd >= 0 ? mmap(NULL, f->pages * PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    bool known =
        in_memory && map != MAP_FAILED && mincore(map, f->pages * PAGE_BYTES, in_memory) == 0;
    for (uint64_t i = 0; i < f->pages; i++)
        found += f->ours[i] && (!known || (in_memory[i] & 1));
    if (map != MAP_FAILED)
        munmap(map, f->pages * PAGE_BYTES);
    free(in_memory);
    if (fd >= 0)
        close(fd);
    return found * PAGE_BYTES;
}

static uint64_t sum(struct supervisor *s, bool whole)
{
    struct text_files *files = calloc(1, sizeof *files);
    if (!files)
        return s->budget.facts.text_bytes;
    add_process(files, getpid(), whole);
    for (uint32_t i = 0; i < s->children_count; i++)
        if (s->children[i].pid > 0)
            add_process(files, s->children[i].pid, whole);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < files->count; i++) {
        struct text_file *f = &files->file[i];
        if (whole)
            for (uint64_t page = 0; page < f->pages; page++)
                bytes += f->ours[page] * (uint64_t)PAGE_BYTES;
        else
            bytes += resident(f);
        free(f->ours);
    }
    free(files);
    return bytes;
}

/* Of the loaders of servers, which share them. */
static uint64_t servers_text(const struct supervisor *s)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        const struct io_backend_info *server = storage_server(s, i);
        most = server && server->libraries_bytes > most ? server->libraries_bytes : most;
    }
    return most;
}

uint64_t measure_text(struct supervisor *s)
{
    return sum(s, false) + servers_text(s);
}

/* Starting a program reads ahead beyond the used code: debug sections, unused functions. Drops
 * pages that no process has mapped; the kernel keeps the others. */
void text_trim(const struct supervisor *s, const char *program)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", s->programs, program);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* Loadable bytes of a program, without its debug sections. */
static uint64_t loadable(const struct supervisor *s, const char *program)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", s->programs, program);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr head;
    uint64_t bytes = 0;
    if (fd >= 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        head.e_phentsize == sizeof(Elf64_Phdr))
        for (unsigned i = 0; i < head.e_phnum; i++) {
            Elf64_Phdr part;
            off_t at = (off_t)(head.e_phoff + i * sizeof part);
            if (pread(fd, &part, sizeof part, at) == (ssize_t)sizeof part && part.p_type == PT_LOAD)
                bytes += align_up(part.p_filesz, PAGE_BYTES);
        }
    if (fd >= 0)
        close(fd);
    return bytes + AROUND_PAGES * PAGE_BYTES;
}

uint64_t estimate_text(struct supervisor *s)
{
    uint64_t bytes = sum(s, true) + OTHER_LIBRARIES + (s->params.http[0] ? HTTP_LIBRARIES : 0);
    for (int service = SERVICE_SUPERVISOR + 1; service < SERVICE__COUNT; service++)
        if (service_count((enum service)service, &s->params) > 0)
            bytes += loadable(s, storage_program(s, (enum service)service, 0));
    return bytes / 100 * TOUCHED_PERCENT + servers_text(s);
}
