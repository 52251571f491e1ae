/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the GPU, from its object in the stats snapshot and compute's counters. "sluice_gpu_"
 * is put before their names, and the label gpu (its number; of several: "0,1", and their sums)
 * before their labels.
 * METRIC(name, type, help)      starts a metric
 * VALUE(counter, labels, scale) a counter gpu_* of compute
 * AT(path, labels)              a number of the object
 * No include guard. */
METRIC(layers, gauge, "Layers that GPUs compute.")
AT("layers", "")
METRIC(memory_budget_bytes, gauge, "Maximum memory of the GPU that is used.")
AT("budget_bytes", "")
METRIC(memory_part_bytes, gauge, "Memory of the GPU planned for one part.")
AT("plan.context", ",part=\"context\"")
AT("plan.weights", ",part=\"weights\"")
AT("plan.activations", ",part=\"activations\"")
AT("plan.kv", ",part=\"kv\"")
AT("plan.experts", ",part=\"experts\"")
METRIC(expert_slots, gauge, "Slots for experts on the GPU.")
AT("slots", "")
METRIC(expert_slots_used, gauge, "Slots on the GPU that have an expert.")
AT("slots_used", "")
METRIC(expert_uses_total, counter, "Uses of experts on the GPU, by whether they were there.")
VALUE(expert_hits, ",result=\"hit\"", 1)
VALUE(expert_uploads, ",result=\"upload\"", 1)
VALUE(expert_on_cpu, ",result=\"cpu\"", 1)
METRIC(expert_evictions_total, counter, "Experts whose slot on the GPU another one got.")
VALUE(expert_evictions, "", 1)
METRIC(prefetch_total, counter,
       "Experts copied to the GPU ahead, by what became of the copy before the first use.")
VALUE(prefetches_timely, ",result=\"timely\"", 1)
VALUE(prefetches_late, ",result=\"late\"", 1)
VALUE(prefetches_unused, ",result=\"unused\"", 1)
METRIC(policy, gauge, "Policy of the next token: 0 gpu-centric, 1 cooperative, 2 prefetch.")
VALUE(policy, "", 1)
METRIC(policy_trials_total, counter, "Choices of --gpu-policy auto.")
VALUE(trials, "", 1)
METRIC(policy_token_seconds, gauge, "Time per token in the last trial; 0: not measured.")
VALUE(centric_token_ns, ",policy=\"gpu-centric\"", 1e-9)
VALUE(cooperative_token_ns, ",policy=\"cooperative\"", 1e-9)
VALUE(prefetch_token_ns, ",policy=\"prefetch\"", 1e-9)
METRIC(graph_launches_total, counter, "Tokens computed by one launch of a graph.")
VALUE(graph_launches, "", 1)
METRIC(copied_bytes_total, counter, "Bytes copied to and from the GPU.")
VALUE(uploaded_bytes, ",direction=\"to\"", 1)
VALUE(downloaded_bytes, ",direction=\"from\"", 1)
METRIC(busy_seconds_total, counter, "Time with work on the GPU.")
VALUE(busy_ns, "", 1e-9)
METRIC(lost, gauge, "1: the GPU failed, and compute continues on the CPU.")
VALUE(lost, "", 1)
#undef METRIC
#undef VALUE
#undef AT
