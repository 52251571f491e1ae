/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of windows decoded abreast: a pass has the next token of each. Dense matrices are
 * read once for all of them, and so is an expert for those that it serves at the same precision.
 * Rows do not depend on each other, so the bits are those of one segment after another. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/job.h"

static size_t row_floats(const struct worker *w)
{
    return model_residual_floats(&offline_index(w->job->e->model)->hparams);
}

int abreast_open(struct worker *w, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    uint32_t streams = w->job->streams;
    w->stream = calloc(streams, sizeof *w->stream);
    w->row_stream = calloc(streams, sizeof *w->row_stream);
    w->sequence = calloc(streams, sizeof *w->sequence);
    w->gathered = calloc(streams * row_floats(w), sizeof *w->gathered);
    bool good = w->stream && w->row_stream && w->sequence && w->gathered;
    for (uint32_t i = 0; good && e->compare && i < streams; i++) {
        w->stream[i].base = malloc(e->text->window * row_floats(w) * sizeof(float));
        good = w->stream[i].base != NULL;
    }
    return good ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (%u segments)", streams);
}

void abreast_close(struct worker *w)
{
    for (uint32_t i = 0; w->stream && i < w->job->streams; i++)
        free(w->stream[i].base);
    free(w->stream);
    free(w->row_stream);
    free(w->sequence);
    free(w->gathered);
}

/* The lossless model over the window of a stream. Rows do not depend on their chunk. */
static int run_reference(struct worker *w, const struct stream *s, struct error *error)
{
    const struct offline_evaluation *e = w->job->e;
    struct offline_runner *r = w->pair.reference;
    const uint32_t *ids = offline_window(e->text, s->window);
    uint32_t layers = offline_index(e->model)->hparams.layers;
    for (uint32_t at = 0, n; r && at < e->text->window; at += n) {
        n = e->text->window - at < w->chunk[1] ? e->text->window - at : w->chunk[1];
        for (uint32_t i = 0; i < n; i++)
            w->rows[i] = (struct core_row){
                .position = at + i, .token = ids[at + i], .prefill = core_rows_prefill(n)};
        struct core_pass pass = {
            .sequences = offline_sequence(r), .sequence_count = 1, .row = w->rows, .rows = n};
        if (core_pass_layers(offline_core(r), &pass, 0, layers, s->base + at * row_floats(w),
                             error) != 0)
            return -1;
    }
    return 0;
}

/* The next window of the segment, or the first of the next segment. Not busy: none is left. */
static int start_window(struct worker *w, uint32_t number, struct error *error)
{
    struct job *job = w->job;
    const struct offline_evaluation *e = job->e;
    struct stream *s = &w->stream[number];
    uint32_t segment = e->segment ? e->segment : 1;
    s->window++;
    if (s->window >= s->end) {
        s->window = atomic_fetch_add(&job->next, segment);
        s->end = s->window + segment < e->text->windows ? s->window + segment : e->text->windows;
    }
    s->busy = s->window < e->text->windows;
    s->at = 0;
    if (!s->busy)
        return 0;
    if (e->joins)
        e->joins(e->arg, w->number, number, s->window);
    return run_reference(w, s, error);
}

static uint32_t take_rows(struct worker *w)
{
    const struct offline_text *text = w->job->e->text;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < w->job->streams; i++) {
        const struct stream *s = &w->stream[i];
        if (!s->busy)
            continue;
        w->sequence[rows] = offline_sequences(w->pair.test)[i];
        w->row_stream[rows] = i;
        w->rows[rows] = (struct core_row){
            .sequence = rows, .position = s->at, .token = offline_window(text, s->window)[s->at]};
        rows++;
    }
    return rows;
}

/* ---- scores ---- */

static struct stream *stream_of(const struct worker *w, uint32_t row)
{
    return &w->stream[w->row_stream[row]];
}

static bool is_scored(const struct worker *w, uint32_t row)
{
    const struct offline_evaluation *e = w->job->e;
    uint32_t at = stream_of(w, row)->at;
    return at >= e->score_from && at + 1 < e->text->window;
}

/* Logits of the lossless model for rows [row, row + n) of the pass; NULL: it does not run. */
static const float *base_logits(struct worker *w, uint32_t row, uint32_t n)
{
    struct offline_runner *r = w->pair.reference;
    size_t floats = row_floats(w);
    if (!r)
        return NULL;
    struct core_row rows[OFFLINE_STREAMS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        const struct stream *s = stream_of(w, row + i);
        memcpy(w->gathered + i * floats, s->base + s->at * floats, floats * sizeof(float));
        rows[i] = (struct core_row){
            .position = i, .token = w->rows[row + i].token, .prefill = core_rows_prefill(n)};
    }
    struct core_pass pass = {
        .sequences = offline_sequence(r), .sequence_count = 1, .row = rows, .rows = n};
    uint32_t layers = offline_index(w->job->e->model)->hparams.layers;
    int status = core_pass_layers(offline_core(r), &pass, layers, 0, w->gathered, NULL);
    sl_assert(status == 0);
    return core_output(offline_core(r), 0, n);
}

static int score_rows(struct worker *w, uint32_t row, uint32_t n, struct error *error)
{
    struct core *test = offline_core(w->pair.test);
    size_t vocab = offline_index(w->job->e->model)->hparams.vocab;
    const float *q = core_output(test, row, n);
    if (core_check_output(test, q, n * vocab, error) != 0)
        return -1;
    const float *base = base_logits(w, row, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct stream *s = stream_of(w, row + i);
        if (score_row(w, s->window, s->at, q + i * vocab, base ? base + i * vocab : NULL, error) !=
            0)
            return -1;
    }
    return 0;
}

/* Of the rows of a pass those that are scored; neighbours together. */
static int score_pass(struct worker *w, uint32_t rows, struct error *error)
{
    uint32_t most = core_output_rows(offline_core(w->pair.test));
    if (w->pair.reference && core_output_rows(offline_core(w->pair.reference)) < most)
        most = core_output_rows(offline_core(w->pair.reference));
    for (uint32_t row = 0, n; row < rows; row += n) {
        n = 0;
        while (row + n < rows && n < most && is_scored(w, row + n))
            n++;
        if (n > 0 && score_rows(w, row, n, error) != 0)
            return -1;
        n += n == 0;
    }
    return 0;
}

/* ---- running ---- */

/* Streams end at about the same time, so that their tokens are the steps. */
static int end_pass(struct worker *w, uint32_t rows, struct error *error)
{
    job_progress(w, rows);
    for (uint32_t r = 0; r < rows; r++) {
        if (++stream_of(w, r)->at < w->job->e->text->window)
            continue;
        if (start_window(w, w->row_stream[r], error) != 0)
            return -1;
    }
    return 0;
}

int abreast_run(struct worker *w, struct error *error)
{
    struct job *job = w->job;
    uint32_t rows;
    for (uint32_t i = 0; i < job->streams; i++)
        if (start_window(w, i, error) != 0)
            return -1;
    while ((rows = take_rows(w)) > 0 && !atomic_load(&job->failed)) {
        struct core_pass pass = {
            .sequences = w->sequence, .sequence_count = rows, .row = w->rows, .rows = rows};
        if (core_pass(offline_core(w->pair.test), &pass, error) != 0 ||
            score_pass(w, rows, error) != 0 || end_pass(w, rows, error) != 0)
            return -1;
    }
    return 0;
}
