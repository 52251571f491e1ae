/* SPDX-License-Identifier: Apache-2.0 */
/* Causes of exit of a child, as in the stats snapshot and the metrics.
 * EXIT_CAUSE(NAME, text)
 * No include guard. */
EXIT_CAUSE(START, "start")         /* not ready in time and therefore killed, or never spawned */
EXIT_CAUSE(SIGNAL, "signal")       /* from itself, the kernel or another process */
EXIT_CAUSE(EXIT, "exit")           /* it exited with a status */
EXIT_CAUSE(HEARTBEAT, "heartbeat") /* killed: heartbeat too old */
EXIT_CAUSE(REQUESTED, "requested") /* ctl restart, ctl replace, or the stop of the engine */
EXIT_CAUSE(OOM, "oom")             /* killed by the kernel for lack of memory */
#undef EXIT_CAUSE
