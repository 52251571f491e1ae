/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of published models, from their published configurations. SHAPE(name, arch, fields):
 * fields as on the command line, "name=value" with the names of struct model_hparams. Omitted ones
 * are derived (kv_heads = heads, head_size = hidden / heads). No include guard: include it with
 * SHAPE defined. */
SHAPE("olmoe-1b-7b", "olmoe",
      "layers=16 hidden=2048 heads=16 kv_heads=16 vocab=50304 context=4096 experts=64 "
      "experts_used=8 expert_inner=1024 rms_eps=1e-5 rope_theta=10000")
SHAPE("qwen3-30b-a3b", "qwen3moe",
      "layers=48 hidden=2048 heads=32 kv_heads=4 head_size=128 vocab=151936 context=40960 "
      "experts=128 experts_used=8 expert_inner=768 rms_eps=1e-6 rope_theta=1000000")
SHAPE("qwen1.5-moe", "qwen2moe",
      "layers=24 hidden=2048 heads=16 kv_heads=16 vocab=151936 context=8192 experts=60 "
      "experts_used=4 expert_inner=1408 shared_inner=5632 rms_eps=1e-6 rope_theta=1000000")
SHAPE("mixtral-8x7b", "llama",
      "layers=32 hidden=4096 heads=32 kv_heads=8 vocab=32000 context=32768 experts=8 "
      "experts_used=2 expert_inner=14336 rms_eps=1e-5 rope_theta=1000000")
SHAPE("tiny", "qwen3moe",
      "layers=4 hidden=128 heads=4 kv_heads=2 vocab=1024 context=2048 experts=16 "
      "experts_used=4 expert_inner=64 rms_eps=1e-6 rope_theta=10000")
#undef SHAPE
