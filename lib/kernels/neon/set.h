/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the functions of a set: every file of this directory is compiled once as neon and once,
 * with SLUICE_DOTPROD, as dotprod. */
#ifndef SLUICE_KERNELS_NEON_SET_H
#define SLUICE_KERNELS_NEON_SET_H

#include "lib/kernels/internal.h"

#ifdef SLUICE_DOTPROD
#define SET_NAME(name) dotprod_##name
#else
#define SET_NAME(name) neon_##name
#endif

#endif
