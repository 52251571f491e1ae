/* SPDX-License-Identifier: Apache-2.0 */
/* Policy parameters: the values that the policies of a preset leave open. No include guard;
 * undefined macros expand to nothing and all are undefined at the end.
 * KNOB_CHOICE(name, default, enum, LIST, help)        LIST: see choice.h
 * KNOB_F64(name, default, min, max, help)
 * KNOB_U64(name, default, min, max, help)
 * KNOB_BOOL(name, default, help)                   on | off */
#ifndef KNOB_CHOICE
#define KNOB_CHOICE(name, def, type, LIST, help)
#endif
#ifndef KNOB_F64
#define KNOB_F64(name, def, min, max, help)
#endif
#ifndef KNOB_U64
#define KNOB_U64(name, def, min, max, help)
#endif
#ifndef KNOB_BOOL
#define KNOB_BOOL(name, def, help)
#endif
KNOB_CHOICE(eviction, EVICTION_LRU, enum eviction, EVICTION_LIST, "eviction policy")
KNOB_CHOICE(allocation, ALLOCATE_SHARED, enum allocation, ALLOCATION_LIST,
            "how the capacity is divided among experts")
KNOB_CHOICE(prediction, PREDICTION_NEXT_LAYER, enum prediction_kind, PREDICTION_LIST,
            "source of the predictions")
KNOB_CHOICE(prefetch, PREFETCH_IDLE, enum prefetch_rule, PREFETCH_LIST,
            "when a predicted expert may be loaded")
KNOB_CHOICE(precision, PRECISION_RULE_LOSSLESS, enum precision_rule, PRECISION_RULE_LIST,
            "which precisions may serve an access")
KNOB_CHOICE(routing, ROUTING_EXACT, enum routing_rule, ROUTING_LIST,
            "masked: routing only to the experts of a set; resident-first: in decode, a resident "
            "expert takes the place of a missing one that is little better")
KNOB_F64(
    nats, 0.4, 0, 100,
    "resident-first: how much higher the logit of the missing expert may be; where a router has "
    "a bias or groups, its odds above what it needs to be chosen, which count up to 4; 0: exact")
KNOB_U64(exact_ranks, 1, 1, 256, "resident-first: so many first choices of the router always stay")
KNOB_CHOICE(mask, MASK_NONE, enum routing_mask, MASK_LIST,
            "set of masked routing: largest norms, most accessed, or replaced by importance")
KNOB_CHOICE(prefill_order, PREFILL_ORDER_POPULARITY, enum prefill_order, PREFILL_ORDER_LIST,
            "order in which the missing experts of a chunk are loaded")
KNOB_CHOICE(
    preload, PRELOAD_NONE, enum preload, PRELOAD_LIST,
    "experts loaded into free space while storage is idle; frequency: by the plan, without a "
    "plan in order; most: as frequency where two thirds of them or more fit")
KNOB_U64(predict_k, 0, 0, 256, "experts predicted per layer; 0: the model's top-k")
KNOB_CHOICE(
    prefill_prediction, PREFILL_PREDICTION_POPULARITY, enum prefill_prediction,
    PREFILL_PREDICTION_LIST,
    "next-layer, fate, in prefill: experts that the chunk probably accesses, or the whole layer")
KNOB_U64(lookahead, 1, 1, 4,
         "next-layer, activation: maximum layers predicted ahead, while all nearer predictions are "
         "resident")
KNOB_CHOICE(high, PRECISION_SETTING_AUTO, enum precision_setting, PRECISION_SETTING_LIST,
            "hobbit, fate: the higher precision; auto: the highest the model has")
KNOB_CHOICE(low, PRECISION_SETTING_AUTO, enum precision_setting, PRECISION_SETTING_LIST,
            "hobbit, fate: the lower precision; auto: nearest to a quarter of the bytes of high")
KNOB_F64(
    t1, 0.6, 0, 1,
    "hobbit, mixed-two: an expert whose preceding gate weights sum to at most t1 is served at high")
KNOB_F64(t2, 0.9, 0, 1,
         "hobbit, mixed-two: up to this sum it is served at low; above, skipped unless it is "
         "resident. drop: above this sum, skipped unless it is resident")
KNOB_BOOL(skip_renormalise, false,
          "hobbit, mixed-two, drop: renormalise gate weights over the experts that are not skipped")
KNOB_F64(share_high, 0.75, 0, 1,
         "allocation=precisions: share of the capacity for the higher precision")
KNOB_F64(w_lru, 0.4, 0, 1,
         "hobbit: weight of the last access; the four weights are scaled to sum 1")
KNOB_F64(w_lfu, 0.3, 0, 1, "hobbit: weight of the number of accesses")
KNOB_F64(w_lhu, 0.2, 0, 1, "hobbit: weight of the number of accesses that needed high precision")
KNOB_F64(w_fld, 0.1, 0, 1, "hobbit: weight of the layer distance")
KNOB_BOOL(fld_next, false, "hobbit: distance 0 is the next layer, not the running one")
KNOB_CHOICE(records, RECORDS_SEQUENCE, enum records, RECORDS_LIST,
            "hobbit: sequence: records are reset at the start of each sequence")
KNOB_CHOICE(frequency, FREQUENCY_ONLINE, enum frequency_source, FREQUENCY_LIST,
            "edgemoe: access frequency, counted online or taken from the profile")
KNOB_U64(boundary, 0, 0, 512, "fate: layers below it are fully resident; 0: from the plan, or 1")
KNOB_F64(low_fraction, 0.25, 0, 1,
         "fate: fraction of a chunk's experts (least popular) that may be low")
KNOB_BOOL(slow_device, false, "fate: in decode an expert that was not predicted may be low")
KNOB_U64(interval, 96, 1, 1048576, "swap: tokens between updates of the expert set of a layer")
KNOB_F64(
    margin, 1, 0, 1000,
    "swap: minimum importance advantage over the victim, in units of the layer's mean importance")
KNOB_BOOL(amortise, true, "swap: spread updates over the interval")
KNOB_BOOL(count_only, false, "swap: importance is the token count alone")
KNOB_U64(seed, 1, 0, UINT64_MAX, "seed of the random policies")
#undef KNOB_CHOICE
#undef KNOB_F64
#undef KNOB_U64
#undef KNOB_BOOL
