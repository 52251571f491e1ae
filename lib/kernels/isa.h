/* The names of the instruction sets, for who tells them and needs no kernel. */
#ifndef SLUICE_KERNELS_ISA_H
#define SLUICE_KERNELS_ISA_H

#include <stdint.h>

enum kernel_isa {
#define ISA(name, word) ISA_##name,
#include "lib/kernels/isa.tbl.h"
    ISA__COUNT
};

/* "" for a number that is none: it may come from another process. */
static inline const char *kernel_isa_word(uint64_t isa)
{
    static const char *const words[] = {
#define ISA(name, word) word,
#include "lib/kernels/isa.tbl.h"
    };
    return isa < ISA__COUNT ? words[isa] : "";
}

#endif
