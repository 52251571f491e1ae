/* Systems: named sets of policies. PRESET(name, settings, doc): settings as knobs_apply takes them;
 * a knob that is not named keeps the default of knobs.tbl.h. Append only: a system's number travels
 * in messages. No include guard. */
PRESET(
    "default", "eviction=learned,lookahead=2",
    "lossless: eviction by chance of use and layer, the next layers' routers on this gate input, "
    "idle prefetch")
PRESET("lod-nocache", "allocation=transient,prediction=none,prefetch=none",
       "experts are read when they are needed and kept for their layer only")
PRESET("lod", "prediction=none,prefetch=none", "load on demand, LRU over the whole room")
PRESET("eap", "eviction=arc,allocation=fate,prediction=path1,prefetch=credit",
       "Fate's cache with guesses from expert paths")
PRESET(
    "edgemoe",
    "eviction=edgemoe,prediction=path2,prefetch=until-router,precision=edgemoe,preload=frequency",
    "EdgeMoE: a width per expert, paths of two layers, eviction by frequency and layer")
PRESET(
    "hobbit",
    "eviction=hobbit,allocation=precisions,prediction=next-layer,lookahead=2,prefetch=demand-first,"
    "precision=hobbit",
    "HOBBIT: two precisions by gate weight, adaptive look ahead, four records")
PRESET("fate",
       "eviction=arc,allocation=fate,prediction=fate,prefetch=credit,precision=fate,high=int4,low="
       "int2",
       "Fate: 75th percentile guesses, shallow layers kept whole, ARC, int4 and int2")
PRESET("swapmoe",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=swap,preload=all",
       "SwapMoE: routing to resident experts, which are swapped by importance")
PRESET("auto", "eviction=learned,prefetch=auto,preload=frequency,lookahead=2",
       "what pays: eviction by chance of use and layer, prefetch while it is measured to help")
PRESET("iq8", "prediction=none,prefetch=none,precision=uniform-int8", "every expert at 8 bits")
PRESET("iq4", "prediction=none,prefetch=none,precision=uniform-int4", "every expert at 4 bits")
PRESET("iq2", "prediction=none,prefetch=none,precision=uniform-int2", "every expert at 2 bits")
PRESET("pruned",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=norm,preload=all",
       "the experts with the largest weights of every layer, no others")
PRESET("pruned-freq",
       "allocation=planned,prediction=none,prefetch=none,routing=masked,mask=frequency,preload=all",
       "the most used experts of every layer, no others")
PRESET("layerwise", "eviction=fifo,prediction=layer,prefetch=all,prefill_order=index",
       "whole layers are streamed through the room")
PRESET("resident", "prediction=none,prefetch=none,preload=all",
       "everything loaded before the start")
/* What auto chooses among beside the others (auto.tbl.h). */
PRESET("auto-noprefetch", "eviction=learned,prediction=none,prefetch=none,preload=frequency",
       "auto without prefetch")
PRESET("auto-hobbit-eviction", "eviction=hobbit,prefetch=auto,preload=frequency,lookahead=2",
       "lossless, HOBBIT's four records, prefetch while it is measured to help")
PRESET("auto-mixed", "eviction=learned,precision=edgemoe,preload=frequency,lookahead=2",
       "EdgeMoE's widths with the default's eviction and prefetch")
PRESET("auto-mixed-noprefetch",
       "eviction=learned,prediction=none,prefetch=none,precision=edgemoe,preload=frequency",
       "EdgeMoE's widths with the default's eviction, no prefetch")
PRESET("auto-two-precision", "eviction=learned,precision=hobbit,preload=frequency,lookahead=2",
       "HOBBIT's two precisions with the default's eviction and prefetch, one room for both")
PRESET("auto-int8", "eviction=learned,precision=uniform-int8,preload=frequency,lookahead=2",
       "every expert at 8 bits, with the default's eviction and prefetch")
PRESET("auto-int4", "eviction=learned,precision=uniform-int4,preload=frequency,lookahead=2",
       "the same at 4 bits")
PRESET("auto-int2", "eviction=learned,precision=uniform-int2,preload=frequency,lookahead=2",
       "the same at 2 bits")
PRESET("auto-prefetch", "eviction=learned,preload=frequency,lookahead=2",
       "the default, and free room is filled")
#undef PRESET
