/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads files of recorded log-probabilities, and NumPy files of logits. */
#include "lib/offline/measure/logits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/file/replace.h"

#define FILE_MAGIC 0x4c4f4754u
#define STEPS      65535
#define NPY_HEADER 128
#define NPY_TEXT   10 /* offset of the text of NumPy's header */

struct row_head {
    float top, step;
};

struct logits_file {
    uint32_t magic;
    int fd;
    bool writing;
    bool npy; /* rows are floats, after header_bytes of NumPy's header */
    struct logits_header h;
    atomic_int failed; /* errno of the first row that could not be written */
    char path[PATH_MAX], temporary[PATH_MAX + 8];
};

static struct logits_file *make(const char *path, struct error *error)
{
    struct logits_file *f = calloc(1, sizeof *f);
    if (!f) {
        error_set(error, ERR_NO_MEMORY, "out of memory (recorded logits)");
        return NULL;
    }
    f->magic = FILE_MAGIC;
    f->fd = -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) < (int)sizeof f->path) {
        snprintf(f->temporary, sizeof f->temporary, "%s.part", path);
        return f;
    }
    free(f);
    error_set(error, ERR_BAD_INPUT, "the file name of the recorded logits is too long");
    return NULL;
}

static off_t row_at(const struct logits_file *f, uint32_t window, uint32_t row)
{
    sl_assert(window < f->h.windows && row < f->h.scored);
    return (off_t)(f->h.header_bytes + ((uint64_t)window * f->h.scored + row) * f->h.row_bytes);
}

static uint64_t row_bytes_of(uint32_t vocab)
{
    return sizeof(struct row_head) + (uint64_t)vocab * sizeof(uint16_t);
}

/* ---- writing ---- */

static int write_all(int fd, const void *from, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)from + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        done += (size_t)n;
    }
    return 0;
}

static int open_new(struct logits_file *f, const void *header, size_t bytes, struct error *error)
{
    f->fd = open(f->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int why = f->fd < 0 ? errno : write_all(f->fd, header, bytes, 0);
    return why == 0 ? 0
                    : error_set_errno(error, f->fd < 0 ? ERR_BAD_INPUT : ERR_IO, why,
                                      "cannot write %.200s", f->temporary);
}

/* Magic, version 1.0, length of the text, and the text: padded with blanks to NPY_HEADER bytes in
 * all. */
static void npy_header(const struct logits_header *h, char out[NPY_HEADER])
{
    static const char magic[] = "\x93NUMPY\x01";
    const uint16_t text_bytes = NPY_HEADER - NPY_TEXT;
    memset(out, ' ', NPY_HEADER);
    memcpy(out, magic, sizeof magic); /* with the 0 of the version */
    memcpy(out + sizeof magic, &text_bytes, sizeof text_bytes);
    int n = snprintf(out + NPY_TEXT, text_bytes,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%u, %u, %u), }",
                     h->windows, h->scored, h->vocab);
    sl_assert(n > 0 && n < text_bytes);
    out[NPY_TEXT + n] = ' ';
    out[NPY_HEADER - 1] = '\n';
}

struct logits_file *logits_create_npy(const char *path, const struct offline_text *text,
                                      uint32_t vocab, struct error *error)
{
    char header[NPY_HEADER];
    struct logits_file *f = make(path, error);
    if (!f)
        return NULL;
    f->writing = f->npy = true;
    f->h = (struct logits_header){.header_bytes = NPY_HEADER,
                                  .vocab = vocab,
                                  .windows = text->windows,
                                  .scored = text->window - 1,
                                  .row_bytes = (uint64_t)vocab * sizeof(float)};
    npy_header(&f->h, header);
    if (open_new(f, header, sizeof header, error) == 0)
        return f;
    logits_close(f);
    return NULL;
}

struct logits_file *logits_create(const char *path, const struct offline_text *text, uint32_t vocab,
                                  const uint8_t model_hash[PLAN_HASH_BYTES], struct error *error)
{
    struct logits_file *f = make(path, error);
    if (!f)
        return NULL;
    f->writing = true;
    f->h = (struct logits_header){.magic = LOGITS_MAGIC,
                                  .version = LOGITS_VERSION,
                                  .header_bytes = sizeof f->h,
                                  .vocab = vocab,
                                  .window = text->window,
                                  .windows = text->windows,
                                  .scored = text->window - 1,
                                  .row_bytes = row_bytes_of(vocab),
                                  .text_hash = text->hash};
    memcpy(f->h.model_hash, model_hash, sizeof f->h.model_hash);
    if (open_new(f, &f->h, sizeof f->h, error) == 0)
        return f;
    logits_close(f);
    return NULL;
}

/* Log-probabilities as steps below the largest. */
static void pack(const float *logits, uint32_t vocab, struct row_head *head, uint16_t *below)
{
    float max = logits[0], min = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        max = logits[i] > max ? logits[i] : max;
        min = logits[i] < min ? logits[i] : min;
    }
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    head->top = (float)-log(sum);
    head->step = (max - min) / STEPS;
    for (uint32_t i = 0; i < vocab; i++) {
        float steps = head->step > 0 ? (max - logits[i]) / head->step : 0;
        below[i] = (uint16_t)(steps < STEPS ? lrintf(steps) : STEPS);
    }
}

void logits_write(struct logits_file *f, uint32_t window, uint32_t row, const float *logits)
{
    OBJ_CHECK(f, FILE_MAGIC);
    sl_assert(f->writing);
    char *bytes = f->npy ? NULL : malloc(f->h.row_bytes);
    int why = ENOMEM;
    if (f->npy) {
        why = write_all(f->fd, logits, f->h.row_bytes, row_at(f, window, row));
    } else if (bytes) {
        struct row_head head;
        pack(logits, f->h.vocab, &head, (uint16_t *)(void *)(bytes + sizeof head));
        memcpy(bytes, &head, sizeof head);
        why = write_all(f->fd, bytes, f->h.row_bytes, row_at(f, window, row));
    }
    free(bytes);
    int none = 0;
    if (why != 0)
        atomic_compare_exchange_strong(&f->failed, &none, why);
}

int logits_commit(struct logits_file *f, struct error *error)
{
    OBJ_CHECK(f, FILE_MAGIC);
    int why = atomic_load(&f->failed);
    if (why == 0)
        why = file_replace(f->temporary, f->path, true);
    if (why != 0)
        return error_set_errno(error, ERR_IO, why, "cannot write %.200s", f->path);
    f->writing = false;
    return 0;
}

/* ---- reading ---- */

static const char *header_wrong(const struct logits_header *h, const struct offline_text *text,
                                uint32_t vocab, uint64_t bytes)
{
    if (h->magic != LOGITS_MAGIC || h->version != LOGITS_VERSION || h->header_bytes != sizeof *h)
        return "is not a logits record of a supported version";
    if (h->vocab != vocab)
        return "was recorded with another vocabulary";
    if (h->window != text->window)
        return "was recorded with another --ctx-size";
    if (h->text_hash != text->hash || h->windows != text->windows || h->scored != text->window - 1)
        return "was recorded for another text";
    if (h->row_bytes != row_bytes_of(vocab) ||
        bytes != sizeof *h + (uint64_t)h->windows * h->scored * h->row_bytes)
        return "does not have the size in its header";
    return NULL;
}

static int read_all(int fd, void *to, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        done += (size_t)n;
    }
    return 0;
}

static int check(struct logits_file *f, const struct offline_text *text, uint32_t vocab,
                 struct error *error)
{
    struct stat st;
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", f->path);
    const char *wrong = "is not a logits record";
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size >= sizeof f->h) {
        int why = read_all(f->fd, &f->h, sizeof f->h, 0);
        if (why != 0)
            return error_set_errno(error, ERR_IO, why, "cannot read %.200s", f->path);
        wrong = header_wrong(&f->h, text, vocab, (uint64_t)st.st_size);
    }
    return wrong ? error_set(error, ERR_BAD_INPUT, "%.200s %s", f->path, wrong) : 0;
}

struct logits_file *logits_open(const char *path, const struct offline_text *text, uint32_t vocab,
                                struct error *error)
{
    struct logits_file *f = make(path, error);
    if (!f)
        return NULL;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (check(f, text, vocab, error) == 0)
        return f;
    logits_close(f);
    return NULL;
}

int logits_read(struct logits_file *f, uint32_t window, uint32_t row, float *log_p,
                struct error *error)
{
    OBJ_CHECK(f, FILE_MAGIC);
    sl_assert(!f->writing);
    char *bytes = malloc(f->h.row_bytes);
    if (!bytes)
        return error_set(error, ERR_NO_MEMORY, "out of memory (recorded logits)");
    struct row_head head = {0};
    int why = read_all(f->fd, bytes, f->h.row_bytes, row_at(f, window, row));
    if (why == 0)
        memcpy(&head, bytes, sizeof head);
    const uint16_t *below = (const uint16_t *)(const void *)(bytes + sizeof head);
    bool sound =
        why == 0 && head.top <= 0 && head.top >= -1e6f && head.step >= 0 && head.step <= 1e3f;
    for (uint32_t i = 0; sound && i < f->h.vocab; i++)
        log_p[i] = head.top - head.step * (float)below[i];
    free(bytes);
    if (why != 0)
        return error_set_errno(error, ERR_IO, why, "cannot read %.200s", f->path);
    if (!sound)
        return error_set(error, ERR_BAD_INPUT, "%.200s is damaged: row %u of window %u", f->path,
                         row, window);
    return 0;
}

void logits_close(struct logits_file *f)
{
    if (!f)
        return;
    OBJ_CHECK(f, FILE_MAGIC);
    if (f->fd >= 0)
        close(f->fd);
    if (f->writing && f->fd >= 0)
        unlink(f->temporary);
    f->magic = 0;
    free(f);
}
