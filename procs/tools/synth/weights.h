/* The tensors of a synthetic model, and their bytes: a function of shape and seed alone, in pieces
 * that threads may make in any order.
 *
 * How weights make routing. Every embedding is
 *     sqrt(CONSTANT) * c  +  sqrt(1 - CONSTANT) * (sqrt(locality) * u[group] + sqrt(1 - locality) *
 * v[token]) with c one +-1 vector of the whole model, u and v normal, a group being TOKEN_GROUP
 * ids. The row of expert e in a layer's router is bias[e] * c / (norm of c in the normed residual)
 * +  deviation * n[e] / sqrt(hidden),  n[e] normal, no c in it so its logit is bias[e] (the skew,
 * normal over the experts of a layer) plus a normal number that tokens of a group have partly in
 * common (the locality). Layers add `update` to the variance of the residual stream, evenly;
 * matrices have deviation 1/sqrt(k), so that nothing grows beyond it. */
#ifndef SLUICE_TOOLS_SYNTH_WEIGHTS_H
#define SLUICE_TOOLS_SYNTH_WEIGHTS_H

#include "lib/model/limits.h"
#include "procs/tools/synth/shape.h"

#define WEIGHTS_PIECE_BYTES (1u << 20) /* one piece is at most this, or one row */

enum filling { FILL_ONES, FILL_RANDOM, FILL_EMBEDDING, FILL_ROUTER };

struct tensor {
    char name[MODEL_NAME_BYTES];
    uint32_t type, dims, layer;
    uint64_t ne[3];
    uint64_t row_bytes, rows; /* rows: ne[1] * ne[2] */
    uint64_t piece_rows;      /* rows per piece; the last piece may have fewer */
    enum filling filling;
    float deviation; /* of FILL_RANDOM */
};

struct weights {
    const struct shape *shape;
    struct tensor *tensors; /* in file order */
    uint32_t count;
    float *constant; /* c: hidden numbers, +-1 */
};

/* Lists the tensors and tells the writer about them. */
int weights_open(struct weights *w, const struct shape *shape, struct gguf_writer *out,
                 struct error *error);
void weights_close(struct weights *w);

/* Floats a thread needs to make pieces. */
uint64_t weights_scratch(const struct weights *w);

/* The piece of tensor t that begins at a row: *bytes of it in out. `first_row` is a multiple of
 * piece_rows. */
void weights_piece(const struct weights *w, uint32_t t, uint64_t first_row, float *scratch,
                   void *out, uint64_t *bytes);

#endif
