/* SPDX-License-Identifier: Apache-2.0 */
/* Exits 0 when ThreadSanitizer can run here (some kernels' address space layout stops it). */
int main(void)
{
    return 0;
}
