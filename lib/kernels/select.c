/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the instruction set. */
#include <stddef.h>

#include "lib/kernels/internal.h"

#ifdef SLUICE_KERNELS_X86
#include <cpuid.h>

#include "lib/tensor/tensor_type.h"

static bool has_avx2(void)
{
    unsigned a, b, c, d;
    /* older compilers reject "f16c" in __builtin_cpu_supports, so the bit is read directly */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

const struct kernel_ops *kernel_ops_of(enum kernel_isa isa)
{
    switch (isa) {
#ifdef SLUICE_KERNELS_X86
    case ISA_GENERIC: return has_avx2() ? &generic_fused_ops : &generic_ops;
    case ISA_AVX2: return has_avx2() ? &avx2_ops : NULL;
    case ISA_AVX512: return has_avx512() ? &avx512_ops : NULL;
#else
    case ISA_GENERIC: return &generic_ops;
#endif
    default: return NULL;
    }
}

const struct kernel_ops *kernel_ops_select(const char *wanted)
{
    bool any = wanted == NULL || strcmp(wanted, "auto") == 0;
    for (int isa = ISA__COUNT - 1; isa >= 0; isa--) {
        if (!any && strcmp(wanted, kernel_isa_name((uint64_t)isa)) != 0)
            continue;
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops != NULL || !any)
            return ops;
    }
    return NULL;
}
