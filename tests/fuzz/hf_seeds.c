/* SPDX-License-Identifier: Apache-2.0 */
/* hf_seeds DIR: writes seeds of the targets hfdir and pack, which each build makes; it copies those
 * of hfdir to pack (CMakeLists.txt). */
#include <sys/stat.h>

#include "lib/json/json_file.h"
#include "tests/fuzz/fuzz_dir.h"
#include "tests/unit/lib/model/gguf_make.h"
#include "tests/unit/lib/model/hf_make.h"

static const char *corpus;
static char work[PATH_MAX - 256]; /* the directory that is being recorded, inside of `corpus` */

static void seed(const char *target, const char *name, const struct bytes *b)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", corpus, target);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", corpus, target, name);
    FILE *f = fopen(path, "wb");
    sl_assert(f && fwrite(b->data, 1, b->size, f) == b->size);
    fclose(f);
}

static void record(struct bytes *b, unsigned name, bool as_is, const void *data, size_t bytes,
                   size_t zeros)
{
    sl_assert(zeros % 4 == 0);
    uint8_t head[FUZZ_RECORD_BYTES] = {(uint8_t)(name | (as_is ? FUZZ_AS_IS : 0)),
                                       (uint8_t)bytes,
                                       (uint8_t)(bytes >> 8),
                                       (uint8_t)(bytes >> 16),
                                       (uint8_t)(zeros / 4),
                                       (uint8_t)(zeros / 4 >> 8)};
    bytes_add(b, head, sizeof head);
    bytes_add(b, data, bytes);
}

/* ---- a GGUF file ---- */

static void gguf(const char *name, const char *arch, bool mixed)
{
    struct make m;
    struct bytes b = {0};
    make_arch(&m, arch, 1, mixed);
    struct bytes file = make_write(&m);
    record(&b, FUZZ_GGUF, false, file.data, file.size, 0);
    seed("pack", name, &b);
    bytes_free(&b);
    bytes_free(&file);
    make_free(&m);
}

/* ---- directories ---- */

static const char *edited; /* a file, and what replaces a text in it; NULL: none */
static const char *from, *to;

static void edit(struct bytes *b, const char *name, unsigned number, const char *text, size_t bytes,
                 size_t zeros)
{
    struct bytes out = {0};
    const char *at =
        edited && strcmp(edited, name) == 0 ? memmem(text, bytes, from, strlen(from)) : NULL;
    size_t before = at ? (size_t)(at - text) : bytes, skip = at ? strlen(from) : 0;
    bytes_add(&out, text, before);
    if (at)
        bytes_add(&out, to, strlen(to));
    bytes_add(&out, text + before + skip, bytes - before - skip);
    record(b, number, false, out.data, out.size, zeros);
    bytes_free(&out);
}

static void add_file(struct bytes *b, unsigned number)
{
    char path[PATH_MAX];
    struct stat st;
    uint64_t length = 0;
    snprintf(path, sizeof path, "%s/%s", work, fuzz_names[number]);
    FILE *f = fopen(path, "rb");
    if (!f)
        return;
    sl_assert(fstat(fileno(f), &st) == 0);
    bool headed = number >= 4;
    if (headed)
        sl_assert(fread(&length, sizeof length, 1, f) == 1);
    size_t bytes = headed ? length : (size_t)st.st_size;
    char *text = malloc(bytes + 1);
    sl_assert(text && fread(text, 1, bytes, f) == bytes);
    edit(b, fuzz_names[number], number, text, bytes,
         headed ? (size_t)st.st_size - bytes - sizeof length : 0);
    free(text);
    fclose(f);
}

static void make_directory(const char *arch, bool two_files, bool half_norms)
{
    char path[PATH_MAX];
    struct make m;
    make_arch(&m, arch, 1, false);
    if (strcmp(arch, "llama") == 0)
        make_drop_tensor(&m, "rope_freqs.weight");
    struct bytes file = make_write(&m);
    sl_assert(snprintf(work, sizeof work, "%s/work-XXXXXX", corpus) < (int)sizeof work);
    sl_assert(mkdtemp(work));
    snprintf(path, sizeof path, "%s/made.gguf", work);
    FILE *f = fopen(path, "wb");
    sl_assert(f && fwrite(file.data, 1, file.size, f) == file.size && fclose(f) == 0);
    hf_make(&(struct hf_make){
        .gguf = path, .dir = work, .two_files = two_files, .half_norms = half_norms});
    unlink(path);
    bytes_free(&file);
    make_free(&m);
}

/* Without the file of that number; -1: with all. more: a last record. */
static void directory(const char *name, const char *arch, bool two_files, int without,
                      const struct bytes *more)
{
    struct bytes b = {0};
    make_directory(arch, two_files, false);
    for (unsigned i = 0; i < FUZZ_GGUF; i++)
        if ((int)i != without)
            add_file(&b, i);
    if (more)
        bytes_add(&b, more->data, more->size);
    hf_unmake(work);
    seed("hfdir", name, &b);
    bytes_free(&b);
}

static void changed(const char *name, const char *arch, const char *file, const char *old,
                    const char *new)
{
    edited = file;
    from = old;
    to = new;
    directory(name, arch, strcmp(file, "model.safetensors") != 0, -1, NULL);
    edited = NULL;
}

static void as_is(const char *name, const void *data, size_t bytes)
{
    struct bytes more = {0};
    record(&more, 4, true, data, bytes, 0);
    directory(name, "qwen3moe", false, -1, &more);
    bytes_free(&more);
}

static void broken(void)
{
    const char *const index = fuzz_names[3];
    directory("no_config", "qwen3moe", false, 0, NULL);
    directory("no_tokenizer", "qwen3moe", false, 1, NULL);
    directory("no_tensors", "qwen3moe", false, 4, NULL);
    directory("no_second", "qwen3moe", true, 6, NULL);
    changed("index_no_map", "qwen3moe", index, "weight_map", "weight_mop");
    changed("index_no_json", "qwen3moe", index, "{", "[");
    changed("index_path", "qwen3moe", index, "a.safetensors", "../a.safetensors");
    changed("index_other_file", "qwen3moe", index, "a.safetensors", "b.safetensors");
    changed("index_unknown", "qwen3moe", index, "model.norm", "model.nurm");
    changed("two_names", "qwen3moe", "b.safetensors", "input_layernorm", "input_layernurm");
    changed("fused", "qwen3moe", "model.safetensors", "experts.0.gate_proj.weight",
            "experts.gate_up_proj");
    changed("dtype", "qwen3moe", "model.safetensors", "F32", "I64");
    changed("shape", "qwen3moe", "model.safetensors", "\"shape\": [", "\"shape\": [1, ");
    changed("heads", "llama", "config.json",
            "\"num_attention_heads\": ", "\"num_attention_heads\": 1");
    changed(
        "fp8", "qwen3moe", "config.json", "\"model_type\"",
        "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}, "
        "\"model_type\"");
    changed("fp8_weight", "qwen3moe", "model.safetensors", "\"F32\"", "\"F8_E4M3\"");
    as_is("short", "short", 5);
    as_is("long_header", "\xff\xff\xff\xff\xff\xff\x00\x00{}", 10);
}

/* ---- vocabularies of tiktoken, chat templates ---- */

static void files(const char *name, int without, const char *const (*texts)[2])
{
    struct bytes more = {0};
    for (; (*texts)[0]; texts++) {
        unsigned number = 0;
        while (strcmp(fuzz_names[number], (*texts)[0]) != 0)
            number++;
        record(&more, number, false, (*texts)[1], strlen((*texts)[1]), 0);
    }
    directory(name, "qwen3moe", false, without, &more);
    bytes_free(&more);
}

/* Two templates with their names. */
#define NAMED(first, second)                                                                       \
    "{\"chat_template\":[{\"name\":\"" first "\",\"template\":\"a\"},{\"name\":\"" second          \
    "\",\"template\":\"b\"}]}"

static void other_files(void)
{
    char ranks[HF_MAKE_RANKS_BYTES];
    hf_make_ranks(ranks, sizeof ranks);
    files("tiktoken_kimi", 1, (const char *const[][2]){{"tiktoken.model", ranks}, {NULL}});
    files("tiktoken_hunyuan", 1, (const char *const[][2]){{"hy.tiktoken", ranks}, {NULL}});
    files("tiktoken_bad", 1, (const char *const[][2]){{"hy.tiktoken", "YWI= 1"}, {NULL}});
    files("no_tokenizer_but_model", 1, (const char *const[][2]){{"tokenizer.model", "x"}, {NULL}});
    files(
        "templates_named", -1,
        (const char *const[][2]){{"tokenizer_config.json", NAMED("default", "tool_use")}, {NULL}});
    files("templates_json", -1,
          (const char *const[][2]){{"chat_template.json", NAMED("tool_use", "rag")}, {NULL}});
    files("templates_object", -1,
          (const char *const[][2]){
              {"tokenizer_config.json", "{\"chat_template\":{\"default\":\"a\",\"tool_use\":7}}"},
              {NULL}});
    files("templates_files", -1,
          (const char *const[][2]){{"tokenizer_config.json", NAMED("default", "tool_use")},
                                   {"chat_template.jinja", "{{ a }}"},
                                   {FUZZ_MORE "/tool_use.jinja", "{{ b }}"},
                                   {FUZZ_MORE "/default.jinja", "{{ c }}"},
                                   {NULL}});
    files("templates_json_bad", -1, (const char *const[][2]){{"chat_template.json", "["}, {NULL}});
}

/* ---- FP8 ---- */

#define BLOCK 16

static char *read_text(const char *name, size_t skip)
{
    char path[PATH_MAX], *text = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/%s", work, name);
    FILE *f = fopen(path, "rb");
    sl_assert(f && text && fseek(f, (long)skip, SEEK_SET) == 0);
    sl_assert(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void put_header(json_t *header, const char *name, const char *dtype, json_int_t rows,
                       json_int_t columns, json_int_t bytes, json_int_t *at)
{
    json_object_set_new(header, name,
                        json_pack("{s:s, s:[I, I], s:[I, I]}", "dtype", dtype, "shape", rows,
                                  columns, "data_offsets", *at, *at + bytes));
    *at += bytes;
}

/* The header of the same model with matrices in FP8, except for embeddings and routers. */
static json_t *fp8_header(const json_t *plain, json_int_t *at)
{
    const char *name;
    json_t *all = json_object(), *t;
    *at = 0;
    json_object_foreach((json_t *)(uintptr_t)plain, name, t)
    {
        char scales[200];
        const json_t *shape = json_object_get(t, "shape"),
                     *place = json_object_get(t, "data_offsets");
        json_int_t rows = json_integer_value(json_array_get(shape, 0));
        json_int_t columns = json_integer_value(json_array_get(shape, 1));
        json_int_t bytes = json_integer_value(json_array_get(place, 1)) -
                           json_integer_value(json_array_get(place, 0));
        if (!strstr(name, "_proj.")) {
            json_t *copy = json_deep_copy(t);
            json_object_set_new(copy, "data_offsets", json_pack("[I, I]", *at, *at + bytes));
            json_object_set_new(all, name, copy);
            *at += bytes;
            continue;
        }
        json_int_t high = (rows + BLOCK - 1) / BLOCK, wide = (columns + BLOCK - 1) / BLOCK;
        snprintf(scales, sizeof scales, "%s_scale_inv", name);
        put_header(all, name, "F8_E4M3", rows, columns, rows * columns, at);
        put_header(all, scales, "F32", high, wide, 4 * high * wide, at);
    }
    return all;
}

static void record_json(struct bytes *b, unsigned name, json_t *value, size_t zeros)
{
    char *text = json_dumps(value, JSON_COMPACT);
    sl_assert(text);
    record(b, name, false, text, strlen(text), zeros);
    free(text);
    json_decref(value);
}

static void fp8(void)
{
    struct bytes b = {0};
    json_int_t bytes;
    make_directory("qwen3moe", false, false);
    char *config = read_text(fuzz_names[0], 0), *header = read_text(fuzz_names[4], 8);
    json_t *c = json_loads(config, 0, NULL), *h = json_loads(header, JSON_DISABLE_EOF_CHECK, NULL);
    sl_assert(c && h);
    json_object_set_new(
        c, "quantization_config",
        json_pack("{s:s, s:[i, i]}", "quant_method", "fp8", "weight_block_size", BLOCK, BLOCK));
    record_json(&b, 0, c, 0);
    add_file(&b, 1);
    json_t *made = fp8_header(h, &bytes);
    record_json(&b, 4, made, (size_t)bytes);
    json_decref(h);
    free(config);
    free(header);
    hf_unmake(work);
    seed("hfdir", "fp8_model", &b);
    bytes_free(&b);
}

int main(int argc, char **argv)
{
    static const char *const archs[] = {"qwen3moe", "olmoe",   "qwen2moe",
                                        "llama",    "glm4moe", "minimax-m2"};
    char name[64];
    sl_assert(argc == 2);
    corpus = argv[1];
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        bool mixed = strcmp(archs[i], "llama") == 0;
        if (mixed || i % 2 == 0) { /* one of mixed types is enough: it has 47 KB */
            snprintf(name, sizeof name, "gguf_%s", archs[i]);
            gguf(name, archs[i], mixed);
        }
        directory(archs[i], archs[i], false, -1, NULL);
        snprintf(name, sizeof name, "%s_two", archs[i]);
        directory(name, archs[i], true, -1, NULL);
    }
    broken();
    other_files();
    fp8();
    return 0;
}
