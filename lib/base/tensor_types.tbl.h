/* The tensor types sluice computes with.
 * TENSOR_TYPE(NAME, ggml_id, block_elems, block_bytes)
 * ggml_id: the number GGUF files use; block_elems: elements per block along the row; block_bytes:
 * bytes per block. Source of numbers: the GGUF specification. No include guard: include it with
 * TENSOR_TYPE defined. */
TENSOR_TYPE(F32, 0, 1, 4)
TENSOR_TYPE(F16, 1, 1, 2)
TENSOR_TYPE(Q4_0, 2, 32, 18)
TENSOR_TYPE(Q8_0, 8, 32, 34)
TENSOR_TYPE(BF16, 30, 1, 2)
#undef TENSOR_TYPE
