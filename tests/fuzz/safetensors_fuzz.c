/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a safetensors file. For any bytes, reading the header succeeds or fails with an
 * error; every tensor of an accepted header is inside the file and has the size of its shape. */
#include <stdint.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s = {0};
    struct error error = {0};
    uint64_t length = 0;
    if (size < 8)
        return 0;
    memcpy(&length, data, sizeof length);
    if (length > size - 8)
        length = size - 8;
    if (safetensors_parse(&s, (const char *)data + 8, length, size, 0, &error)) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
    } else {
        uint64_t at = 8 + length;
        for (uint32_t i = 0; i < s.count; i++) {
            sl_assert(s.tensors[i].offset == at && s.tensors[i].bytes <= size - at);
            at += s.tensors[i].bytes;
        }
        sl_assert(at == size);
    }
    safetensors_close(&s);
    return 0;
}
