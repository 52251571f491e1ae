/* SPDX-License-Identifier: Apache-2.0 */
/* The advice that doctor gives. ADVICE(NAME, text). No include guard: include it with ADVICE
 * defined. */
ADVICE(BUDGET_TOO_SMALL,
       "less memory is available than the minimum budget of this model: free or add memory, or "
       "use a smaller --ctx-size")
ADVICE(CGROUP_LIMIT,
       "the budget is limited by the memory cgroup of this process, not by the machine: raise its "
       "limit (systemd: MemoryMax), or start sluice outside of it")
ADVICE(SHM_SMALL,
       "/dev/shm has less free space than the budget: mount -o remount,size=... /dev/shm")
ADVICE(SCRATCH,
       "the storage device was measured with a scratch file, which the host of a virtual machine "
       "may cache: use --path FILE with a GGUF file or a stripe of the store")
ADVICE(FASTER_DEVICE,
       "with half of the experts resident, reading takes longer than computing: use a faster "
       "storage device, or stripe the experts over several (sluice pack --stripes)")
ADVICE(MORE_MEMORY,
       "not all experts fit into the available memory: more memory makes decoding faster")
ADVICE(LOWER_PRECISION,
       "if a small loss is acceptable, a store with lower precisions reads fewer bytes per miss: "
       "sluice pack --precisions native,int4, then sluice plan --max-loss")
ADVICE(IO_URING,
       "io_uring is not available: loaders read with threads, which is slower at high queue "
       "depths (check kernel.io_uring_disabled and the seccomp profile of the container)")
ADVICE(KERNELS, "only the generic kernels run on this CPU: several times slower than those of an "
                "instruction set")
ADVICE(SWAP,
       "swap is enabled: an engine that is swapped out is slower than one with a smaller budget; "
       "keep the budget below the available memory")
ADVICE(
    FREED_PAGES,
    "this kernel keeps large per-CPU lists of freed pages, which are not contiguous, and virtual "
    "storage devices read slower into single pages: "
    "sysctl vm.percpu_pagelist_high_fraction=1000000 (docs/tuning.md)")
#undef ADVICE
