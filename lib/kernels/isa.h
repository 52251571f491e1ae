/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names of the instruction sets, without the kernels. */
#ifndef SLUICE_KERNELS_ISA_H
#define SLUICE_KERNELS_ISA_H

#include <stdint.h>

enum kernel_isa {
#define ISA(id, name, meaning) ISA_##id,
#include "lib/kernels/isa.tbl.h"
    ISA__COUNT
};

/* The name, or "" for an invalid number: it may come from another process. */
static inline const char *kernel_isa_name(uint64_t isa)
{
    static const char *const names[] = {
#define ISA(id, name, meaning) name,
#include "lib/kernels/isa.tbl.h"
    };
    return isa < ISA__COUNT ? names[isa] : "";
}

/* The meaning of an instruction set in a few words; "" for an invalid number. */
static inline const char *kernel_isa_meaning(uint64_t isa)
{
    static const char *const meanings[] = {
#define ISA(id, name, meaning) meaning,
#include "lib/kernels/isa.tbl.h"
    };
    return isa < ISA__COUNT ? meanings[isa] : "";
}

#endif
