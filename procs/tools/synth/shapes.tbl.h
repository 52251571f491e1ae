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
SHAPE(
    "glm-4.5-air", "glm4moe",
    "layers=46 hidden=4096 heads=96 kv_heads=8 head_size=128 vocab=151552 context=131072 "
    "experts=128 experts_used=8 expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=1 "
    "norm_top_k=1 expert_scale=1 groups=1 groups_used=1 rope_dims=64 rms_eps=1e-5 "
    "rope_theta=1000000")
SHAPE(
    "dots.llm1", "dots1",
    "layers=62 hidden=4096 heads=32 kv_heads=32 head_size=128 vocab=152064 context=32768 "
    "experts=128 experts_used=6 expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=2 "
    "norm_top_k=1 expert_scale=2.5 rms_eps=1e-5 rope_theta=10000000")
SHAPE("ernie-4.5-21b-a3b", "ernie4_5-moe",
      "layers=28 hidden=2560 heads=20 kv_heads=4 head_size=128 vocab=103424 context=131072 "
      "experts=64 experts_used=6 expert_inner=1536 dense_layers=1 dense_inner=12288 shared_count=2 "
      "shared_inner=3072 rms_eps=1e-5 rope_theta=500000")
SHAPE("minimax-m2", "minimax-m2",
      "layers=62 hidden=3072 heads=48 kv_heads=8 head_size=128 vocab=200064 context=196608 "
      "experts=256 experts_used=8 expert_inner=1536 rope_dims=64 rms_eps=1e-6 rope_theta=5000000")
SHAPE("qwen3.6-35b-a3b", "qwen35moe",
      "layers=40 hidden=2048 heads=16 kv_heads=2 head_size=256 vocab=248320 context=262144 "
      "experts=256 experts_used=8 expert_inner=512 shared_inner=512 rope_dims=64 conv_taps=4 "
      "delta_size=128 delta_k_heads=16 delta_v_heads=32 delta_inner=4096 attention_step=4 "
      "rms_eps=1e-6 rope_theta=10000000")
SHAPE("qwen3-next-80b", "qwen3next",
      "layers=48 hidden=2048 heads=16 kv_heads=2 head_size=256 vocab=151936 context=262144 "
      "experts=512 experts_used=10 expert_inner=512 shared_inner=512 rope_dims=64 conv_taps=4 "
      "delta_size=128 delta_k_heads=16 delta_v_heads=32 delta_inner=4096 attention_step=4 "
      "rms_eps=1e-6 rope_theta=10000000")
SHAPE("lfm2-8b-a1b", "lfm2moe",
      "layers=24 hidden=2048 heads=32 kv_heads=8 head_size=64 vocab=65536 context=128000 "
      "experts=32 experts_used=4 expert_inner=1792 dense_layers=2 dense_inner=7168 conv_taps=3 "
      "attention_step=4 rms_eps=1e-5 rope_theta=1000000")
SHAPE("tiny", "qwen3moe",
      "layers=4 hidden=128 heads=4 kv_heads=2 vocab=1024 context=2048 experts=16 "
      "experts_used=4 expert_inner=64 rms_eps=1e-6 rope_theta=10000")
#undef SHAPE
