/* Systems: named sets of policies. SYSTEM(name, settings, doc): settings as knobs_apply takes them;
 * a knob that is not named keeps the default of knobs.tbl.h. Append only: a system's number travels
 * in messages. No include guard. */
SYSTEM(
    "default", "eviction=logits,ahead=2",
    "lossless: eviction by chance of use and layer, the next layers' routers on this gate input, "
    "idle prefetch")
SYSTEM("lod-nocache", "allocation=transient,prediction=none,limit=none",
       "experts are read when they are needed and kept for their layer only")
SYSTEM("lod", "prediction=none,limit=none", "load on demand, LRU over the whole room")
SYSTEM("eap", "eviction=arc,allocation=fate,prediction=path1,limit=credit",
       "Fate's cache with guesses from expert paths")
SYSTEM("edgemoe",
       "eviction=edgemoe,prediction=path2,limit=until-router,precision=edgemoe,warm=frequency",
       "EdgeMoE: a width per expert, paths of two layers, eviction by frequency and layer")
SYSTEM("hobbit",
       "eviction=hobbit,allocation=tiers,prediction=next-layer,ahead=2,limit=demand-first,"
       "precision=hobbit",
       "HOBBIT: two precisions by gate weight, adaptive look ahead, four records")
SYSTEM(
    "fate",
    "eviction=arc,allocation=fate,prediction=fate,limit=credit,precision=fate,high=int4,low=int2",
    "Fate: 75th percentile guesses, shallow layers kept whole, ARC, int4 and int2")
SYSTEM("swapmoe", "allocation=planned,prediction=none,limit=none,routing=masked,mask=swap,warm=all",
       "SwapMoE: routing to resident experts, which are swapped by importance")
SYSTEM("auto", "eviction=logits,limit=auto,warm=frequency,ahead=2",
       "what pays: eviction by chance of use and layer, prefetch while it is measured to help")
SYSTEM("iq8", "prediction=none,limit=none,precision=uniform-int8", "every expert at 8 bits")
SYSTEM("iq4", "prediction=none,limit=none,precision=uniform-int4", "every expert at 4 bits")
SYSTEM("iq2", "prediction=none,limit=none,precision=uniform-int2", "every expert at 2 bits")
SYSTEM("pruned", "allocation=planned,prediction=none,limit=none,routing=masked,mask=norm,warm=all",
       "the experts with the largest weights of every layer, no others")
SYSTEM("pruned-freq",
       "allocation=planned,prediction=none,limit=none,routing=masked,mask=frequency,warm=all",
       "the most used experts of every layer, no others")
SYSTEM("layerwise", "eviction=fifo,prediction=layer,limit=all,prefill_order=index",
       "whole layers are streamed through the room")
SYSTEM("resident", "prediction=none,limit=none,warm=all", "everything loaded before the start")
/* What auto chooses among beside the others (auto.tbl.h). */
SYSTEM("auto-quiet", "eviction=logits,prediction=none,limit=none,warm=frequency",
       "auto without prefetch")
SYSTEM("auto-records", "eviction=hobbit,limit=auto,warm=frequency,ahead=2",
       "lossless, HOBBIT's four records, prefetch while it is measured to help")
SYSTEM("auto-widths", "eviction=logits,precision=edgemoe,warm=frequency,ahead=2",
       "EdgeMoE's widths with the default's eviction and prefetch")
SYSTEM("auto-widths-quiet",
       "eviction=logits,prediction=none,limit=none,precision=edgemoe,warm=frequency",
       "EdgeMoE's widths with the default's eviction, no prefetch")
SYSTEM("auto-tiers", "eviction=logits,precision=hobbit,warm=frequency,ahead=2",
       "HOBBIT's two precisions with the default's eviction and prefetch, one room for both")
SYSTEM("auto-int8", "eviction=logits,precision=uniform-int8,warm=frequency,ahead=2",
       "every expert at 8 bits, with the default's eviction and prefetch")
SYSTEM("auto-int4", "eviction=logits,precision=uniform-int4,warm=frequency,ahead=2",
       "the same at 4 bits")
SYSTEM("auto-int2", "eviction=logits,precision=uniform-int2,warm=frequency,ahead=2",
       "the same at 2 bits")
SYSTEM("auto-guess", "eviction=logits,warm=frequency,ahead=2",
       "the default, and free room is filled")
#undef SYSTEM
