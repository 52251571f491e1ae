/* The processes the supervisor runs.
 * SERVICE(NAME, word, program, ready_ms, after, essential)
 * ready_ms: time to the ready byte; after: bit mask of services that must be READY before it is
 * spawned; essential: 1 = the run ends when it FAILED. Order is the order of start; stop is the
 * reverse. */
SERVICE(RECORDER, "recorder", "sluice-recorder", 10000, 0, 0)
SERVICE(CACHE, "cache", "sluice-cache", 15000, 0, 1)
SERVICE(LOADER, "loader", "sluice-loader", 10000, 1u << SERVICE_CACHE, 1)
SERVICE(PREDICTOR, "predictor", "sluice-predictor", 10000, 1u << SERVICE_CACHE, 0)
SERVICE(COMPUTE, "compute", "sluice-compute", 600000,
        (1u << SERVICE_CACHE) | (1u << SERVICE_LOADER), 1)
SERVICE(GATEWAY, "gateway", "sluice-gateway", 10000, 0, 0)
#undef SERVICE
