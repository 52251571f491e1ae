/* Why a child ended, as the document and the metrics tell it.
 * DEATH(NAME, word)
 * No include guard. */
DEATH(START, "start")         /* not ready in time, and killed for it; or never spawned */
DEATH(SIGNAL, "signal")       /* of itself, of the kernel, or of somebody else */
DEATH(EXIT, "exit")           /* by itself, with a status */
DEATH(HEARTBEAT, "heartbeat") /* killed: no sign of life */
DEATH(ASKED, "asked")         /* ctl restart, ctl replace, or the run's end */
#undef DEATH
