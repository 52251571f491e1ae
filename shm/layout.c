/* SPDX-License-Identifier: Apache-2.0 */
/* Layout hashes of the segments: programs built from different headers never share a segment. */
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "shm/directory/directory.h"
#include "shm/kv/kv.h"
#include "shm/rings/access_log.h"
#include "shm/rings/gates.h"
#include "shm/segment/segment.h"
#include "shm/table/counters.h"
#include "shm/table/process_table.h"

#define S(type)        sizeof(struct type)
#define O(type, field) offsetof(struct type, field)

static const uint64_t model_layout[] = {
    SEGMENT_MODEL_OFFSET,
    S(model_index),
    O(model_index, hparams),
    O(model_index, dense_entry),
    S(model_tensor),
    S(model_entry),
    O(model_entry, extent),
    S(model_extent),
    O(model_extent, payload_bytes),
    MODEL_INDEX_VERSION,
    O(model_entry, in_store),
    S(model_stripe),
    O(model_index, stripe_count),
    O(model_index, tokenizer_offset),
};
static const uint64_t directory_layout[] = {
    S(directory_head),
    O(directory_head, entries_offset),
    O(directory_head, epoch),
    O(directory_head, quota_bytes),
    O(directory_head, kv_spare_bytes),
    O(directory_head, experts_payload_max),
    O(directory_head, throttle_bytes_per_s),
    O(directory_head, prefetch_paused),
    O(directory_head, files),
    O(directory_head, model_changed),
    S(directory_file),
    S(directory_counter),
    O(directory_counter, waiters),
    S(directory_entry),
    O(directory_entry, arena_offset),
    O(directory_entry, failures),
    O(directory_entry, last_errno),
    O(directory_entry, last_loader),
    O(directory_entry, slot_pages),
    O(directory_entry, layer),
    O(directory_entry, size_class),
    ENTRY_STATE_BITS,
    ENTRY_PIN_BITS,
    ENTRY_PENDING_BITS,
    ENTRY_GENERATION_BITS,
    PINNER__COUNT,
    DIRECTORY_LOADERS_MAX,
};
static const uint64_t arena_layout_numbers[] = {PAGE_BYTES};
static const uint64_t gates_layout[] = {
    S(gates_head), O(gates_head, news),         O(gates_head, waiters),   S(gates_row_head),
    GATES_COUNTS,  O(gates_row_head, sequence), O(gates_row_head, count), O(gates_row_head, token),
};
static const uint64_t access_log_layout[] = {
    S(access_log_head),      O(access_log_head, written), O(access_log_head, cell),
    S(access_log_cell),      ACCESS_LOG_RECORDS,          S(access_record),
    O(access_record, layer), O(access_record, outcome),   ACCESS_SKIPPED,
    ACCESS_LOGITS,           O(access_log_cell, word),    O(access_record, weight),
    ACCESS_VALUES,           O(access_record, values),    O(access_record, more_values),
};
static const uint64_t kv_layout[] = {
    S(kv_head),
    O(kv_head, kv_offset),
    O(kv_head, next_id),
    O(kv_head, request),
    S(kv_request),
    O(kv_request, log_tokens),
    O(kv_request, last_poll_ns),
    O(kv_request, seed),
    O(kv_request, forced_tokens),
    O(kv_request, stop_token),
    O(kv_request, stops),
    S(stop_texts),
    S(sampling),
    O(kv_request, stats),
    S(kv_stats),
    KV_REQUESTS_MAX,
    KV_CANCELLED,
    KV_FINISH_ERROR,
    O(kv_request, sampling),
    ERR__COUNT,
    O(kv_head, logs_offset),
    O(kv_head, kv_type),
    O(kv_head, tile_bytes),
    O(kv_head, homes_offset),
    O(kv_head, page_tokens),
    O(kv_head, layer_kind),
    O(kv_head, index_tile_bytes),
    O(kv_head, states_reserved),
    O(kv_head, slot),
    S(kv_slot),
    S(kv_extra),
    O(kv_extra, text),
    O(kv_request, biases),
    KV_TOPS_MAX,
};
static const uint64_t procs_layout[] = {
    S(procs_head),
    O(procs_head, params),
    O(procs_head, run_dir),
    O(procs_head, gpus),
    S(procs_gpu),
    O(procs_gpu, bytes),
    O(procs_gpu, slots),
    O(procs_gpu, slots_used),
    S(procs_gpus),
    O(procs_gpus, required),
    O(procs_gpus, takes_all),
    O(procs_gpus, gpu),
    O(procs_gpus, module),
    O(procs_head, injection),
    O(procs_head, preset_requested),
    O(procs_head, log_level),
    O(procs_head, process),
    S(process),
    O(process, incarnation),
    O(process, cleaned),
    O(process, heartbeat_ns),
    O(process, counters),
    O(process, samples_us),
    O(process, exit_message),
    SERVICE_PROCESSES_MAX,
    SERVICE__COUNT,
    WAIT__COUNT,
    PROC_FAILED,
    CTR_LOADER__COUNT,
    CTR_CACHE__COUNT,
    CTR_PREDICTOR__COUNT,
    CTR_COMPUTE__COUNT,
    CTR_RECORDER__COUNT,
    CTR_GATEWAY__COUNT,
    CTR_SUPERVISOR__COUNT,
};

uint64_t segment_layout_hash(enum segment_kind kind)
{
    switch (kind) {
    case SEGMENT_MODEL: return XXH3_64bits(model_layout, sizeof model_layout);
    case SEGMENT_DIRECTORY: return XXH3_64bits(directory_layout, sizeof directory_layout);
    case SEGMENT_ARENA: return XXH3_64bits(arena_layout_numbers, sizeof arena_layout_numbers);
    case SEGMENT_GATES: return XXH3_64bits(gates_layout, sizeof gates_layout);
    case SEGMENT_ACCESS_LOG: return XXH3_64bits(access_log_layout, sizeof access_log_layout);
    case SEGMENT_KV: return XXH3_64bits(kv_layout, sizeof kv_layout);
    case SEGMENT_PROCS: return XXH3_64bits(procs_layout, sizeof procs_layout);
    case SEGMENT__COUNT: break;
    }
    sl_panic("segment kind %d", (int)kind);
}

uint64_t segment_fixed_bytes(enum segment_kind kind, uint64_t bytes)
{
    switch (kind) {
    case SEGMENT_MODEL:
    case SEGMENT_ARENA: return PAGE_BYTES;
    case SEGMENT_KV: {
        uint64_t fixed = align_up(S(kv_head), PAGE_BYTES);
        return fixed < bytes ? fixed : align_up(bytes, PAGE_BYTES);
    }
    default: return align_up(bytes, PAGE_BYTES);
    }
}
