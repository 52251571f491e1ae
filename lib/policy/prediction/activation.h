/* SPDX-License-Identifier: Apache-2.0 */
/* Activation matrices (MoE-Infinity, arXiv:2401.14361 §4, §5): how often a sequence accessed each
 * expert. A new sequence is predicted to continue like an earlier one: the one with the largest
 * similarity.
 *
 * Matrix: counts[layer][expert], tokens of one sequence, prompt included; each running sequence has
 * its own (lib/policy/sequences.h). When a sequence ends, its matrix joins the collection of
 * ACTIVATION_MATRICES; a full collection replaces the one with the largest similarity to it.
 * Similarity: cosine of the rows, mean over the layers in which both have counts.
 *
 * Prediction for layer l at layer n of L: the experts with the largest share of the matched row,
 * weighted by 1 - (l - n) / L; without an earlier sequence, of the current one. The paper orders
 * one queue of all later layers by this priority; here each layer has a list, and nearer layers
 * come first. Not thread-safe. */
#ifndef SLUICE_POLICY_PREDICTION_ACTIVATION_H
#define SLUICE_POLICY_PREDICTION_ACTIVATION_H

#include <stddef.h>
#include <stdint.h>

#include "lib/policy/prediction/prediction.h"
#include "lib/policy/sequences.h"

#define ACTIVATION_MATRICES 120u

struct activation;

/* Allocates everything that is needed later. Returns NULL when memory is short. */
struct activation *activation_create(uint32_t layers, uint32_t experts);
void activation_destroy(struct activation *a);

/* Bytes that activation_create allocates. */
size_t activation_bytes(uint32_t layers, uint32_t experts);

/* `tokens` tokens of a pass of the sequence access the expert. Its first access starts a
 * sequence. */
void activation_access(struct activation *a, uint32_t sequence, uint32_t layer, uint32_t expert,
                       uint32_t tokens);

/* The sequence has ended: its matrix joins the collection. A sequence without an access has no
 * effect. */
void activation_sequence_ends(struct activation *a, uint32_t sequence);

/* Writes predictions for `layer`, while a sequence is at `now`, to out, at most `want`, in
 * descending probability, and returns their number. Experts without counts are left out, so there
 * are no predictions before the first access of the sequence. The earlier sequence that it
 * resembles is chosen once per position. */
uint32_t activation_predict(struct activation *a, const struct prediction_place *now,
                            uint32_t layer, uint32_t want, uint32_t top_k, struct prediction *out);

#endif
