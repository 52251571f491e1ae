/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the instruction set. */
#include <stddef.h>

#include "lib/kernels/internal.h"

#ifdef SLUICE_KERNELS_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/tensor/tensor_type.h"

static bool has_avx2(void)
{
    unsigned a, b, c, d;
    /* older compilers reject "f16c" in __builtin_cpu_supports, so the bit is read directly */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_avxvnni(void)
{
    enum { AVX_VNNI = 1 << 4 }; /* of leaf 7, subleaf 1; older compilers have no name for it */
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && a >= 1 &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & AVX_VNNI) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool has_vbmi(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vbmi");
}

/* Linux saves the tiles only of processes that request it, once for all threads. Its answer is
 * kept: a process may be confined before it selects kernels again. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, YES = 1, NO };
    static _Atomic int answer;
    if (answer == 0)
        answer = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? YES : NO;
    return answer == YES;
}

static bool has_amx(void)
{
    enum { AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 }; /* older compilers have no names for them */
    unsigned a, b, c, d;
    return has_vbmi() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & AMX_TILE) != 0 &&
           (d & AMX_INT8) != 0 && may_use_tiles();
}
#endif

#ifdef SLUICE_KERNELS_ARM
#include <sys/auxv.h>

static bool has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#endif

const struct kernel_ops *kernel_ops_of(enum kernel_isa isa)
{
    switch (isa) {
#ifdef SLUICE_KERNELS_X86
    case ISA_GENERIC: return has_avx2() ? &generic_fused_ops : &generic_ops;
    case ISA_AVX2: return has_avx2() ? &avx2_ops : NULL;
    case ISA_AVXVNNI: return has_avxvnni() ? &avxvnni_ops : NULL;
    case ISA_AVX512: return has_avx512() ? &avx512_ops : NULL;
    case ISA_VBMI: return has_vbmi() ? &vbmi_ops : NULL;
    case ISA_AMX: return has_amx() ? &amx_ops : NULL;
#else
    case ISA_GENERIC: return &generic_ops;
#endif
#ifdef SLUICE_KERNELS_ARM
    case ISA_NEON: return &neon_ops;
    case ISA_DOTPROD: return has_dotprod() ? &dotprod_ops : NULL;
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
