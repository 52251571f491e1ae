/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what the short form of all tests leaves out, and what takes turns (sluice test --list). */
#include "tests/harness/sample.h"

int main(void)
{
    sample_print(NULL);
    return 0;
}
