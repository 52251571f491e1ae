/* SPDX-License-Identifier: Apache-2.0 */
/* Presets: named sets of policies. PRESET(name, settings, doc): settings in the syntax of
 * knobs_apply; a parameter that is not named keeps the default of knobs.tbl.h. Append only: the
 * number of a preset travels in messages. No include guard. */
PRESET(
    "default", "eviction=learned,prefetch=auto,preload=most,lookahead=2",
    "lossless: eviction by access probability and layer distance, prediction by the next layers' "
    "routers, prefetch only while it reduces token time, free space filled where most experts fit")
PRESET("lod-nocache", "allocation=transient,prediction=none,prefetch=none",
       "each expert is loaded on demand and evicted after its layer")
PRESET("lod", "prediction=none,prefetch=none", "load on demand, one LRU cache")
PRESET("eap", "eviction=arc,allocation=fate,prediction=path1,prefetch=credit",
       "Fate's cache, prediction from expert paths")
PRESET(
    "edgemoe",
    "eviction=edgemoe,prediction=path2,prefetch=until-router,precision=edgemoe,preload=frequency",
    "EdgeMoE: one precision per expert, prediction from paths of two layers, eviction by frequency "
    "and layer distance")
PRESET("hobbit",
       "eviction=hobbit,allocation=precisions,prediction=next-layer,prefill_prediction=layer,"
       "lookahead=2,prefetch=demand-first,precision=hobbit",
       "HOBBIT: two precisions by gate weight, adaptive lookahead, eviction by four records")
PRESET("fate",
       "eviction=arc,allocation=fate,prediction=fate,prefetch=credit,precision=fate,high=int4,low="
       "int2",
       "Fate: predictions above the 75th percentile, shallow layers fully resident, ARC, int4 and "
       "int2")
PRESET("swapmoe",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=swap,preload=all",
       "SwapMoE: routing only to resident experts, which are replaced by importance")
PRESET("auto", "eviction=learned,prefetch=auto,preload=frequency,lookahead=2",
       "learned eviction, prefetch only while it reduces token time; an engine with a plan chooses "
       "among presets by token time")
PRESET("iq8", "prediction=none,prefetch=none,precision=uniform-int8", "every expert at 8 bits")
PRESET("iq4", "prediction=none,prefetch=none,precision=uniform-int4", "every expert at 4 bits")
PRESET("iq2", "prediction=none,prefetch=none,precision=uniform-int2", "every expert at 2 bits")
PRESET("pruned",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=norm,preload=all",
       "only the experts with the largest weight norms of every layer")
PRESET("pruned-freq",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=frequency,preload=all",
       "only the most frequently accessed experts of every layer")
PRESET("layerwise", "eviction=fifo,prediction=layer,prefetch=all,prefill_order=index",
       "whole layers are streamed through the cache")
PRESET("resident", "prediction=none,prefetch=none,preload=all",
       "all experts are loaded before the start")
/* Further candidates of auto (auto.tbl.h). */
PRESET("auto-noprefetch", "eviction=learned,prediction=none,prefetch=none,preload=frequency",
       "auto without prefetch")
PRESET("auto-hobbit-eviction", "eviction=hobbit,prefetch=auto,preload=frequency,lookahead=2",
       "auto with HOBBIT's eviction by four records")
PRESET("auto-mixed", "eviction=learned,precision=edgemoe,preload=frequency,lookahead=2",
       "EdgeMoE's mixed precision with the default's eviction, prefetch whenever storage is idle")
PRESET("auto-mixed-noprefetch",
       "eviction=learned,prediction=none,prefetch=none,precision=edgemoe,preload=frequency",
       "EdgeMoE's mixed precision with the default's eviction, no prefetch")
PRESET("auto-two-precision", "eviction=learned,precision=hobbit,preload=frequency,lookahead=2",
       "HOBBIT's two precisions with the default's eviction, prefetch whenever storage is idle, "
       "one cache for both")
PRESET("auto-int8", "eviction=learned,precision=uniform-int8,preload=frequency,lookahead=2",
       "every expert at 8 bits, the default's eviction, prefetch whenever storage is idle")
PRESET("auto-int4", "eviction=learned,precision=uniform-int4,preload=frequency,lookahead=2",
       "every expert at 4 bits, the default's eviction, prefetch whenever storage is idle")
PRESET("auto-int2", "eviction=learned,precision=uniform-int2,preload=frequency,lookahead=2",
       "every expert at 2 bits, the default's eviction, prefetch whenever storage is idle")
PRESET("auto-prefetch", "eviction=learned,preload=frequency,lookahead=2",
       "auto with prefetch whenever storage is idle")
/* Baselines, as published. */
PRESET(
    "mixtral-offload", "allocation=even,predict_k=2,prefetch=demand-first",
    "Mixtral-offloading (arXiv:2312.17238): an LRU cache per layer, two experts of the next layer "
    "predicted by its router")
PRESET("moe-infinity",
       "eviction=activation,prediction=activation,lookahead=4,prefetch=demand-first",
       "MoE-Infinity (arXiv:2401.14361): predictions from a similar earlier sequence, eviction by "
       "accesses in this sequence and by layer")
/* Further candidates of auto. */
PRESET("auto-resident-first",
       "eviction=learned,prefetch=auto,preload=frequency,lookahead=2,routing=resident-first",
       "auto with cache-aware routing: in decode, resident experts in the places of missing ones "
       "that are little better")
PRESET("auto-resident-first-noprefetch",
       "eviction=learned,prediction=none,prefetch=none,preload=frequency,routing=resident-first",
       "the same without prefetch")
PRESET("auto-two-precision-noprefetch",
       "eviction=learned,prediction=none,prefetch=none,precision=hobbit,preload=frequency",
       "HOBBIT's two precisions with the default's eviction, no prefetch, one cache for both")
/* Two rules together. */
PRESET("mixed-two",
       "eviction=learned,prediction=none,prefetch=none,precision=mixed-two,preload=frequency",
       "EdgeMoE's precision per expert, and a lower one by gate weight as HOBBIT, planned "
       "together; the default's eviction, no prefetch")
PRESET("mixed-two-resident-first",
       "eviction=learned,prediction=none,prefetch=none,precision=mixed-two,preload=frequency,"
       "routing=resident-first",
       "mixed-two with cache-aware routing, planned together; the default's eviction, no prefetch")
/* Further candidates of auto: prefetch that switches itself off. */
PRESET("auto-mixed-adaptive",
       "eviction=learned,prefetch=auto,precision=edgemoe,preload=frequency,lookahead=2",
       "EdgeMoE's mixed precision with the default's eviction, prefetch only while it reduces "
       "token time")
PRESET("auto-two-precision-adaptive",
       "eviction=learned,prefetch=auto,precision=hobbit,preload=frequency,lookahead=2",
       "HOBBIT's two precisions with the default's eviction, prefetch only while it reduces token "
       "time, one cache for both")
PRESET("mixed-two-adaptive",
       "eviction=learned,prefetch=auto,precision=mixed-two,preload=frequency,lookahead=2",
       "mixed-two with prefetch only while it reduces token time")
/* Missing experts of little weight are left out. */
PRESET("drop", "eviction=learned,prediction=none,prefetch=none,precision=drop,preload=frequency",
       "in decode, an expert of little weight is left out where it is not resident; the default's "
       "eviction, no prefetch")
#undef PRESET
