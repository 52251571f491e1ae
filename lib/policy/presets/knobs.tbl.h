/* Knobs of a system: everything its policies leave open. No include guard; undefined macros expand
 * to nothing and all are undefined at the end.
 * KNOB_CHOICE(name, default, "a|b|c", help)
 * KNOB_F64(name, default, least, most, help)
 * KNOB_U64(name, default, least, most, help)
 * KNOB_BOOL(name, default, help)                   on | off */
#ifndef KNOB_CHOICE
#define KNOB_CHOICE(name, def, choices, help)
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
KNOB_CHOICE(eviction, "lru", RESIDENCY_EVICTIONS, "which resident expert leaves first")
KNOB_CHOICE(allocation, "shared", RESIDENCY_ALLOCATIONS, "who may hold how much of the room")
KNOB_CHOICE(prediction, "next-layer", PREDICTIONS, "where guesses about coming experts come from")
KNOB_CHOICE(prefetch, "idle", PREFETCH_LIMITS, "when a guess may be loaded")
KNOB_CHOICE(precision, "lossless", PRECISION_RULES, "which tiers may serve a use")
KNOB_CHOICE(routing, "exact", ROUTINGS, "masked: only experts of a set are routed to")
KNOB_CHOICE(mask, "none", "none|norm|frequency|swap",
            "masked routing: the set is the largest norms, the most used, or swapped in")
KNOB_CHOICE(prefill_order, "popularity", PREFILL_ORDERS,
            "order in which a chunk's missing experts are loaded")
KNOB_CHOICE(
    preload, "none", "none|frequency|all",
    "what the room is filled with before the first use; frequency: by the plan, else in order")
KNOB_U64(predict_k, 0, 0, 256, "experts guessed per layer; 0 takes the model's top-k")
KNOB_U64(lookahead, 1, 1, 4, "next-layer: layers looked ahead while all guesses are resident")
KNOB_CHOICE(high, "auto", "auto|native|int8|int4|int2", "the better tier of hobbit and fate")
KNOB_CHOICE(low, "auto", "auto|native|int8|int4|int2",
            "the worse tier; auto: nearest to a quarter of the better one's bytes")
KNOB_F64(t1, 0.6, 0, 1, "hobbit: gate weights before an expert up to which it is high")
KNOB_F64(t2, 0.9, 0, 1, "hobbit: the same up to which it is low; beyond, skipped")
KNOB_BOOL(skip_renormalise, false, "hobbit: a skipped expert's gate weight goes to the others")
KNOB_F64(share_high, 0.75, 0, 1, "allocation tiers: share of the room of the better tier")
KNOB_F64(w_lru, 0.4, 0, 1, "hobbit: weight of the last use; the four are scaled to sum 1")
KNOB_F64(w_lfu, 0.3, 0, 1, "hobbit: weight of the uses")
KNOB_F64(w_lhu, 0.2, 0, 1, "hobbit: weight of the uses whose need was high")
KNOB_F64(w_fld, 0.1, 0, 1, "hobbit: weight of the layer's distance")
KNOB_BOOL(fld_next, false, "hobbit: the layer needed next is nearest, the running one farthest")
KNOB_CHOICE(records, "sequence", "sequence|model",
            "hobbit: records are reset at a sequence's start")
KNOB_CHOICE(frequency, "online", "online|profile", "edgemoe: counted while running or by profile")
KNOB_U64(boundary, 0, 0, 512, "fate: layers below it are kept whole; 0 takes the plan's, or 1")
KNOB_F64(low_fraction, 0.25, 0, 1, "fate: least popular share of a chunk's experts that may be low")
KNOB_BOOL(slow_device, false, "fate: in decode an expert no guess named may be low")
KNOB_U64(interval, 96, 1, 1048576, "swap: tokens between updates of a layer's set")
KNOB_F64(margin, 1, 0, 1000,
         "swap: a newcomer must be more important than who leaves by so many means of the layer")
KNOB_BOOL(amortise, true, "swap: updates are spread over the interval")
KNOB_BOOL(count_only, false, "swap: importance is the number of tokens")
KNOB_U64(seed, 1, 0, UINT64_MAX, "of policies that draw at random")
#undef KNOB_CHOICE
#undef KNOB_F64
#undef KNOB_U64
#undef KNOB_BOOL
