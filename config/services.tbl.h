/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes of the supervisor, in start order; they stop in reverse order.
 *
 *   SERVICE(ID, name, program, ready_ms, after, essential, oom)
 *   ready_ms   time limit for the ready byte
 *   after      bit mask of the services that must be READY before it is spawned
 *   essential  1: the engine stops when this service fails to start, and requests fail while it
 *              crashes again and again
 *   oom        its oom_score_adj above that of the engine, 0 to 1000: those whose exit costs little
 *              and is repaired soonest are killed first. The differences below 1000 are small,
 *              since pages of the arena count, up to 1000, for loaders and compute */
SERVICE(RECORDER, "recorder", "sluice-recorder", 10000, 0, 0, 1000)
SERVICE(CACHE, "cache", "sluice-cache", 15000, 0, 1, 5)
SERVICE(LOADER, "loader", "sluice-loader", 10000, 1u << SERVICE_CACHE, 1, 15)
SERVICE(PREDICTOR, "predictor", "sluice-predictor", 10000, 1u << SERVICE_CACHE, 0, 1000)
SERVICE(COMPUTE, "compute", "sluice-compute", 600000,
        (1u << SERVICE_CACHE) | (1u << SERVICE_LOADER), 1, 10)
SERVICE(GATEWAY, "gateway", "sluice-gateway", 10000, 0, 0, 1000)
#undef SERVICE
