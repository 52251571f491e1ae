/* SPDX-License-Identifier: Apache-2.0 */
/* The core on the CUDA device, whose kernels run as host code: every architecture gives the same
 * bits as on the host, in logits and in all that the source of weights gets. Memory that the core
 * shares has addresses that fault, so a kernel reads only what was copied to the device; copies to
 * the host run late (tests/harness/cuda/memory.h). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"
#include "lib/device/host/host.h"
#include "tests/golden/reference.h"
#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/memory.h"
#include "tests/harness/sample.h"
#include "tests/unit/lib/device/cuda_run.h"

static uint32_t models, unsupported, seed;
static unsigned computable;
static struct places_counts all; /* of experts */

static struct device *open_device(const struct gpu_layout *layout)
{
    struct error error;
    struct device *d = cuda_device(gpu_kernels(), kernel_ops_select("auto"), layout, &error);
    ck_assert_msg(d != NULL, "%s", error.text);
    fibres_seed(++seed);
    return d;
}

/* The device computes with all types of the model. */
static bool computes_all(const struct device *d, const struct model_index *model)
{
    for (uint32_t i = 0; i < model->tensor_count; i++)
        if (!d->ops->computes(d, (enum tensor_type)model_index_tensors(model)[i].type))
            return false;
    return true;
}

/* How a model is computed. Products have a kernel for up to 8 rows and one for more. */
struct how {
    bool masked, cooperative; /* not cooperative: experts are copied ahead */
    uint32_t chunk, kv_layers;
    uint32_t slots;  /* 0: for the experts that a chunk pins */
    uint32_t single; /* 0: 2 */
};

/* Experts on the device, after a run with the results of the host. */
static struct places_counts compare_as(struct image *image, const struct how *how, const char *name)
{
    struct run host = {.image = image,
                       .masked = how->masked,
                       .chunk = how->chunk,
                       .single = how->single ? how->single : 2};
    struct run cuda = host;
    struct error error;
    struct gpu_layout layout =
        cuda_run_layout(gpu_kernels(), image, host.chunk, how->kv_layers, open_device);
    if (how->slots > 0)
        layout.bytes[CUDA_EXPERTS] = how->slots * layout.slot_bytes;
    cuda.device = open_device(&layout);
    cuda.content = 1;
    cuda_pointers(cuda.device, untagged);
    if (how->cooperative)
        cuda_cooperate(cuda.device, host_device(kernel_ops_select("auto"), 2, 0, &error));
    else
        cuda_prefetch(cuda.device);
    fake_limit(gpu_layout_bytes(&layout));
    ck_assert_msg(cuda_reserve(cuda.device, &error) == 0, "%s", error.text);
    uint64_t want = run_hash(&host), have = run_hash(&cuda);
    struct places_counts slots = cuda_slot_counts(cuda.device);
    ck_assert(slots.ahead >= slots.timely + slots.late + slots.unused);
    ck_assert_msg(want == have, "%s%s, keys and values in %s: other results than on the host", name,
                  how->masked ? ", masked" : "", kv_type_info(image->kv_type)->name);
    fake_limit(0);
    cuda.device->ops->destroy(cuda.device);
    ck_assert_msg(fake_bytes() == 0, "%s: %zu bytes are left on the device", name, fake_bytes());
    return slots;
}

static void compare(struct image *image, bool masked, const char *name)
{
    const struct how how = {.masked = masked,
                            .cooperative = seed % 2 != 0,
                            .chunk = seed % 4 == 0 ? 9 : 2,
                            .kv_layers = seed % 3 == 0 ? 0 : 1 + seed % 3};
    struct places_counts slots = compare_as(image, &how, name);
    all.evicted += slots.evicted;
    all.hits += slots.hits;
    all.on_host += slots.on_host;
    all.background += slots.background;
    all.ahead += slots.ahead;
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    const struct gpu_layout nothing = {0};
    struct device *d = open_device(&nothing);
    if (strcmp(name, "demo") == 0) { /* too large for threads that are fibres */
        d->ops->destroy(d);
        return;
    }
    image_open(&image, path, RUN_CONTEXT);
    bool computed = computes_all(d, image.model);
    d->ops->destroy(d);
    models++;
    unsupported += !computed;
    if (computed && test_sample(EVERY_cuda_models, &computable))
        compare(&image, models % 2 == 0, name);
    else if (!computed)
        printf("%s: has a type without kernels\n", name);
    image_close(&image);
}

static void check_slots(const struct places_counts *n)
{
    ck_assert_msg(n->evicted > 0 && n->hits > 0 && n->on_host > 0 && n->background > 0,
                  "%llu experts replaced, %llu were there, %llu on the host, %llu copied later",
                  (unsigned long long)n->evicted, (unsigned long long)n->hits,
                  (unsigned long long)n->on_host, (unsigned long long)n->background);
}

static void compare_file(const char *name, bool masked)
{
    struct image image;
    image_open(&image, golden_path(name), RUN_CONTEXT);
    compare(&image, masked, name);
    image_close(&image);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    /* In the short form few models run; there: slots_in_use, late_copies, with_the_host. */
    if (test_long()) {
        check_slots(&all);
        ck_assert(all.ahead > 0);
    }
    ck_assert_msg(models - unsupported >= 30, "%u of %u models have unsupported types", unsupported,
                  models);
}
END_TEST

/* In the short form, too: the inputs of several experts' down matrices in an integer form. */
START_TEST(quantised_experts)
{
    compare_file("arch/olmoe_a_q8.gguf", false);
}
END_TEST

/* In the short form, too: gates of heads in each form, limits, a norm after the networks; gpt-oss's
 * activation in dense networks. */
START_TEST(gates_and_limits)
{
    static const char *const files[] = {
        "converted/step35-base.gguf", "converted/laguna-base.gguf", "converted/laguna-element.gguf",
        "converted/afmoe-base.gguf", "converted/minimax-m3-base.gguf"};
    compare_file(files[_i], false);
}
END_TEST

/* In the short form, too: Mamba-2, with two groups of heads and a convolution with a bias; Kimi
 * delta attention, with matrices in two factors, beside MLA without rotation; the same with bounded
 * decays beside MLA with gates; lightning attention; residuals of several streams, of a bank. */
static const char *const recurrences[] = {
    "converted/granitehybrid-groups.gguf",    "converted/jamba-base.gguf",
    "converted/jamba-attention_experts.gguf", "converted/kimi-linear-base.gguf",
    "converted/bailingmoe3-limits.gguf",      "converted/minimax-01-base.gguf",
    "converted/qwen4exp-no_table.gguf",       "converted/kimi-k3-base.gguf",
    "converted/kimi-k3-limits.gguf"};

START_TEST(other_recurrences)
{
    compare_file(recurrences[_i], false);
}
END_TEST

/* In the short form, too: a factor of values, parallel blocks, gate and up in one matrix; layers of
 * one part, experts of two matrices, and such in a latent; chunks, and weights of experts' inputs;
 * experts that read the layer's input. */
START_TEST(parts_of_layers)
{
    static const char *const files[] = {
        "converted/mimo2-joined.gguf",         "converted/cohere2moe-base.gguf",
        "converted/granite_swa-base.gguf",     "converted/nemotron_h_moe-base.gguf",
        "converted/nemotron_h_moe-super.gguf", "converted/llama4-chunk.gguf",
        "converted/llama4-maverick.gguf",      "converted/arctic-base.gguf"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        compare_file(files[i], i == 1);
}
END_TEST

/* Chunks that use more experts than there are slots. */
START_TEST(fewest_slots)
{
    struct image image;
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    const struct how how = {.chunk = 9, .slots = image.model->hparams.experts_used};
    ck_assert_uint_lt(how.slots, IMAGE_PIN_SLOTS);
    compare_as(&image, &how, "arch/qwen3moe_a.gguf");
    image_close(&image);
}
END_TEST

/* Missing experts are computed on the host, and copied afterwards. */
START_TEST(with_the_host)
{
    struct image image;
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    const struct how how = {.chunk = 2, .cooperative = true};
    struct places_counts slots = compare_as(&image, &how, "arch/qwen3moe_a.gguf");
    check_slots(&slots);
    image_close(&image);
}
END_TEST

/* Experts that are copied ahead, and used before the copy has run: in a wait, only what it waits
 * for has. */
START_TEST(late_copies)
{
    struct image image;
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    const struct how how = {.chunk = 2, .slots = 8, .single = 16};
    fake_slow(true);
    struct places_counts slots = compare_as(&image, &how, "arch/qwen3moe_a.gguf");
    fake_slow(false);
    ck_assert_msg(slots.late > 0, "%llu copied ahead", (unsigned long long)slots.ahead);
    image_close(&image);
}
END_TEST

START_TEST(every_type_of_keys)
{
    static const char *const names[] = {"arch/qwen3moe_a.gguf", "arch/kimi_k2.gguf",
                                        "arch/oss_a.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t type = 0; type < KV_TYPE__COUNT; type++) {
            struct image image;
            image_open(&image, golden_path(names[i]), RUN_CONTEXT);
            image.kv_type = (enum kv_type)type;
            compare(&image, type % 2 != 0, names[i]);
            image_close(&image);
        }
}
END_TEST

static void check_out_of_memory(const struct error *error, const char *part)
{
    char end[80];
    snprintf(end, sizeof end, " bytes for %s): out of memory", part);
    ck_assert_int_eq(error->code, ERR_NO_MEMORY);
    ck_assert_msg(strncmp(error->text, "out of GPU memory (", 19) == 0 && strstr(error->text, end),
                  "%s", error->text);
}

/* Failures before the first pass are errors. */
START_TEST(too_little_memory)
{
    struct image image;
    struct error error = {0};
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    struct gpu_layout layout = cuda_run_layout(gpu_kernels(), &image, 4, 1, open_device);
    struct device *d = open_device(&layout);
    struct core_config config = {.model = image.model,
                                 .device = d,
                                 .source = image_source_on(&image, d),
                                 .threads = 1,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    fake_limit(layout.bytes[CUDA_WEIGHTS]);
    ck_assert_int_eq(cuda_reserve(d, &error), -1);
    check_out_of_memory(&error, "keys and values");
    d->ops->destroy(d);
    d = open_device(&layout);
    config.device = d;
    config.source = image_source_on(&image, d);
    cuda_pointers(d, untagged);
    fake_limit(gpu_layout_bytes(&layout) - 1);
    ck_assert_int_eq(cuda_reserve(d, &error), 0);
    ck_assert_ptr_null(core_create(&config, &error));
    check_out_of_memory(&error, "activations");
    fake_limit(0);
    d->ops->destroy(d);
    ck_assert_uint_eq(fake_bytes(), 0);
    image_close(&image);
}
END_TEST

/* ---- what an operation wrote of a sequence, and a later one reads, without a wait between them
 * ---- */

#define CHANNELS 5
#define TAPS     3
#define STATE    ((TAPS - 1) * CHANNELS)
#define PARTS    (NOTES_MAX + 2 * DEVICE_SEQUENCES_MAX) /* more than are noted until a wait */

static struct device_at given(struct device *d, const void *from, size_t bytes)
{
    struct error error;
    struct device_at at;
    ck_assert_int_eq(d->ops->allocate(d, bytes, &at, &error), 0);
    d->ops->write(d, at, from, bytes);
    return at;
}

/* A row of each of as many sequences as a pass has, from their states on; what `from` NULL has:
 * zeros. */
static void convolve(struct device *d, uint32_t first, float *states, bool begins,
                     struct device_at projected, struct device_at conv, struct device_at mix)
{
    struct device_row row[DEVICE_SEQUENCES_MAX];
    struct device_sequence sequence[DEVICE_SEQUENCES_MAX];
    for (uint32_t i = 0; i < DEVICE_SEQUENCES_MAX; i++) {
        float *state = states + (size_t)(first + i) * STATE;
        struct device_at at =
            device_share(d, d->is_host ? state : tagged(state), STATE * sizeof *state);
        row[i] = (struct device_row){.sequence = i, .position = first};
        sequence[i] = (struct device_sequence){.state = begins ? (struct device_at){0} : at,
                                               .next_state = at};
    }
    const struct op_short_conv op = {.rows = DEVICE_SEQUENCES_MAX,
                                     .sequences = DEVICE_SEQUENCES_MAX,
                                     .row = row,
                                     .sequence = sequence,
                                     .taps = TAPS,
                                     .channels = CHANNELS,
                                     .conv = conv,
                                     .zeros = conv,
                                     .stride = 3 * CHANNELS,
                                     .projected = projected,
                                     .mix = device_rows_of_floats(mix, CHANNELS)};
    d->ops->short_conv(d, &op);
}

static void convolve_all(struct device *d, float *states)
{
    float x[DEVICE_SEQUENCES_MAX * 3 * CHANNELS], conv[TAPS * CHANNELS] = {0};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i % 97) / 7 - 5;
    struct device_at memory[] = {given(d, x, sizeof x), given(d, conv, sizeof conv),
                                 given(d, x, sizeof x)};
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t at = 0; at < PARTS; at += DEVICE_SEQUENCES_MAX) {
            d->ops->write(d, memory[0], x, sizeof x); /* the operation changes it */
            convolve(d, at, states, pass == 0, memory[0], memory[1], memory[2]);
            x[at % 7] += 1;
        }
    device_wait(d);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        d->ops->release(d, memory[i]);
    d->ops->destroy(d);
}

START_TEST(many_states_without_a_wait)
{
    static float want[PARTS * STATE], have[PARTS * STATE];
    struct error error;
    memset(have, 0xff, sizeof have);
    const struct gpu_layout layout = {
        .bytes[CUDA_KV] = (uint64_t)2 * DEVICE_SEQUENCES_MAX * DEVICE_ALIGN,
        .bytes[CUDA_EXPERTS] = DEVICE_SEQUENCES_MAX * DEVICE_ALIGN * 2}; /* scratch memory */
    struct device *d = open_device(&layout);
    ck_assert_int_eq(cuda_reserve(d, &error), 0);
    convolve_all(host_device(kernel_ops_select("auto"), 1, 0, &error), want);
    convolve_all(d, have);
    ck_assert_mem_eq(have, want, sizeof want);
}
END_TEST

/* ---- a slot that gets another expert while operations with the one before have not run ---- */

#define INPUTS  64
#define OUTPUTS 8
#define LENT    60
#define CHOICE  4 /* experts */

struct lending {
    struct device *device;
    struct device_at x, up, gate; /* gate: of each step */
    float memory[2][OUTPUTS * INPUTS], next[2][OUTPUTS * INPUTS];
    bool ahead[CHOICE]; /* copied for a prediction and there, not used so far */
    struct places_counts counts;
};

/* What a matrix of an expert has. */
static float *fill(float *memory, uint32_t expert, int m)
{
    for (uint32_t i = 0; i < OUTPUTS * INPUTS; i++)
        memory[i] = (float)((i + 3) * (expert + 1) * (m + 2) % 101) / 50 - 1;
    return memory;
}

static bool two_sizes; /* slots of every second expert are larger */

static uint64_t content_of(uint32_t expert, int m)
{
    return device_content(two_sizes ? expert % 2 : 0, 1, 0, CHOICE, expert, m);
}

static struct kernel_matrix matrix_at(const struct device *d, float *memory)
{
    return (struct kernel_matrix){.data = d->is_host ? memory : tagged(memory),
                                  .row_bytes = INPUTS * sizeof(float),
                                  .k = INPUTS,
                                  .n = OUTPUTS,
                                  .type = TENSOR_F32};
}

static struct device_matrix lend(struct lending *l, uint32_t expert, int m)
{
    const struct kernel_matrix host = matrix_at(l->device, fill(l->memory[m], expert, m));
    return device_lend(l->device, &host, content_of(expert, m));
}

static bool is_there(const struct lending *l, uint32_t expert)
{
    const struct cuda *c = (const struct cuda *)(const void *)l->device;
    return places_has(c->slots.places, (uint32_t)(content_of(expert, 0) / EXPERT__COUNT));
}

/* Those copied ahead that lost their slot. */
static void count_unused(struct lending *l)
{
    for (uint32_t i = 0; i < CHOICE; i++) {
        bool gone = l->ahead[i] && !is_there(l, i);
        l->counts.unused += gone;
        l->ahead[i] &= !gone;
    }
    ck_assert_uint_eq(cuda_slot_counts(l->device).unused, l->counts.unused);
}

/* The next expert, or one that is never used. The one in use keeps its slot. */
static void predict(struct lending *l, uint32_t step, uint32_t in_use)
{
    struct device_expert expert = {0};
    uint32_t number = step % 5 == 0 ? CHOICE - 1 : (step + 1) % 3;
    bool was = is_there(l, number);
    for (int m = EXPERT_GATE; m <= EXPERT_UP; m++) {
        expert.matrix[m] = matrix_at(l->device, fill(l->next[m], number, m));
        expert.content[m] = content_of(number, m);
    }
    l->device->ops->prefetch(l->device, &expert, 1);
    memset(l->next, 0xff, sizeof l->next);
    if (!was && is_there(l, number)) {
        l->ahead[number] = true;
        l->counts.ahead++;
    }
    ck_assert(is_there(l, in_use));
    ck_assert_uint_eq(cuda_slot_counts(l->device).ahead, l->counts.ahead);
    count_unused(l);
}

/* An expert is going to be used: what is counted when it was copied ahead. Where all has run, its
 * copy has. */
static void check_use(struct lending *l, uint32_t expert, uint32_t pending)
{
    struct places_counts now = cuda_slot_counts(l->device);
    uint64_t used = now.timely + now.late - l->counts.timely - l->counts.late;
    ck_assert_uint_eq(used, l->ahead[expert]);
    ck_assert(pending > 0 || now.late == l->counts.late);
    l->counts.timely = now.timely;
    l->counts.late = now.late;
    l->ahead[expert] = false;
    count_unused(l);
}

static void wait_for_copies(const struct device *d)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    ck_assert_int_eq(c->k->wait(c->uploads), 0);
    ck_assert_int_eq(c->k->wait(c->stream), 0);
    ck_assert_uint_eq(fake_pending(), 0);
}

static void use_expert(struct lending *l, uint32_t step)
{
    struct device_job job = {.rows = 1};
    if (l->device->prefetches && step % 7 < 3)
        wait_for_copies(l->device);
    uint32_t expert = step % 3, pending = fake_pending();
    const uint32_t row = 0;
    for (int m = EXPERT_GATE; m <= EXPERT_UP; m++)
        job.matrix[m] = lend(l, expert, m);
    if (l->device->prefetches)
        check_use(l, expert, pending);
    const struct op_expert_gate_up op = {.rows = 1,
                                         .n = OUTPUTS,
                                         .x = device_rows_of_floats(l->x, INPUTS),
                                         .jobs = 1,
                                         .job = &job,
                                         .pairs = 1,
                                         .pair_row = &row,
                                         .inner_rows = 1,
                                         .gate = device_floats_at(l->gate, step * OUTPUTS),
                                         .up = l->up};
    l->device->ops->expert_gate_up(l->device, &op);
    if (l->device->prefetches)
        predict(l, step, expert);
    device_give_back(l->device);
    memset(l->memory, 0xff, sizeof l->memory);
}

static struct places_counts use_all(struct device *d, float *out)
{
    const struct device_limits limits = {.rows = 1,
                                         .experts = CHOICE,
                                         .top_k = 1,
                                         .expert_width = INPUTS,
                                         .gather_forms = 1u << FORM_F32,
                                         .inner = OUTPUTS,
                                         .inner_forms = 1u << FORM_F32};
    struct error error;
    struct lending l = {.device = d};
    struct device_at workspace;
    float x[INPUTS];
    for (uint32_t i = 0; i < INPUTS; i++)
        x[i] = (float)(i % 13) / 6 - 1;
    ck_assert_int_eq(d->ops->allocate(d, d->ops->workspace(d, &limits) + 64, &workspace, &error),
                     0);
    d->ops->use_workspace(d, &limits, workspace);
    l.x = given(d, x, sizeof x);
    l.gate = given(d, out, LENT * OUTPUTS * sizeof *out);
    l.up = given(d, x, sizeof x);
    for (uint32_t step = 0; step < LENT; step++)
        use_expert(&l, step);
    d->ops->read(d, l.gate, out, LENT * OUTPUTS * sizeof *out);
    const struct device_at memory[] = {workspace, l.x, l.gate, l.up};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        d->ops->release(d, memory[i]);
    d->ops->destroy(d);
    return l.counts;
}

/* Slots of one size, or of two, which share the memory. */
START_TEST(slots_in_use)
{
    static float want[LENT * OUTPUTS], have[LENT * OUTPUTS];
    struct error error;
    struct gpu_layout layout = {.layers = 1,
                                .experts = CHOICE,
                                .top_k = 1,
                                .slot_bytes = sizeof((struct lending *)0)->memory};
    struct places_counts sum = {0};
    expert_sizes_fill(&layout.sizes, 1, CHOICE, layout.slot_bytes);
    two_sizes = _i;
    if (two_sizes)
        layout.sizes.bytes[PRECISION_INT8][0] = layout.slot_bytes *= 2;
    use_all(host_device(kernel_ops_select("auto"), 1, 0, &error), want);
    for (uint32_t run = 0; run < 10 * CHOICE; run++) {
        uint32_t slots = run % CHOICE + 1;
        layout.bytes[CUDA_EXPERTS] = slots * layout.slot_bytes;
        struct device *d = open_device(&layout);
        cuda_pointers(d, untagged);
        if (run >= CHOICE)
            cuda_prefetch(d);
        ck_assert_int_eq(cuda_reserve(d, &error), 0);
        struct places_counts counts = use_all(d, have);
        ck_assert_msg(memcmp(have, want, sizeof want) == 0, "%u slots: another result", slots);
        ck_assert_uint_eq(fake_bytes(), 0);
        ck_assert_msg(slots > 1 || two_sizes || counts.ahead == 0, "the only slot was leased");
        sum.timely += counts.timely;
        sum.late += counts.late;
        sum.unused += counts.unused;
    }
    ck_assert_msg(sum.timely > 0 && sum.late > 0 && sum.unused > 0, "%llu, %llu, %llu",
                  (unsigned long long)sum.timely, (unsigned long long)sum.late,
                  (unsigned long long)sum.unused);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_cuda");
    TCase *c = tcase_create("device_cuda");
    tcase_set_timeout(c, 900);
    tcase_add_test(c, every_architecture);
    tcase_add_test(c, quantised_experts);
    tcase_add_loop_test(c, other_recurrences, 0, ARRAY_LEN(recurrences));
    tcase_add_test(c, parts_of_layers);
    tcase_add_loop_test(c, gates_and_limits, 0, 5);
    tcase_add_test(c, fewest_slots);
    tcase_add_test(c, late_copies);
    tcase_add_test(c, with_the_host);
    tcase_add_test(c, every_type_of_keys);
    tcase_add_test(c, too_little_memory);
    tcase_add_test(c, many_states_without_a_wait);
    tcase_add_loop_test(c, slots_in_use, 0, 2);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
