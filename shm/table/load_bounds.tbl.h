/* SPDX-License-Identifier: Apache-2.0 */
/* Upper bounds of the load time histogram, ascending. LOAD_BOUND(name, ns): one counter of the
 * loader, loads_NAME, and one bucket of the gateway's metrics. No include guard. */
LOAD_BOUND(100us, 100000)
LOAD_BOUND(300us, 300000)
LOAD_BOUND(1ms, 1000000)
LOAD_BOUND(3ms, 3000000)
LOAD_BOUND(10ms, 10000000)
LOAD_BOUND(30ms, 30000000)
LOAD_BOUND(100ms, 100000000)
LOAD_BOUND(300ms, 300000000)
LOAD_BOUND(1s, 1000000000)
LOAD_BOUND(10s, 10000000000)
#undef LOAD_BOUND
