/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the journal of an interrupted pack. Input: one byte of flags, then the bytes of the
 * journal. Flags: the header is that of this job (1); each whole record ends with the right
 * checksum (2); the first record's parts have the checksums of what is in the stripes (4). Resuming
 * never fails, takes a unit only if its bytes match, and leaves whole records. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "procs/tools/pack/pack.h"
#include "tests/fuzz/fuzz_file.h"

#define HEAD_BYTES   56 /* struct journal_head (32 bytes), struct journal_model */
#define LAYERS       2
#define EXPERTS      2
#define STRIPES      2
#define RECORD_WORDS (2 + STRIPES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pack pack;
static struct model_index model = {.hparams = {.layers = LAYERS, .experts = EXPERTS}};
static struct store_group group;
static char stripe_path[STRIPES][PATH_MAX];

static void remove_directory(void)
{
    for (uint32_t s = 0; s < STRIPES; s++)
        unlink(stripe_path[s]);
    unlinkat(pack.dir_fd, STORE_JOURNAL_FILE, 0);
    rmdir(pack.dir);
}

static void make_group(void)
{
    group.last_layer = LAYERS - 1;
    for (uint32_t m = 0; m < EXPERT__COUNT; m++)
        group.matrix[m] = (struct model_matrix){.type = TENSOR_F32, .k = 32, .n = 32};
    sl_assert(store_group_layout(&group));
}

/* A store of two layers with two experts each in two stripes, all bytes of which are 0. */
static void make_pack(void)
{
    struct store_manifest *m = &pack.manifest;
    pack.source.index = &model;
    snprintf(pack.dir, sizeof pack.dir, "/dev/shm/sluice-fuzz-journal.XXXXXX");
    sl_assert(mkdtemp(pack.dir));
    pack.dir_fd = open(pack.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_group();
    *m = (struct store_manifest){.arch = "fuzz",
                                 .layers = LAYERS,
                                 .experts = EXPERTS,
                                 .stripe_count = STRIPES,
                                 .precision_count = 1,
                                 .precision_mask = 1,
                                 .group_count = 1,
                                 .groups = &group};
    m->precision[0].group_count = 1;
    pack.table = store_table_new(m);
    pack.expert_count = LAYERS * EXPERTS;
    pack.done = calloc(pack.expert_count, sizeof *pack.done);
    pack.file_count = STRIPES;
    sl_assert(pack.table && pack.done);
    for (uint32_t s = 0; s < STRIPES; s++) {
        snprintf(stripe_path[s], PATH_MAX, "%s/%u", pack.dir, s);
        pack.file_path[s] = stripe_path[s];
        int fd = open(stripe_path[s], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        sl_assert(fd >= 0 && ftruncate(fd, (off_t)m->stripe[s].bytes) == 0);
        close(fd);
    }
    atexit(remove_directory);
}

static uint64_t checksum_of_zeros(uint64_t bytes)
{
    void *zeros = calloc(1, bytes);
    uint64_t sum = XXH3_64bits(zeros, bytes);
    free(zeros);
    return sum;
}

/* Makes the input's records as its flags ask. */
static void make_right(uint8_t flags, uint64_t *records, size_t count)
{
    uint64_t part = store_shard_pages(&pack.manifest, group.slot_pages) * PAGE_BYTES;
    uint64_t last = group.slot_pages * PAGE_BYTES - part;
    if (count > 0 && (flags & 4)) {
        records[0] %= pack.expert_count + 1;
        records[1] = checksum_of_zeros(part);
        records[2] = last ? checksum_of_zeros(last) : 0;
    }
    for (size_t i = 0; (flags & 2) && i < count; i++) {
        uint64_t *record = records + i * RECORD_WORDS;
        record[RECORD_WORDS - 1] = XXH3_64bits(record, 8 * (RECORD_WORDS - 1));
    }
}

static void write_journal(uint8_t flags, const uint8_t *data, size_t size)
{
    struct error error = {0};
    size_t records = size > HEAD_BYTES ? (size - HEAD_BYTES) / (8 * RECORD_WORDS) : 0;
    uint8_t *bytes = malloc(size + 1);
    uint64_t *copy = malloc(records * 8 * RECORD_WORDS + 1);
    sl_assert(bytes && copy);
    memcpy(bytes, data, size);
    if (records) {
        memcpy(copy, data + HEAD_BYTES, records * 8 * RECORD_WORDS);
        make_right(flags, copy, records);
        memcpy(bytes + HEAD_BYTES, copy, records * 8 * RECORD_WORDS);
    }
    unlinkat(pack.dir_fd, STORE_JOURNAL_FILE, 0);
    int fd = openat(pack.dir_fd, STORE_JOURNAL_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    sl_assert(fd >= 0);
    if ((flags & 1) && size >= HEAD_BYTES) { /* the header that an empty journal gets */
        sl_assert(journal_open(&pack, &error) == 0);
        uint8_t head[HEAD_BYTES];
        sl_assert(pread(pack.journal_fd, head, HEAD_BYTES, 0) == HEAD_BYTES);
        memcpy(bytes, head, 32); /* the rest is struct journal_model */
        close(pack.journal_fd);
    }
    sl_assert(pwrite(fd, bytes, size, 0) == (ssize_t)size && ftruncate(fd, (off_t)size) == 0);
    close(fd);
    free(bytes);
    free(copy);
}

static void check_resumed(void)
{
    struct stat st;
    uint32_t done = 0;
    for (uint32_t unit = 0; unit < pack.expert_count; unit++) {
        const uint64_t *record =
            store_record(&pack.manifest, pack.table, 0, unit / EXPERTS, unit % EXPERTS);
        uint64_t part = store_shard_pages(&pack.manifest, group.slot_pages) * PAGE_BYTES;
        sl_assert(!pack.done[unit] || record[1] == checksum_of_zeros(part));
        done += pack.done[unit];
    }
    sl_assert(done == pack.resumed);
    sl_assert(fstat(pack.journal_fd, &st) == 0 && (uint64_t)st.st_size == pack.journal_bytes);
    sl_assert((pack.journal_bytes - HEAD_BYTES) % (8 * RECORD_WORDS) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    if (size == 0)
        return 0;
    if (!pack.table)
        make_pack();
    memset(pack.done, 0, pack.expert_count * sizeof *pack.done);
    pack.resumed = 0;
    write_journal(data[0], data + 1, size - 1);
    if (journal_open(&pack, &error) != 0) {
        sl_assert(error.code == ERR_BAD_INPUT && error.text[0] && !strchr(error.text, '\n'));
    } else {
        sl_assert(journal_resume(&pack, &error) == 0);
        check_resumed();
    }
    if (pack.journal_fd >= 0)
        close(pack.journal_fd);
    return 0;
}
