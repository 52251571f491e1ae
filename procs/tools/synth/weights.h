/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a synthetic model and their bytes: a function of shape and seed only, in pieces
 * that threads may generate in any order.
 *
 * Routing. Every embedding is
 *     sqrt(CONSTANT) * c
 *     + sqrt(1 - CONSTANT) * (sqrt(locality) * u[group] + sqrt(1 - locality) * v[token])
 * with c one +-1 vector of the model, u and v normal, a group being TOKEN_GROUP ids. The row of
 * expert e in the router of a layer is
 *     bias[e] * c / (norm of c in the normed residual)  +  deviation * n[e] / sqrt(hidden)
 * with n[e] normal and orthogonal to c. So its logit is bias[e] (skew: normal over the experts of a
 * layer) plus a normal number that is partly common to the tokens of a group (locality). Layers add
 * `update` to the variance of the residual stream, evenly; matrices have deviation 1/sqrt(k), so
 * that nothing else grows. A model's factors of the embedding and of updates are divided out; rows
 * of a router that reads the residual without a norm are smaller by its deviation. The norm before
 * the output makes logits of variance 1, also where the output is the embedding.
 *
 * A matrix of NVFP4 has FP4_DEVIATION, and a scale that makes it what it should be: a number of its
 * own within 25 %, one for each expert. */
#ifndef SLUICE_TOOLS_SYNTH_WEIGHTS_H
#define SLUICE_TOOLS_SYNTH_WEIGHTS_H

#include "lib/model/limits.h"
#include "procs/tools/synth/shape.h"
#include "procs/tools/synth/types/encoder.h"

#define WEIGHTS_PIECE_BYTES (1u << 20) /* maximum of a piece, or one row */

enum filling {
    FILL_ONES,
    FILL_RANDOM,
    FILL_EMBEDDING,
    FILL_ROUTER,
    FILL_SCALE,
    FILL_DECAYS,
    FILL_IDS
};

struct tensor {
    char name[MODEL_NAME_BYTES];
    uint32_t type, dims, layer;
    uint64_t ne[3];
    uint64_t row_bytes, rows; /* rows: ne[1] * ne[2] */
    uint64_t piece_rows;      /* rows per piece; the last piece may have fewer */
    enum filling filling;
    float deviation; /* of FILL_RANDOM; mean of FILL_SCALE */
    float level;     /* of FILL_ONES: 1, or another value */
};

struct weights {
    const struct shape *shape;
    struct tensor *tensors; /* in file order */
    uint32_t count;
    struct encoder *embedding;
    float *constant; /* c: `hidden` numbers, +-1 */
};

/* Lists the tensors and declares them to the writer. `shape` is borrowed. -1 with an error;
 * weights_close is needed in either case. */
int weights_open(struct weights *w, const struct shape *shape, struct gguf_writer *out,
                 struct error *error);
void weights_close(struct weights *w);

/* Number of floats of the scratch buffer of a thread. */
uint64_t weights_scratch(const struct weights *w);

/* Generates the piece of tensor t that starts at first_row (a multiple of piece_rows): *bytes of it
 * in out. */
void weights_piece(const struct weights *w, uint32_t t, uint64_t first_row, float *scratch,
                   void *out, uint64_t *bytes);

#endif
