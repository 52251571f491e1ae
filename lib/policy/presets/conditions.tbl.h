/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the conditions that a measured loss depends on. Each row is compared with what would be
 * served, and the first one that differs voids the loss. A new parameter that changes what a lossy
 * preset computes needs a row here.
 *
 * CONDITION(id, losses, compare, unit, before, after, advice, served, measured, unknown)
 *   id        names the row
 *   losses    LOSS_*: the measured losses that it holds for
 *   compare   how the served value may differ: SAME; AT_MOST, AT_LEAST: it may be smaller, larger;
 *             NO_COARSER: a type of the KV cache with at least as many bits
 *   unit      how a value is written: see units[] in loss.c
 *   before, after, advice
 *             texts of the message: "its loss was measured with BEFORE value AFTER, not value
 *             ADVICE value", the last one only with an advice
 *   served    an expression of `s`, struct served, and `k`, its struct knobs
 *   measured  an expression of `m`, struct measurement: the scalar of the plan; FIXED: every
 *             measurement has the value `unknown`
 *   unknown   what a plan that lacks the scalar was measured with; NAN: the loss counts as not
 *             recorded
 * No include guard. */
CONDITION(dense, LOSS_ALL, SAME, PRECISION, "dense weights at ", "", "; use sluice pack --dense ",
          model_dense_precision(s->model), m->dense, PRECISION_NATIVE)
/* Plans without the record are older than the option of `sluice plan`: f16. */
CONDITION(kv_type, LOSS_ALL, NO_COARSER, KV_TYPE, "--kv-type ", "", "; use --kv-type ", s->kv_type,
          m->kv_type, KV_TYPE_F16)

CONDITION(hobbit_t1, LOSS_HOBBIT, SAME, NUMBER, "t1=", "", NULL, k->t1, PLAN_hobbit_t1, NAN)
CONDITION(hobbit_t2, LOSS_HOBBIT, SAME, NUMBER, "t2=", "", NULL, k->t2, PLAN_hobbit_t2, NAN)
CONDITION(hobbit_skip_renormalise, LOSS_HOBBIT, SAME, SWITCH, "skip_renormalise=", "", NULL,
          k->skip_renormalise, PLAN_hobbit_skip_renormalise, NAN)
CONDITION(hobbit_high, LOSS_HOBBIT, SAME, PRECISION, "high=", "", NULL, s->policy->high,
          PLAN_hobbit_high, NAN)
CONDITION(hobbit_low, LOSS_HOBBIT, SAME, PRECISION, "low=", "", NULL, s->policy->low,
          PLAN_hobbit_low, NAN)

/* Of a share that is resident, with what evicts and does not prefetch. */
CONDITION(hobbit_share, LOSS_HOBBIT, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_hobbit_share, 0)
CONDITION(hobbit_eviction, LOSS_HOBBIT, SAME, EVICT, "eviction=", "", NULL, k->eviction, FIXED,
          at_capacity(s, PLAN_hobbit_share, EVICTION_LEARNED, k->eviction))
CONDITION(hobbit_allocation, LOSS_HOBBIT, SAME, DIVIDE, "allocation=", "", NULL, k->allocation,
          FIXED, at_capacity(s, PLAN_hobbit_share, ALLOCATE_SHARED, k->allocation))
CONDITION(hobbit_prefetch, LOSS_HOBBIT, SAME, PREFETCH, "prefetch=", "", NULL, k->prefetch, FIXED,
          at_capacity(s, PLAN_hobbit_share, PREFETCH_NONE, k->prefetch))

CONDITION(mixed_t1, LOSS_MIXED, SAME, NUMBER, "t1=", "", NULL, k->t1, PLAN_mixed_t1, NAN)
CONDITION(mixed_t2, LOSS_MIXED, SAME, NUMBER, "t2=", "", NULL, k->t2, PLAN_mixed_t2, NAN)
CONDITION(mixed_skip_renormalise, LOSS_MIXED, SAME, SWITCH, "skip_renormalise=", "", NULL,
          k->skip_renormalise, FIXED, false)
CONDITION(mixed_share, LOSS_MIXED, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_mixed_share, 0)
CONDITION(mixed_eviction, LOSS_MIXED, SAME, EVICT, "eviction=", "", NULL, k->eviction, FIXED,
          at_capacity(s, PLAN_mixed_share, EVICTION_LEARNED, k->eviction))
CONDITION(mixed_allocation, LOSS_MIXED, SAME, DIVIDE, "allocation=", "", NULL, k->allocation, FIXED,
          at_capacity(s, PLAN_mixed_share, ALLOCATE_SHARED, k->allocation))
CONDITION(mixed_prefetch, LOSS_MIXED, SAME, PREFETCH, "prefetch=", "", NULL, k->prefetch, FIXED,
          at_capacity(s, PLAN_mixed_share, PREFETCH_NONE, k->prefetch))

/* A larger chunk has other least popular experts. Plans before the record: chunks of 256. */
CONDITION(fate_chunk, LOSS_FATE, AT_MOST, NUMBER, "chunks of ", " tokens", "; use --prefill-chunk ",
          (double)s->prefill_chunk, PLAN_fate_chunk, CHUNK_NOT_RECORDED)
CONDITION(fate_slow_device, LOSS_FATE, SAME, SWITCH, "slow_device=", "", NULL, k->slow_device,
          FIXED, false)
CONDITION(fate_low_fraction, LOSS_FATE, SAME, NUMBER, "low_fraction=", "", NULL, k->low_fraction,
          PLAN_fate_prefill_int2, NAN)
CONDITION(fate_high, LOSS_FATE, SAME, PRECISION, "high=", "", NULL, s->policy->high, PLAN_fate_high,
          NAN)
CONDITION(fate_low, LOSS_FATE, SAME, PRECISION, "low=", "", NULL, s->policy->low, PLAN_fate_low,
          NAN)

/* Which experts are missing is a matter of the eviction, too. With prefetch fewer are missing, so
 * that fewer are replaced. */
CONDITION(reroute_precision, LOSS_REROUTE, SAME, RULE, "precision=", "", NULL, k->precision, FIXED,
          PRECISION_RULE_LOSSLESS)
CONDITION(reroute_eviction, LOSS_REROUTE, SAME, EVICT, "eviction=", "", NULL, k->eviction, FIXED,
          EVICTION_LEARNED)
CONDITION(reroute_allocation, LOSS_REROUTE, SAME, DIVIDE, "allocation=", "", NULL, k->allocation,
          FIXED, ALLOCATE_SHARED)
CONDITION(reroute_exact_ranks, LOSS_REROUTE, AT_LEAST, NUMBER, "exact_ranks=", "", NULL,
          (double)k->exact_ranks, FIXED, 1)
CONDITION(reroute_nats, LOSS_REROUTE, AT_MOST, NUMBER, "nats=", "", NULL, k->nats,
          PLAN_reroute_nats, NAN)
CONDITION(reroute_share, LOSS_REROUTE, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_reroute_share, NAN)

/* Both together: what is low and what is replaced depend on all that decides what is resident. */
CONDITION(joint_t1, LOSS_JOINT, SAME, NUMBER, "t1=", "", NULL, k->t1, PLAN_joint_t1, NAN)
CONDITION(joint_t2, LOSS_JOINT, SAME, NUMBER, "t2=", "", NULL, k->t2, PLAN_joint_t2, NAN)
CONDITION(joint_skip_renormalise, LOSS_JOINT, SAME, SWITCH, "skip_renormalise=", "", NULL,
          k->skip_renormalise, FIXED, false)
CONDITION(joint_eviction, LOSS_JOINT, SAME, EVICT, "eviction=", "", NULL, k->eviction, FIXED,
          EVICTION_LEARNED)
CONDITION(joint_allocation, LOSS_JOINT, SAME, DIVIDE, "allocation=", "", NULL, k->allocation, FIXED,
          ALLOCATE_SHARED)
CONDITION(joint_prefetch, LOSS_JOINT, SAME, PREFETCH, "prefetch=", "", NULL, k->prefetch, FIXED,
          PREFETCH_NONE)
CONDITION(joint_exact_ranks, LOSS_JOINT, AT_LEAST, NUMBER, "exact_ranks=", "", NULL,
          (double)k->exact_ranks, FIXED, 1)
CONDITION(joint_nats, LOSS_JOINT, AT_MOST, NUMBER, "nats=", "", NULL, k->nats, PLAN_joint_nats, NAN)
CONDITION(joint_share, LOSS_JOINT, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_joint_share, NAN)

/* What is left out is missing. Prefetch evicts resident experts and reads none that may be left
 * out, so that with it more are left out than in the measurement. */
CONDITION(drop_t2, LOSS_DROP, AT_LEAST, NUMBER, "t2=", "", NULL, k->t2, PLAN_drop_t2, NAN)
CONDITION(drop_skip_renormalise, LOSS_DROP, SAME, SWITCH, "skip_renormalise=", "", NULL,
          k->skip_renormalise, FIXED, false)
CONDITION(drop_eviction, LOSS_DROP, SAME, EVICT, "eviction=", "", NULL, k->eviction, FIXED,
          EVICTION_LEARNED)
CONDITION(drop_allocation, LOSS_DROP, SAME, DIVIDE, "allocation=", "", NULL, k->allocation, FIXED,
          ALLOCATE_SHARED)
CONDITION(drop_prefetch, LOSS_DROP, SAME, PREFETCH, "prefetch=", "", NULL, k->prefetch, FIXED,
          PREFETCH_NONE)
CONDITION(drop_share, LOSS_DROP, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_drop_share, NAN)

CONDITION(swap_precision, LOSS_SWAP, SAME, RULE, "precision=", "", NULL, k->precision, FIXED,
          PRECISION_RULE_LOSSLESS)
CONDITION(swap_amortise, LOSS_SWAP, SAME, SWITCH, "amortise=", "", NULL, k->amortise, FIXED, true)
CONDITION(swap_count_only, LOSS_SWAP, SAME, SWITCH, "count_only=", "", NULL, k->count_only, FIXED,
          false)
CONDITION(swap_preload, LOSS_SWAP, SAME, PRELOAD, "preload=", "", NULL, k->preload, FIXED,
          PRELOAD_ALL)
/* What prefetch reads would be in the set, too, and what it evicts would not. */
CONDITION(swap_prefetch, LOSS_SWAP, SAME, PREFETCH, "prefetch=", "", NULL, k->prefetch, FIXED,
          PREFETCH_NONE)
CONDITION(swap_interval, LOSS_SWAP, SAME, NUMBER, "interval=", "", NULL, (double)k->interval,
          PLAN_swap_interval, NAN)
CONDITION(swap_margin, LOSS_SWAP, SAME, NUMBER, "margin=", "", NULL, k->margin, PLAN_swap_margin,
          NAN)
/* The policy limits a chunk. Plans whose sets changed between chunks of 256 only have a larger
 * loss. */
CONDITION(swap_chunk, LOSS_SWAP, AT_MOST, NUMBER, "chunks of ", " tokens", "; use --prefill-chunk ",
          swap_chunk(s), PLAN_swap_chunk, NAN)
CONDITION(swap_share, LOSS_SWAP, AT_LEAST, SHARE, "", " of the experts resident", NULL,
          s->resident_share, PLAN_swap_share, NAN)
/* Replacements wait for the storage device: the set is late where it reads fewer experts while a
 * token is computed, because it is slower, or because tokens are computed faster. Plans without the
 * record: as their times say. */
CONDITION(swap_reads_per_token, LOSS_SWAP, AT_LEAST, NUMBER, "a storage device that reads ",
          " experts while a token is computed", NULL, served_pace(s), PLAN_swap_reads_per_token,
          measured_pace(s->plan))
CONDITION(swap_threads, LOSS_SWAP, AT_MOST, NUMBER, "", " threads", "; use --threads ",
          (double)s->threads, PLAN_threads, INFINITY)
CONDITION(swap_gpu, LOSS_SWAP, SAME, SWITCH, "GPU ", "", NULL, s->gpu, FIXED, false)
#undef CONDITION
