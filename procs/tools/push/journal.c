/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of what was sent (push.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "procs/tools/push/push.h"

#define LINE_BYTES 1024
#define HEAD       "sluice push 1 %016" PRIx64 "\n"

/* A word, at most `room` - 1 bytes of it; NULL: there is none. */
static char *word(char **line)
{
    char *at = *line + strspn(*line, " "), *end = at + strcspn(at, " ");
    *line = end + (*end == ' ');
    *end = 0;
    return *at ? at : NULL;
}

static struct push_record *record_of(struct push *p, const char *name)
{
    for (uint32_t i = 0; name && i < p->files; i++)
        if (strcmp(p->file[i].name, name) == 0)
            return &p->record[i];
    return NULL;
}

static bool keep(char *to, size_t room, const char *text)
{
    return text && strlen(text) < room && strcpy(to, text);
}

/* False: it is not a line of a journal. */
static bool take_line(struct push *p, char *line)
{
    char *what = word(&line), *name = word(&line), *first = word(&line), *second = word(&line);
    struct push_record *r = record_of(p, name);
    if (!what || !r || !first)
        return false;
    if (strcmp(what, "begin") == 0) {
        r->begun = keep(r->id, sizeof r->id, first);
        r->before = second ? strtoull(second, NULL, 16) : 0;
        r->done = false;
        memset(r->tag, 0, PUSH_PIECES_MAX * sizeof *r->tag);
        return r->begun;
    }
    if (!second)
        return false;
    if (strcmp(what, "piece") == 0) {
        unsigned long number = strtoul(first, NULL, 10);
        return number < PUSH_PIECES_MAX && keep(r->tag[number], sizeof *r->tag, second);
    }
    r->done = strcmp(what, "done") == 0;
    r->bytes = strtoull(first, NULL, 10);
    r->identity = strtoull(second, NULL, 16);
    return r->done;
}

/* Where the part that can be used ends. 0: nothing can. */
static off_t read_lines(struct push *p, FILE *file, const char *head)
{
    char line[LINE_BYTES];
    off_t end = 0;
    if (!fgets(line, sizeof line, file) || strcmp(line, head) != 0)
        return 0;
    for (end = (off_t)strlen(line); fgets(line, sizeof line, file);) {
        size_t n = strlen(line);
        if (n == 0 || line[n - 1] != '\n')
            break;
        line[n - 1] = 0;
        if (!take_line(p, line))
            break;
        end += (off_t)n;
    }
    return end;
}

static int failed(const struct push *p, int why, struct error *error)
{
    return error_set_errno(error, ERR_IO, why, "%.250s/" PUSH_JOURNAL, p->directory);
}

static int append(struct push *p, struct error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int append(struct push *p, struct error *error, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list values;
    va_start(values, format);
    int n = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    errno = ENOSPC;
    return n > 0 && (size_t)n < sizeof line && write(p->journal_fd, line, (size_t)n) == n
               ? 0
               : failed(p, errno, error);
}

static int make_records(struct push *p, struct error *error)
{
    for (uint32_t i = 0; i < p->files; i++) {
        p->record[i].tag = calloc(PUSH_PIECES_MAX, sizeof *p->record[i].tag);
        if (!p->record[i].tag)
            return error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    }
    return 0;
}

int journal_open(struct push *p, uint64_t key, struct error *error)
{
    char head[64];
    snprintf(head, sizeof head, HEAD, key);
    if (make_records(p, error) != 0)
        return -1;
    p->journal_fd =
        openat(p->dir_fd, PUSH_JOURNAL, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | O_NOFOLLOW, 0666);
    if (p->journal_fd < 0)
        return failed(p, errno, error);
    if (flock(p->journal_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(error, ERR_BUSY, "another program sends the store %.250s", p->directory);
    int copy = dup(p->journal_fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
    if (!file)
        return failed(p, errno, error);
    off_t end = read_lines(p, file, head);
    (void)fclose(file);
    if (ftruncate(p->journal_fd, end) != 0)
        return failed(p, errno, error);
    return end > 0 ? 0 : append(p, error, "%s", head);
}

int journal_begin(struct push *p, uint32_t file, const char *id, uint64_t before,
                  struct error *error)
{
    struct push_record *r = &p->record[file];
    r->begun = keep(r->id, sizeof r->id, id);
    r->before = before;
    return append(p, error, "begin %s %s %016" PRIx64 "\n", p->file[file].name, id, before);
}

int journal_piece(struct push *p, uint32_t file, uint32_t number, const char *tag,
                  struct error *error)
{
    strcpy(p->record[file].tag[number], tag);
    return append(p, error, "piece %s %" PRIu32 " %s\n", p->file[file].name, number, tag);
}

int journal_done(struct push *p, uint32_t file, uint64_t identity, struct error *error)
{
    struct push_record *r = &p->record[file];
    r->done = true;
    r->bytes = p->file[file].bytes;
    r->identity = identity;
    return append(p, error, "done %s %" PRIu64 " %016" PRIx64 "\n", p->file[file].name, r->bytes,
                  identity);
}

void journal_forget(struct push *p, uint32_t file)
{
    struct push_record *r = &p->record[file];
    r->done = r->begun = false;
    memset(r->tag, 0, PUSH_PIECES_MAX * sizeof *r->tag);
}

void journal_remove(struct push *p)
{
    (void)unlinkat(p->dir_fd, PUSH_JOURNAL, 0);
}
