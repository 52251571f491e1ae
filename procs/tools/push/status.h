/* SPDX-License-Identifier: Apache-2.0 */
/* Names the exit status by which sluice-push-MODULE tells `sluice pack -o URL` what is there. */
#ifndef SLUICE_TOOLS_PUSH_STATUS_H
#define SLUICE_TOOLS_PUSH_STATUS_H

/* Of --probe: the server has the store that is in the directory; 0: it has none. Others are those
 * of errors (lib/base/error.h). */
#define PUSH_IS_THERE 64

#endif
