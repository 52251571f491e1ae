/* What doctor advises. ADVICE(NAME, text). No include guard: include it with ADVICE defined. */
ADVICE(BELOW_FLOOR,
       "less memory is available than this model's floor: free some, add some, or take a "
       "smaller --ctx; no budget works")
ADVICE(CGROUP_LIMIT,
       "a memory cgroup around this process, not the machine, limits the budget: raise its "
       "limit (systemd: MemoryMax), or start sluice outside of it")
ADVICE(SHM_SMALL, "/dev/shm has less room than the budget: mount -o remount,size=... /dev/shm")
ADVICE(SCRATCH,
       "the drive was measured by a scratch file, which a virtual machine's host may have in "
       "memory: say --path FILE, for a GGUF file or a stripe of the store")
ADVICE(FASTER_DRIVE,
       "with half of the experts resident reading takes longer than computing: a faster "
       "drive, or the experts striped over several (sluice pack --stripes)")
ADVICE(MORE_MEMORY,
       "more memory would make it faster: the experts do not all fit into what is available")
ADVICE(LOWER_TIERS,
       "if a small loss is allowed, a store with lower tiers reads fewer bytes per miss: "
       "sluice pack --tiers native,int4, then sluice plan --max-loss")
ADVICE(IO_URING,
       "io_uring cannot be had here: loaders read with threads, which costs rate at depth "
       "(kernel.io_uring_disabled, or a container's seccomp profile)")
ADVICE(KERNELS, "only the generic kernels run on this processor: several times slower than AVX2")
ADVICE(SWAP,
       "there is swap: an engine that is swapped out is slower than one with a smaller budget; "
       "keep the budget below what is available")
ADVICE(FREED_PAGES,
       "this kernel keeps much freed memory in lists without order, and a virtual drive reads "
       "slower into single pages: sysctl vm.percpu_pagelist_high_fraction=1000000 (docs/bench.md)")
#undef ADVICE
