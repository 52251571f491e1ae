/* SPDX-License-Identifier: Apache-2.0 */
/* Counter numbers of every process, generated from the tables: CTR_LOADER_reads_submitted etc. */
#ifndef SLUICE_SHM_TABLE_COUNTERS_H
#define SLUICE_SHM_TABLE_COUNTERS_H

#define COUNTER(name, kind, unit, doc) CTR_LOADER_##name,
enum {
#include "shm/table/counters_loader.tbl.h"
    CTR_LOADER__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_CACHE_##name,
enum {
#include "shm/table/counters_cache.tbl.h"
    CTR_CACHE__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_PREDICTOR_##name,
enum {
#include "shm/table/counters_predictor.tbl.h"
    CTR_PREDICTOR__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_COMPUTE_##name,
enum {
#include "shm/table/counters_compute.tbl.h"
    CTR_COMPUTE__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_RECORDER_##name,
enum {
#include "shm/table/counters_recorder.tbl.h"
    CTR_RECORDER__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_GATEWAY_##name,
enum {
#include "shm/table/counters_gateway.tbl.h"
    CTR_GATEWAY__COUNT
};
#define COUNTER(name, kind, unit, doc) CTR_SUPERVISOR_##name,
enum {
#include "shm/table/counters_supervisor.tbl.h"
    CTR_SUPERVISOR__COUNT
};

#endif
