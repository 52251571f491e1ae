/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the index of a model file or store, maps it, and answers questions about its entries. */
#include "lib/model/index/model_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/model/chat/format.h"
#include "lib/model/gguf/split.h"
#include "lib/model/index/derive.h"
#include "lib/model/index/gap/gap.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/tensor/precision.h"
#include "lib/text/printable.h"
#include "lib/text/utf8.h"

#define PATH_SHOWN_MIN 20 /* of the path in an error: its end */

/* State of a build; freed together. */
struct build {
    struct gguf gguf;
    const struct index_experts *experts; /* from a store; NULL: tensors of the file */
    struct model_stripe *parts;          /* of a split file; NULL: it is not */
    struct index_derived *derived;
    void *tokenizer;
    size_t tokenizer_bytes;
    const char *template, *tools_template; /* of the chat, in the header */
    size_t template_bytes, tools_template_bytes;
};

static void copy_name(char *to, size_t cap, const char *text, size_t bytes)
{
    size_t n = bytes < cap - 1 ? bytes : cap - 1;
    if (n < bytes) /* do not cut a character */
        n = utf8_complete_prefix(text, n);
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
}

static int read_arch(const struct gguf *g, const struct arch **arch, struct error *error)
{
    const char *name;
    size_t bytes;
    int found = gguf_get_string(g, "general.architecture", &name, &bytes, error);
    if (found < 0)
        return -1;
    if (!found)
        return error_set(error, ERR_BAD_INPUT, "key 'general.architecture' is missing");
    *arch = arch_find(name, bytes);
    return *arch ? 0 : arch_reject(g, name, bytes, error);
}

/* Computes the offsets of the parts from the counts. */
static void lay_out(struct model_index *m)
{
    m->tensors_offset = align_up(sizeof *m, 64);
    m->entries_offset =
        align_up(m->tensors_offset + m->tensor_count * sizeof(struct model_tensor), 64);
    m->checksums_offset =
        align_up(m->entries_offset + m->entry_count * sizeof(struct model_entry), 64);
    m->stripes_offset = align_up(m->checksums_offset + m->checksum_count * sizeof(uint64_t), 64);
    m->tokenizer_offset = align_up(m->stripes_offset + ((uint64_t)m->stripe_count + m->part_count) *
                                                           sizeof(struct model_stripe),
                                   64);
    m->template_offset = align_up(m->tokenizer_offset + m->tokenizer_bytes, 64);
    m->tools_template_offset = align_up(m->template_offset + m->template_bytes, 64);
    m->bytes = align_up(m->tools_template_offset + m->tools_template_bytes, 64);
}

static void fill_experts(struct model_index *m, const struct index_experts *x)
{
    uint32_t grids = model_experts_end(m) - m->dense_count;
    memcpy((char *)m + m->entries_offset + m->dense_count * sizeof *x->entries, x->entries,
           grids * sizeof *x->entries);
    memcpy((char *)m + m->checksums_offset, x->checksums, m->checksum_count * sizeof(uint64_t));
    memcpy((char *)m + m->stripes_offset, x->stripes,
           (m->stripe_count + m->part_count) * sizeof *x->stripes);
}

/* Allocates and fills the index. Everything in `b` has been checked. */
static struct model_index *assemble(const struct build *b, const struct arch *arch,
                                    const struct model_hparams *hparams,
                                    const struct model_file_id *file)
{
    const struct index_derived *d = b->derived;
    const struct gguf *g = &b->gguf;
    const struct index_experts *x = b->experts;
    struct model_index head = {.magic = MODEL_INDEX_MAGIC,
                               .version = MODEL_INDEX_VERSION,
                               .layout_hash = index_layout_hash(),
                               .file = *file,
                               .hparams = *hparams,
                               .tensor_count = g->tensor_count,
                               .entry_count = d->entry_count,
                               .dense_count = d->dense_count,
                               .precision_mask = x ? x->precision_mask : 1u << PRECISION_NATIVE,
                               .stripe_count = x ? x->stripe_count : 0,
                               .part_count = x          ? x->part_count
                                             : b->parts ? g->part_count
                                                        : 0,
                               .checksum_count = x ? x->checksum_count : 0,
                               .page_count = d->page_count,
                               .tokenizer_bytes = b->tokenizer_bytes,
                               .template_bytes = b->template_bytes,
                               .tools_template_bytes = b->tools_template_bytes,
                               .dense_bytes = d->dense_bytes};
    if (x) {
        head.entry_count +=
            (uint32_t)__builtin_popcount(x->precision_mask) * hparams->layers * hparams->experts;
        memcpy(head.precision_method, x->precision_method, sizeof head.precision_method);
    }
    head.entry_count += d->page_count;
    lay_out(&head);
    struct model_index *m = calloc(1, head.bytes);
    if (!m)
        return NULL;
    *m = head;
    m->hparams.tied_output = d->tied_output;
    copy_name(m->arch, sizeof m->arch, arch->name, strlen(arch->name));
    memcpy(m->dense_entry, d->dense_entry, sizeof m->dense_entry);
    memcpy(m->layer, d->layer, sizeof m->layer);
    memcpy((char *)m + m->tensors_offset, g->tensors, g->tensor_count * sizeof *g->tensors);
    struct model_entry *entries = (struct model_entry *)(void *)((char *)m + m->entries_offset);
    for (uint32_t i = 0; i < d->entry_count; i++)
        index_entry(d, hparams, g->tensors, i, &entries[i]);
    if (x)
        fill_experts(m, x);
    for (uint32_t i = model_experts_end(m); i < m->entry_count; i++)
        index_page_entry(d, hparams, g->tensors, &entries[i]);
    if (b->parts)
        memcpy((char *)m + m->stripes_offset, b->parts, g->part_count * sizeof *b->parts);
    index_totals(m, entries);
    memcpy((char *)m + m->tokenizer_offset, b->tokenizer, b->tokenizer_bytes);
    if (b->template_bytes > 0)
        memcpy((char *)m + m->template_offset, b->template, b->template_bytes);
    if (b->tools_template_bytes > 0)
        memcpy((char *)m + m->tools_template_offset, b->tools_template, b->tools_template_bytes);
    return m;
}

/* A token as written in the vocabulary; "" if it is too long. */
static void copy_token(const struct build *b, uint64_t id, char to[CHAT_TOKEN_BYTES])
{
    const struct tokenizer_blob *blob = b->tokenizer;
    size_t n = 0;
    const char *piece = id < blob->vocab ? blob_piece(blob, (uint32_t)id, &n) : "";
    if (n < CHAT_TOKEN_BYTES)
        copy_name(to, CHAT_TOKEN_BYTES, piece, n);
}

/* Fills the chat format. A template that is not a string is ignored, not a reason to reject a
 * model. */
static void read_chat(const struct build *b, struct model_chat *chat)
{
    const struct tokenizer_blob *blob = b->tokenizer;
    const char *text;
    size_t bytes;
    uint64_t bos;
    if (gguf_get_string(&b->gguf, "tokenizer.chat_template", &text, &bytes, NULL) != 1)
        return;
    chat->family = chat_recognise(text, bytes);
    if (blob->eos != TOKEN_NONE)
        copy_token(b, blob->eos, chat->eos);
    if (gguf_get_uint(&b->gguf, "tokenizer.ggml.bos_token_id", &bos, NULL) == 1)
        copy_token(b, bos, chat->bos);
    /* Only if the tokenizer does not add bos: the prompt must have one. chat->bos is set in any
     * case, because some formats also have bos between messages. */
    chat->bos_added = blob->bos != TOKEN_NONE;
    chat->bos_first =
        chat->bos[0] && blob->bos == TOKEN_NONE && memmem(text, bytes, "bos_token", 9);
}

/* Checks that the model file is the model of the manifest. */
static int match_store(const struct index_experts *x, const struct arch *arch,
                       const struct model_hparams *h, struct error *error)
{
    if (strcmp(x->arch, arch->name) != 0)
        return error_set(error, ERR_BAD_INPUT, "architecture %s, but %s in the manifest",
                         arch->name, x->arch);
    if (x->layers != h->layers || x->experts != h->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu32 " layers of %" PRIu32 " experts, the manifest has %" PRIu32
                         " of %" PRIu32,
                         h->layers, h->experts, x->layers, x->experts);
    return 0;
}

/* A template of at most `max` bytes. Returns why it cannot be one; *bytes == 0 unless it is one. */
static const char *read_template(const struct gguf *g, const char *key, size_t max,
                                 const char **text, size_t *bytes)
{
    const char *why = NULL;
    size_t n = 0;
    int found = gguf_get_string(g, key, text, &n, NULL);
    *bytes = 0;
    if (found < 0)
        why = "is no text";
    else if (found == 1 && n > max)
        why = max == CHAT_TEMPLATE_BYTES_MAX ? "is longer than 256 KiB"
                                             : "is longer than 256 KiB with the other one";
    else if (found == 1 && (memchr(*text, 0, n) || !utf8_valid(*text, n)))
        why = "is not UTF-8";
    if (!why && found == 1)
        *bytes = n;
    return why;
}

/* The chat templates; what cannot be one leaves the model's family, or for tools the other one, and
 * is reported once, where the file is parsed. */
static void read_templates(struct build *b)
{
    const char *text;
    size_t bytes;
    const char *why = read_template(&b->gguf, "tokenizer.chat_template", CHAT_TEMPLATE_BYTES_MAX,
                                    &b->template, &b->template_bytes);
    if (why)
        log_warn(
            "tokenizer.chat_template %s: conversations have the form of the family '%s'", why,
            chat_name(gguf_get_string(&b->gguf, "tokenizer.chat_template", &text, &bytes, NULL) == 1
                          ? chat_recognise(text, bytes)
                          : CHAT_PLAIN));
    if (b->template_bytes == 0)
        return;
    why = read_template(&b->gguf, "tokenizer.chat_template.tool_use",
                        CHAT_TEMPLATE_BYTES_MAX - b->template_bytes, &b->tools_template,
                        &b->tools_template_bytes);
    if (why)
        log_warn("tokenizer.chat_template.tool_use %s: conversations with tools have the other "
                 "template",
                 why);
}

static int build_from_header(struct build *b, const struct model_file_id *file,
                             struct model_index **index, struct error *error)
{
    const struct gguf *g = &b->gguf;
    const struct arch *arch;
    struct model_hparams hparams;
    if ((g->part_count == 0 && gguf_check_whole(g, error)) || read_arch(g, &arch, error))
        return -1;
    uint32_t tokens;
    if (tokenizer_blob_build(g, &b->tokenizer, &b->tokenizer_bytes, &tokens, error))
        return -1;
    if (arch_read_hparams(arch, g, tokens, &hparams, error))
        return -1;
    if (b->experts && match_store(b->experts, arch, &hparams, error))
        return -1;
    b->derived = malloc(sizeof *b->derived);
    if (!b->derived)
        return error_set(error, ERR_NO_MEMORY, "out of memory (index)");
    if (index_derive(arch, &hparams, g->tensors, g->tensor_count,
                     b->experts ? INDEX_STORE
                     : b->parts ? INDEX_SPLIT
                                : INDEX_GGUF,
                     b->derived, error))
        return -1;
    const char *name;
    size_t name_bytes;
    int named = gguf_get_string(g, "general.name", &name, &name_bytes, error);
    if (named < 0)
        return -1;
    read_templates(b);
    struct model_index *m = assemble(b, arch, &hparams, file);
    if (!m)
        return error_set(error, ERR_NO_MEMORY, "out of memory (index)");
    if (named)
        copy_name(m->name, sizeof m->name, name, name_bytes);
    read_chat(b, &m->chat);
    index_gap(&b->gguf, b->tokenizer, &m->chat);
    if (b->experts && index_experts_check(m, error)) {
        free(m);
        return -1;
    }
    index_report_unread(g, m);
    *index = m;
    return 0;
}

int index_build_store(const struct gguf_source *source, const struct model_file_id *file,
                      const struct index_experts *experts, struct model_index **index,
                      struct error *error)
{
    struct build b = {.experts = experts};
    if (gguf_open(&b.gguf, source, error))
        return -1;
    int status = build_from_header(&b, file, index, error);
    gguf_close(&b.gguf);
    free(b.derived);
    free(b.tokenizer);
    return status;
}

int model_index_build_source(const struct gguf_source *source, const struct model_file_id *file,
                             struct model_index **index, struct error *error)
{
    return index_build_store(source, file, NULL, index, error);
}

int index_file_id(int fd, struct model_file_id *id, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat the file");
    if (S_ISDIR(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "a directory, not a model file");
    if (!S_ISREG(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "not a regular file");
    *id = (struct model_file_id){
        .dev = st.st_dev,
        .ino = st.st_ino,
        .bytes = (uint64_t)st.st_size,
        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
    };
    return 0;
}

int model_file_unchanged(int fd, const struct model_file_id *id, struct error *error)
{
    struct model_file_id now = {0};
    if (index_file_id(fd, &now, error))
        return -1;
    const char *what = now.dev != id->dev || now.ino != id->ino ? "was replaced by another file"
                       : now.bytes != id->bytes                 ? "changed its size"
                       : now.mtime_ns != id->mtime_ns           ? "was written to"
                                                                : NULL;
    return what ? error_set(error, ERR_GONE, "the model file %s since it was inspected", what) : 0;
}

/* Without read-ahead, only the header's pages enter the page cache, which is charged to the budget;
 * they are dropped afterwards, others are not. Both are only advice: errors are ignored. */
static void start_reading(int fd)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
}

static void end_reading(int fd, uint64_t end)
{
    if (end > 0) /* a length of 0 is the whole file */
        (void)posix_fadvise(fd, 0, (off_t)align_up(end, PAGE_BYTES), POSIX_FADV_DONTNEED);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
}

int index_build_fd(int fd, const struct index_experts *experts, struct model_index **index,
                   struct error *error)
{
    struct model_file_id id;
    if (index_file_id(fd, &id, error))
        return -1;
    struct gguf_reader reader = {.fd = fd};
    struct gguf_source source = {
        .read = gguf_read, .arg = &reader, .bytes = id.bytes, .own_types = true};
    start_reading(fd);
    int status = index_build_store(&source, &id, experts, index, error);
    end_reading(fd, reader.end);
    if (status == 0 && model_file_unchanged(fd, &id, error)) {
        free(*index);
        *index = NULL;
        return -1;
    }
    return status;
}

int model_open(const char *path, int flags, struct error *error)
{
    char first[PATH_MAX];
    int n = snprintf(first, sizeof first, "%s", path), fd = -1;
    errno = ENAMETOOLONG;
    if (n >= 0 && n < (int)sizeof first) {
        gguf_first_part(first);
        fd = open(first, O_RDONLY | O_CLOEXEC | flags);
    }
    int why = errno;
    if (fd < 0)
        error_set_errno(error, ERR_BAD_INPUT, why, "cannot open %.250s", first);
    errno = why;
    return fd;
}

/* Before anything is read. gguf_open_parts reports what is wrong with a file that is needed. */
static int identify_parts(struct model_stripe *files, const struct gguf_parts *p, uint32_t count,
                          struct error *error)
{
    if (index_file_id(p->fd[0], &files[0].file, error))
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        (void)index_file_id(p->fd[i], &files[i].file, NULL);
        memcpy(files[i].path, p->path[i], sizeof files[i].path);
    }
    return 0;
}

static int build_parts(struct build *b, struct gguf_parts *p, struct model_stripe *files,
                       struct model_index **index, struct error *error)
{
    if (gguf_open_parts(&b->gguf, p, false, error))
        return -1;
    b->parts = b->gguf.part_count > 1 ? files : NULL;
    int status = build_from_header(b, &files[0].file, index, error);
    for (uint32_t i = 0; i < b->gguf.part_count && status == 0; i++)
        status = model_file_unchanged(p->fd[i], &files[i].file, error);
    gguf_close(&b->gguf);
    free(b->derived);
    free(b->tokenizer);
    if (status == 0)
        return 0;
    free(*index);
    *index = NULL;
    return -1;
}

int model_index_build_parts(struct gguf_parts *p, struct model_index **index, struct error *error)
{
    struct error inner = {0};
    struct build b = {0};
    uint32_t count = p->count < MODEL_PARTS_MAX ? p->count : MODEL_PARTS_MAX;
    *index = NULL;
    struct model_stripe *files = calloc(count, sizeof *files);
    if (!files)
        return error_set(error, ERR_NO_MEMORY, "out of memory (parts)");
    int status = identify_parts(files, p, count, &inner);
    if (status == 0) {
        for (uint32_t i = 0; i < count; i++)
            start_reading(p->fd[i]);
        status = build_parts(&b, p, files, index, &inner);
        for (uint32_t i = 0; i < count; i++)
            end_reading(p->fd[i], p->read_to[i]);
    }
    free(files);
    if (status == 0)
        return 0;
    /* Long paths are cut at the start: the end is more informative, and the cause must fit. */
    const char *path = p->path[0];
    size_t n = strlen(path), taken = strlen(inner.text) + sizeof "...: ";
    size_t space = taken < sizeof inner.text ? sizeof inner.text - taken : 0;
    size_t shown = space < PATH_SHOWN_MIN ? PATH_SHOWN_MIN : space > 120 ? 120 : space;
    return error_set(error, inner.code, "%s%s: %s", n > shown ? "..." : "",
                     path + (n > shown ? n - shown : 0), inner.text);
}

int model_index_build(int fd, const char *path, struct model_index **index, struct error *error)
{
    struct gguf_parts *p = malloc(sizeof *p);
    if (!p)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    gguf_parts_open(p, fd, path);
    int status = model_index_build_parts(p, index, error);
    gguf_parts_close(p);
    free(p);
    return status;
}

/* The single extent of a store's entry is in all stripes at the same offset, or in one stripe. */
static uint32_t store_shard(const struct model_entry *entry, uint32_t shard, uint32_t shards,
                            struct model_extent out[ENTRY_EXTENTS_MAX])
{
    const struct model_extent *x = &entry->extent[0];
    uint64_t pages = entry->slot_bytes / PAGE_BYTES;
    uint64_t each = model_stripe_pages(pages, shards), first = shard * each;
    if (entry->only_stripe != 0) {
        each = pages;
        first = shard + 1 == entry->only_stripe ? 0 : pages;
    }
    if (entry->extents == 0 || first >= pages)
        return 0;
    uint64_t count = pages - first < each ? pages - first : each;
    out[0] = (struct model_extent){
        .file_offset = x->file_offset,
        .read_bytes = count * PAGE_BYTES,
        .slot_offset = first * PAGE_BYTES,
    };
    return 1;
}

/* Those of a split model that are in its part. */
static uint32_t own_extents(const struct model_entry *entry, uint32_t shard,
                            struct model_extent out[ENTRY_EXTENTS_MAX])
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < entry->extents; i++) {
        const struct model_extent *x = &entry->extent[i];
        if (x->part == shard)
            out[runs++] = (struct model_extent){.file_offset = x->file_offset,
                                                .read_bytes = x->read_bytes,
                                                .slot_offset = x->slot_offset};
    }
    return runs;
}

uint32_t model_entry_shard(const struct model_entry *entry, uint32_t shard, uint32_t shards,
                           struct model_extent out[ENTRY_EXTENTS_MAX])
{
    sl_assert(shards > 0 && shard < shards);
    if (entry->in_store)
        return store_shard(entry, shard, shards, out);
    if (entry->in_parts)
        return own_extents(entry, shard, out);
    uint64_t pages = entry->slot_bytes / PAGE_BYTES;
    uint64_t each = pages / shards,
             more = pages % shards; /* the first `more` shards get one more */
    uint64_t first = shard * each + (shard < more ? shard : more);
    uint64_t start = first * PAGE_BYTES;
    uint64_t end = (first + each + (shard < more)) * PAGE_BYTES;
    uint32_t runs = 0;
    for (uint32_t i = 0; i < entry->extents; i++) {
        const struct model_extent *x = &entry->extent[i];
        uint64_t from = x->slot_offset > start ? x->slot_offset : start;
        uint64_t to = x->slot_offset + x->read_bytes < end ? x->slot_offset + x->read_bytes : end;
        if (from >= to)
            continue;
        out[runs++] = (struct model_extent){
            .file_offset = x->file_offset + (from - x->slot_offset),
            .read_bytes = to - from,
            .slot_offset = from,
        };
    }
    return runs;
}

uint32_t model_page_shard(const struct model_index *m, uint32_t page, uint32_t shard,
                          uint32_t shards, struct model_extent out[ENTRY_EXTENTS_MAX])
{
    uint32_t pages = model_table_pages(m);
    sl_assert(shard < shards && page < pages);
    const struct model_entry *table = &model_index_entries(m)[model_table_entry(m)];
    if (shard != (table->in_parts ? table->extent[0].part : page % shards))
        return 0;
    out[0] = (struct model_extent){.file_offset =
                                       table->extent[0].file_offset + (uint64_t)page * PAGE_BYTES,
                                   .read_bytes = PAGE_BYTES};
    return 1;
}
