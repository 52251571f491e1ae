/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a tiny model and its store in a temporary directory, and removes them. */
#include "tests/unit/lib/model/store/store_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/unit/lib/model/gguf_make.h"

char top[] = "/tmp/sluice-store-XXXXXX";
char gguf[64], store[64];

int remove_dir(const char *dir)
{
    static const char *const names[] = {
        STORE_MANIFEST_FILE, STORE_MODEL_FILE, STORE_ENTRIES_FILE, "link",
        "experts.0.bin",     "experts.1.bin",  "experts.2.bin",    "experts.3.bin",
        "experts.4.bin",     "experts.5.bin",  "experts.6.bin",    "experts.7.bin",
        "experts.8.bin",     "experts.9.bin",  "experts.10.bin",   "experts.11.bin",
        "experts.12.bin",    "experts.13.bin", "experts.14.bin",   "experts.15.bin"};
    char path[300];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
        strcat(path, ".mirror");
        unlink(path);
    }
    return rmdir(dir);
}

void setup(void)
{
    strcpy(top + sizeof top - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(top));
    snprintf(gguf, sizeof gguf, "%s/tiny.gguf", top);
    snprintf(store, sizeof store, "%s/store", top);
    struct make m;
    make_tiny(&m, 2, true);
    struct bytes file = make_write(&m);
    FILE *out = fopen(gguf, "w");
    ck_assert_uint_eq(fwrite(file.data, 1, file.size, out), file.size);
    fclose(out);
    bytes_free(&file);
    make_free(&m);
}

void teardown(void)
{
    remove_dir(store);
    unlink(gguf);
    ck_assert_int_eq(rmdir(top), 0);
}

struct model_index *open_store(const char *dir, struct error *error)
{
    struct model_index *index = NULL;
    *error = (struct error){0};
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(fd, 0);
    int rc = store_index_build(fd, dir, &index, error);
    close(fd);
    ck_assert_int_eq(rc, index ? 0 : -1);
    ck_assert(index || (error->text[0] && !strchr(error->text, '\n')));
    return index;
}

void make_it(const char *from, struct store_make how)
{
    struct error error;
    remove_dir(store);
    ck_assert_msg(store_make(from, store, &how, &error) == 0, "%s", error.text);
}

struct open_file map_file(const char *path)
{
    struct open_file f = {0};
    struct stat st;
    int fd = open(path, O_RDONLY);
    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s", path);
    f.bytes = (uint64_t)st.st_size;
    f.data = mmap(NULL, f.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(f.data, MAP_FAILED);
    close(fd);
    return f;
}
