/* SPDX-License-Identifier: Apache-2.0 */
/* Every message between the engine's processes; JSON requests of clients are in ipc/rpc/rpc.h. The
 * enum, the size and direction checks, the names and the trace are generated from this table.
 *
 *   MSG(number, NAME, struct, sender, receiver, doc)
 *   number            never reused; a removed one stays as a comment
 *   sender, receiver  roles of enum msg_role
 *
 * No include guard. */
MSG(1, DEMAND, msg_demand, COMPUTE, CACHE, "entries a layer needs now; one per layer and wave")
MSG(2, HINT, msg_hint, PREDICTOR, CACHE, "entries a later layer will probably need")
/* 3 was LOAD, one shard of one entry */
MSG(4, FLUSH, msg_flush, CACHE, LOADER,
    "drop all jobs of older epochs, finish the reads in flight, reply FLUSHED")
MSG(5, FLUSHED, msg_flush, LOADER, CACHE, "no read of an older epoch is in flight any more")
/* 6 was DONE, the end of one shard */
MSG(7, CONTROL, msg_control, SUPERVISOR, ANY,
    "quota, throttle, drain, stop or poll; repeated until acknowledged")
MSG(8, ACK, msg_ack, ANY, SUPERVISOR, "the CONTROL with this sequence number is applied")
MSG(9, LOADS, msg_loads, CACHE, LOADER, "read shards of entries into their ranges")
MSG(10, DONES, msg_dones, LOADER, CACHE, "doorbell: shards ended; the entry words decide")
MSG(11, TOKENS, msg_tokens, COMPUTE, CACHE,
    "doorbell: the count of tokens that the cache waits for is reached; the access log decides")
MSG(12, PAGES, msg_pages, COMPUTE, CACHE, "pages of a table on storage that a pass needs")
MSG(13, KNOWN, msg_hint, COMPUTE, CACHE,
    "entries that a layer of the pass which begins needs: a table names its experts")
#undef MSG
