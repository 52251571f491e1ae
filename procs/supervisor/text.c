/* Program text and libraries: page cache that exists because the engine runs, counted once per
 * file. Measured when every child is READY: which ranges of which files the processes map, and
 * which of those pages are in memory. Before that, what the files of the installed programs and our
 * own libraries could come to at most. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/supervisor/supervisor.h"

#define FILES_MAX 64
#define LINE_MAX_ (PATH_MAX + 128)
/* A fault reads ahead around it, past what is mapped. */
#define READ_AROUND (128 * KIB)

struct text_file {
    dev_t dev;
    ino_t ino;
    char path[256];
    uint64_t low, high; /* file range any process maps */
};

struct text_files {
    uint32_t count;
    struct text_file file[FILES_MAX];
};

/* One line of maps: only ranges of files count, and not those of the engine's own segments. */
static bool parse(const char *line, struct text_file *out)
{
    uint64_t from, to, offset, inode;
    unsigned major, minor;
    int path_at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %x:%x %" SCNu64 " %n", &from, &to,
               &offset, &major, &minor, &inode, &path_at) < 6 ||
        inode == 0 || path_at == 0)
        return false;
    const char *path = line + path_at;
    size_t n = strcspn(path, "\n");
    if (path[0] != '/' || n >= sizeof out->path || strncmp(path, "/dev/shm/", 9) == 0 ||
        strncmp(path, "/memfd:", 7) == 0)
        return false;
    memcpy(out->path, path, n);
    out->path[n] = 0;
    out->low = offset;
    out->high = offset + (to - from);
    return true;
}

static void add(struct text_files *files, const struct text_file *range)
{
    struct stat st;
    if (stat(range->path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    uint64_t high = range->high < (uint64_t)st.st_size ? range->high : (uint64_t)st.st_size;
    for (uint32_t i = 0; i < files->count; i++) {
        struct text_file *f = &files->file[i];
        if (f->dev != st.st_dev || f->ino != st.st_ino)
            continue;
        f->low = range->low < f->low ? range->low : f->low;
        f->high = high > f->high ? high : f->high;
        return;
    }
    if (files->count == FILES_MAX)
        return;
    struct text_file *f = &files->file[files->count++];
    *f = *range;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->high = high;
}

static void add_process(struct text_files *files, pid_t pid)
{
    char path[48], line[LINE_MAX_];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return;
    struct text_file range = {0};
    while (fgets(line, sizeof line, maps))
        if (parse(line, &range))
            add(files, &range);
    fclose(maps);
}

/* Pages of the range that are in memory. For files that are not ours the kernel says "all of
 * them": then they are counted as if they were. */
static uint64_t resident(const struct text_file *f)
{
    uint64_t low = align_down(f->low, PAGE_BYTES), bytes = align_up(f->high - low, PAGE_BYTES);
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return bytes;
    uint64_t pages = bytes / PAGE_BYTES, found = 0;
    unsigned char *seen = calloc(pages, 1);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)low);
    close(fd);
    if (seen && map != MAP_FAILED && mincore(map, bytes, seen) == 0)
        for (uint64_t i = 0; i < pages; i++)
            found += seen[i] & 1;
    else
        found = pages;
    if (map != MAP_FAILED)
        munmap(map, bytes);
    free(seen);
    return found * PAGE_BYTES;
}

uint64_t measure_text(struct supervisor *s)
{
    struct text_files *files = calloc(1, sizeof *files);
    if (!files)
        return s->budget.facts.text_bytes;
    add_process(files, getpid());
    for (uint32_t i = 0; i < s->children_count; i++)
        if (s->children[i].pid > 0)
            add_process(files, s->children[i].pid);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < files->count; i++) {
        struct stat st;
        const struct text_file *f = &files->file[i];
        uint64_t rest = stat(f->path, &st) == 0 && (uint64_t)st.st_size > f->high - f->low
                            ? (uint64_t)st.st_size - (f->high - f->low)
                            : 0;
        bytes += resident(f) + (rest < READ_AROUND ? rest : READ_AROUND);
    }
    free(files);
    return bytes;
}

/* Loadable part of a program file, as if it were all in memory: the ends of its sections are not
 * known without reading it, but text and data of a program of ours fit this. */
#define PROGRAM_TEXT_MAX (512 * KIB)
/* Libraries a child may map that the supervisor does not: liburing, PCRE2, xxHash. */
#define OTHER_LIBRARIES (900 * KIB)

uint64_t estimate_text(struct supervisor *s)
{
    return measure_text(s) + (uint64_t)(SERVICE__COUNT - 1) * PROGRAM_TEXT_MAX + OTHER_LIBRARIES;
}
