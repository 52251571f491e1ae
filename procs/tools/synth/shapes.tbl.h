/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of published models, from their published configurations. SHAPE(name, arch, fields):
 * fields as on the command line, "name=value" with the names of struct model_hparams. Omitted ones
 * are derived (kv_heads = heads, head_size = hidden / heads). Above each: what its fields were
 * compared with; parameters: F16 bytes / 2, less what is F32. No include guard: include it with
 * SHAPE defined. */
/* checked: transformers' OlmoeConfig (defaults of allenai/OLMoE-1B-7B-0924) */
SHAPE("olmoe-1b-7b", "olmoe",
      "layers=16 hidden=2048 heads=16 kv_heads=16 vocab=50304 context=4096 experts=64 "
      "experts_used=8 expert_inner=1024 rms_eps=1e-5 rope_theta=10000")
/* checked: parameters of Qwen3-30B-A3B (THUDM/slime scripts/models/qwen3-30B-A3B.sh), 30.53
 * billion; context: not checked */
SHAPE("qwen3-30b-a3b", "qwen3moe",
      "layers=48 hidden=2048 heads=32 kv_heads=4 head_size=128 vocab=151936 context=40960 "
      "experts=128 experts_used=8 expert_inner=768 rms_eps=1e-6 rope_theta=1000000")
/* checked: config.json of Qwen/Qwen1.5-MoE-A2.7B */
SHAPE("qwen1.5-moe", "qwen2moe",
      "layers=24 hidden=2048 heads=16 kv_heads=16 vocab=151936 context=8192 experts=60 "
      "experts_used=4 expert_inner=1408 shared_inner=5632 rms_eps=1e-6 rope_theta=1000000")
/* checked: transformers' MixtralConfig, 46.70 billion parameters; context: not checked */
SHAPE("mixtral-8x7b", "llama",
      "layers=32 hidden=4096 heads=32 kv_heads=8 vocab=32000 context=32768 experts=8 "
      "experts_used=2 expert_inner=14336 rms_eps=1e-5 rope_theta=1000000")
/* checked: config.json of google/gemma-4-26B-A4B-it as in tests of mlx and slime; context: not
 * checked */
SHAPE(
    "gemma-4-26b-a4b", "gemma4",
    "layers=30 hidden=2816 heads=16 kv_heads=2 kv_heads_window=8 head_size=512 "
    "head_size_window=256 "
    "value_size_window=256 vocab=262144 context=262144 experts=128 experts_used=8 expert_inner=704 "
    "dense_inner=2112 window=1024 rope_dims=512 rope_dims_window=256 rope_theta=1000000 "
    "rope_theta_window=10000 rms_eps=1e-6 logit_cap=30 tied=1 joined=1 full_v=0")
/* checked: transformers' Glm4MoeConfig (defaults are Air's); rope_theta: not checked */
SHAPE(
    "glm-4.5-air", "glm4moe",
    "layers=46 hidden=4096 heads=96 kv_heads=8 head_size=128 vocab=151552 context=131072 "
    "experts=128 experts_used=8 expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=1 "
    "norm_top_k=1 expert_scale=1 groups=1 groups_used=1 rope_dims=64 rms_eps=1e-5 "
    "rope_theta=1000000")
/* checked: transformers' Step3p7TextConfig; query heads and window of layers with a window, scale
 * and context: not checked. Full layers are 0, 4, 8 ...; here 11 instead of 12, every fourth */
SHAPE(
    "step-3.5-flash", "step35",
    "layers=45 hidden=4096 heads=64 heads_window=96 kv_heads=8 head_size=128 vocab=128815 "
    "context=262144 experts=288 experts_used=8 expert_inner=1280 shared_inner=1280 dense_layers=3 "
    "dense_inner=11264 norm_top_k=1 expert_scale=3 window=512 full_every=4 rms_eps=1e-5 "
    "rope_theta=5000000 rope_theta_window=10000")
/* checked: transformers' LagunaConfig (defaults of poolside/Laguna-XS.2); query heads of layers
 * with a window: llama.cpp's loader; scale and YaRN's numbers: not checked */
SHAPE("laguna-xs.2", "laguna",
      "layers=40 hidden=2048 heads=48 heads_window=64 kv_heads=8 head_size=128 vocab=100352 "
      "context=131072 experts=256 experts_used=8 expert_inner=512 shared_inner=512 dense_layers=1 "
      "dense_inner=8192 norm_top_k=1 expert_scale=2.5 window=512 rope_dims=64 rope_dims_window=128 "
      "rope_scaling=yarn rope_factor=32 rope_context=4096 rope_beta_fast=64 rms_eps=1e-6 "
      "rope_theta=500000 rope_theta_window=10000")
/* checked: transformers' AfmoeConfig (hidden size, layers, size of heads); experts, scale and
 * dense layers: published description of Trinity-Mini; heads, inner sizes, window, context: not
 * checked */
SHAPE("trinity-mini", "afmoe",
      "layers=32 hidden=2048 heads=32 kv_heads=4 head_size=128 vocab=200192 context=131072 "
      "experts=128 experts_used=8 expert_inner=1024 shared_count=1 dense_layers=2 dense_inner=6144 "
      "norm_top_k=1 expert_scale=2.826 window=2048 rms_eps=1e-5 rope_theta=10000")
/* checked: config.json of rednote-hilab/dots.llm1.base */
SHAPE(
    "dots.llm1", "dots1",
    "layers=62 hidden=4096 heads=32 kv_heads=32 head_size=128 vocab=152064 context=32768 "
    "experts=128 experts_used=6 expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=2 "
    "norm_top_k=1 expert_scale=2.5 rms_eps=1e-5 rope_theta=10000000")
/* checked: transformers' Ernie4_5_MoeConfig (defaults of baidu/ERNIE-4.5-21B-A3B-PT), tied */
SHAPE("ernie-4.5-21b-a3b", "ernie4_5-moe",
      "layers=28 hidden=2560 heads=20 kv_heads=4 head_size=128 vocab=103424 context=131072 "
      "experts=64 experts_used=6 expert_inner=1536 dense_layers=1 dense_inner=12288 shared_count=2 "
      "shared_inner=3072 rms_eps=1e-5 rope_theta=500000 tied=1")
/* checked: configuration_minimax_m2.py of MiniMax-M2, config.json of MiniMax-M2.1, 228.69 billion
 * parameters */
SHAPE("minimax-m2", "minimax-m2",
      "layers=62 hidden=3072 heads=48 kv_heads=8 head_size=128 vocab=200064 context=196608 "
      "experts=256 experts_used=8 expert_inner=1536 rope_dims=64 rms_eps=1e-6 rope_theta=5000000")
/* checked: transformers' MiniMaxM3VLTextConfig (defaults are the model's) */
SHAPE("minimax-m3", "minimax-m3",
      "layers=60 hidden=6144 heads=64 kv_heads=4 head_size=128 vocab=200064 context=524288 "
      "experts=128 experts_used=4 expert_inner=3072 dense_layers=3 dense_inner=12288 "
      "shared_count=1 norm_top_k=1 expert_scale=2 rope_dims=64 rms_eps=1e-6 rope_theta=5000000 "
      "index_heads=4 index_size=128")
/* checked: model card of Qwen3.6-35B-A3B; rope_theta: of Qwen3-Next's script, not checked */
SHAPE("qwen3.6-35b-a3b", "qwen35moe",
      "layers=40 hidden=2048 heads=16 kv_heads=2 head_size=256 vocab=248320 context=262144 "
      "experts=256 experts_used=8 expert_inner=512 shared_inner=512 rope_dims=64 conv_taps=4 "
      "delta_size=128 delta_k_heads=16 delta_v_heads=32 delta_inner=4096 attention_step=4 "
      "rms_eps=1e-6 rope_theta=10000000")
/* checked: the configuration in NVIDIA's Automodel (qwen3_8_flash_next/config). The
 * table is 51.2 billion of 177 billion parameters: ngram_rows makes it smaller */
SHAPE("qwen3.8-flash-next", "qwen4exp",
      "layers=48 hidden=2560 heads=24 kv_heads=2 head_size=256 vocab=248320 context=262144 "
      "experts=512 experts_used=10 expert_inner=640 shared_inner=640 rope_dims=64 conv_taps=4 "
      "delta_size=128 delta_k_heads=16 delta_v_heads=48 delta_inner=6144 attention_step=4 "
      "streams=4 stream_rank=320 ngram_size=3 ngram_heads=8 ngram_taps=4 ngram_width=160 "
      "ngram_rows=320001536 ngram_end=248044 rms_eps=1e-6 rope_theta=10000000 index_top_k=2048 "
      "index_block=4 index_heads=4 index_size=128")
/* checked: transformers' Glm5NextTextConfig (defaults are the model's), 320 billion parameters */
SHAPE("glm-5.3-flash", "glm5-next",
      "layers=45 hidden=4096 heads=64 kv_heads=1 vocab=154880 context=1048576 experts=288 "
      "experts_used=8 expert_inner=2048 shared_count=1 dense_layers=3 dense_inner=12288 "
      "norm_top_k=1 expert_scale=2.5 q_rank=1536 kv_rank=512 mla_key_size=256 mla_value_size=256 "
      "conv_taps=4 delta_size=128 decay_bound=-5 attention_step=4 expert_limits=10 "
      "dense_limits=10 streams=4 stream_steps=20 stream_eps=1e-6 rms_eps=1e-5 rope_theta=10000 "
      "index_top_k=2048 index_block=4 index_heads=32 index_size=128")
/* checked: transformers' Dots3NoteTextConfig (defaults are the model's); scale of the gate weights:
 * not checked. The last of four layers has no window; in the model the first layer, and the second
 * of each four */
SHAPE("dots3-note", "dots3note",
      "layers=46 hidden=5120 heads=128 heads_window=64 kv_heads=1 vocab=152064 context=524288 "
      "experts=256 experts_used=8 expert_inner=1536 shared_count=1 dense_layers=1 "
      "dense_inner=13824 norm_top_k=1 expert_scale=1 gating=2 q_rank=1024 kv_rank=512 "
      "kv_rank_window=1024 mla_key_size=192 mla_key_size_window=256 mla_value_size=128 "
      "mla_value_size_window=128 rope_dims=64 window=512 full_every=4 rms_eps=1e-5 "
      "rope_theta=80000000 rope_theta_window=50000 index_top_k=2048 index_heads=64 index_size=128")
/* checked: a description of the configuration (layers with an indexer, heads, ranks, inner sizes);
 * context: not checked */
SHAPE("hy4-preview", "hy_v4",
      "layers=78 hidden=6144 heads=64 kv_heads=1 vocab=120832 context=1048576 experts=256 "
      "experts_used=8 expert_inner=2048 shared_count=1 dense_layers=1 dense_inner=18432 "
      "norm_top_k=1 expert_scale=2.827 q_rank=2048 kv_rank=512 mla_key_size=256 "
      "mla_value_size=256 rope_dims=64 expert_limits=10 streams=4 stream_magnitude=2 "
      "stream_eps=1e-6 rms_eps=1e-5 rope_theta=10000000 index_top_k=2048 index_heads=32 "
      "index_size=128 index_every=4")
SHAPE("deepseek-v4-flash", "deepseek4",
      "layers=43 hidden=4096 heads=64 kv_heads=1 head_size=512 vocab=129280 context=1048576 "
      "experts=256 experts_used=6 expert_inner=2048 shared_count=1 norm_top_k=1 expert_scale=1.5 "
      "gating=4 q_rank=1024 output_groups=8 output_rank=1024 window=128 rope_dims=64 "
      "rope_theta=160000 rope_theta_window=10000 rope_scaling=yarn rope_factor=16 "
      "rope_context=65536 rope_magnitude=1 index_heads=64 index_size=128 index_top_k=512 "
      "table_layers=3 "
      "expert_limits=10 dense_limits=10 streams=4 stream_steps=20 stream_eps=1e-6 rms_eps=1e-6")
/* checked: THUDM/slime scripts/models/qwen3-next-80B-A3B.sh, transformers' Qwen3NextConfig, 79.67
 * billion parameters */
SHAPE("qwen3-next-80b", "qwen3next",
      "layers=48 hidden=2048 heads=16 kv_heads=2 head_size=256 vocab=151936 context=262144 "
      "experts=512 experts_used=10 expert_inner=512 shared_inner=512 rope_dims=64 conv_taps=4 "
      "delta_size=128 delta_k_heads=16 delta_v_heads=32 delta_inner=4096 attention_step=4 "
      "rms_eps=1e-6 rope_theta=10000000")
/* checked: config.json of LFM2-8B-A1B (attention is in layers 2, 6, 10, 14, 18, 21; here in as
 * many, every fourth) */
SHAPE("lfm2-8b-a1b", "lfm2moe",
      "layers=24 hidden=2048 heads=32 kv_heads=8 head_size=64 vocab=65536 context=128000 "
      "experts=32 experts_used=4 expert_inner=1792 dense_layers=2 dense_inner=7168 conv_taps=3 "
      "attention_step=4 rms_eps=1e-5 rope_theta=1000000 tied=1")
/* checked: config.json of granite-3.0-3b-a800m-instruct, tied; context and rope_theta of 3.1: not
 * checked */
SHAPE(
    "granite-3.1-3b-a800m", "granitemoe",
    "layers=32 hidden=1536 heads=24 kv_heads=8 head_size=64 vocab=49155 context=131072 experts=40 "
    "experts_used=8 expert_inner=512 embedding_scale=12 residual_scale=0.22 "
    "score_scale=0.015625 logit_divisor=6 rms_eps=1e-6 rope_theta=10000000 tied=1")
/* checked: layers, sizes of Mamba and heads by the number of parameters (6.9 and 32 billion) and
 * in quoted configurations; which layers have attention, tied, shared_inner of H-Small: not
 * checked (published: 5, 15, 25, 35; here every tenth) */
SHAPE("granite-4.0-h-tiny", "granitehybrid",
      "layers=40 hidden=1536 heads=12 kv_heads=4 head_size=128 vocab=100352 context=131072 "
      "experts=64 experts_used=6 expert_inner=512 shared_inner=1024 conv_taps=4 delta_size=128 "
      "delta_k_heads=1 delta_v_heads=48 delta_inner=3072 attention_step=10 embedding_scale=12 "
      "residual_scale=0.22 score_scale=0.0078125 logit_divisor=6 rms_eps=1e-5 "
      "rope_theta=10000 tied=1")
SHAPE("granite-4.0-h-small", "granitehybrid",
      "layers=40 hidden=4096 heads=32 kv_heads=8 head_size=128 vocab=100352 context=131072 "
      "experts=72 experts_used=10 expert_inner=768 shared_inner=1536 conv_taps=4 delta_size=128 "
      "delta_k_heads=1 delta_v_heads=128 delta_inner=8192 attention_step=10 embedding_scale=12 "
      "residual_scale=0.22 score_scale=0.0078125 logit_divisor=16 rms_eps=1e-5 "
      "rope_theta=10000 tied=1")
/* checked: layers and their kinds, sizes of heads, experts and Mamba in quoted configurations of
 * Nemotron-3-Nano-30B-A3B, 31.6 billion parameters; context as the converter writes it */
SHAPE("nemotron-3-nano", "nemotron_h_moe",
      "layers=52 hidden=2688 heads=32 kv_heads=2 head_size=128 vocab=131072 context=1048576 "
      "experts=128 experts_used=6 expert_inner=1856 shared_count=1 shared_inner=3712 conv_taps=4 "
      "delta_size=128 delta_k_heads=8 delta_v_heads=64 delta_inner=4096 expert_scale=2.5 "
      "norm_top_k=1 gating=2 rms_eps=1e-5 rope_dims=84 rope_theta=10000 "
      "pattern=MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME")
/* checked: config.json of Jamba-1.5-Mini and Jamba-1.5-Large as quoted, 52 and 398 billion
 * parameters; attention is in layers 4, 12, ... of the published models, here in 7, 15, ... */
SHAPE("jamba-mini", "jamba",
      "layers=32 hidden=4096 heads=32 kv_heads=8 vocab=65536 context=262144 experts=16 "
      "experts_used=2 dense_inner=14336 conv_taps=4 delta_size=16 step_rank=256 delta_inner=8192 "
      "attention_step=8 experts_every=2 rms_eps=1e-6 rope_theta=10000")
SHAPE("jamba-large", "jamba",
      "layers=72 hidden=8192 heads=64 kv_heads=8 vocab=65536 context=262144 experts=16 "
      "experts_used=2 dense_inner=24576 conv_taps=4 delta_size=16 step_rank=512 delta_inner=16384 "
      "attention_step=8 experts_every=2 rms_eps=1e-6 rope_theta=10000")
/* checked: config.json of Kimi-Linear-48B-A3B-Instruct as quoted, 49.1 billion parameters; the last
 * layer has MLA in the published model */
SHAPE("kimi-linear-48b", "kimi-linear",
      "layers=27 hidden=2304 heads=32 vocab=163840 context=1048576 experts=256 experts_used=8 "
      "expert_inner=1024 shared_count=1 dense_layers=1 dense_inner=9216 conv_taps=4 delta_size=128 "
      "attention_step=4 kv_rank=512 mla_key_size=192 mla_value_size=128 rope_dims=64 "
      "expert_scale=2.446 rms_eps=1e-5 rope_theta=10000")
/* checked: sizes as llama.cpp's converter and the published configuration are quoted, 2780 billion
 * parameters; the last layer has MLA in the published model */
SHAPE("kimi-k3", "kimi-k3",
      "layers=93 hidden=7168 heads=96 vocab=163840 context=1048576 experts=896 experts_used=16 "
      "expert_inner=3072 expert_width=3584 shared_count=2 dense_layers=1 dense_inner=33792 "
      "conv_taps=4 delta_size=128 decay_bound=-5 attention_step=4 q_rank=1536 kv_rank=512 "
      "mla_key_size=192 mla_value_size=128 rope_dims=64 gating=2 norm_top_k=1 expert_scale=1 "
      "bank_block=12 cap_gate=4 cap_up=25 rms_eps=1e-5 rope_theta=10000")
/* checked: layers, widths, heads, experts, rotations and vocabulary as published, 456 billion
 * parameters */
SHAPE("minimax-text-01", "minimax-01",
      "layers=80 hidden=6144 heads=64 kv_heads=8 head_size=128 vocab=200064 context=1048576 "
      "experts=32 experts_used=2 expert_inner=9216 rope_dims=64 normed_scale=3.5565588200778455 "
      "rms_eps=1e-5 rope_theta=10000000")
/* checked: config.json of Ling-3.0-tiny and Ling-3.0-flash as quoted; 7.9 and 124 billion
 * parameters; the limits of the larger model's last layers are not written */
SHAPE("ling-3.0-tiny", "bailingmoe3",
      "layers=24 hidden=1536 heads=16 vocab=157184 context=262144 experts=128 experts_used=8 "
      "expert_inner=512 shared_count=1 dense_layers=1 dense_inner=4608 conv_taps=4 delta_size=128 "
      "attention_step=4 kv_rank=512 q_rank=256 mla_key_size=192 mla_value_size=128 rope_dims=64 "
      "decay_bound=-5 groups=8 groups_used=4 norm_top_k=1 expert_scale=2.5 rms_eps=1e-6 "
      "rope_theta=6000000")
SHAPE("ling-3.0-flash", "bailingmoe3",
      "layers=42 hidden=2560 heads=32 vocab=157184 context=262144 experts=512 experts_used=8 "
      "expert_inner=768 shared_count=1 dense_layers=2 dense_inner=6144 conv_taps=4 delta_size=128 "
      "attention_step=6 kv_rank=512 mla_key_size=192 mla_value_size=128 rope_dims=64 "
      "decay_bound=-5 groups=8 groups_used=4 norm_top_k=1 expert_scale=2.5 rms_eps=1e-6 "
      "rope_theta=6000000")
/* checked: context and rope_theta in llama.cpp's conversion; tied as Hunyuan-Large is; the rest:
 * not checked */
SHAPE("hunyuan-a13b", "hunyuan-moe",
      "layers=32 hidden=4096 heads=32 kv_heads=8 head_size=128 vocab=128167 context=262144 "
      "experts=64 experts_used=8 expert_inner=3072 shared_count=1 shared_inner=3072 rms_eps=1e-5 "
      "rope_theta=11158840 tied=1")
/* checked: layers, widths, heads and experts as published, 480 billion parameters; rope_theta: not
 * checked */
SHAPE("arctic-480b", "arctic",
      "layers=35 hidden=7168 heads=56 kv_heads=8 vocab=32000 context=4096 experts=128 "
      "experts_used=2 expert_inner=4864 rms_eps=1e-5 rope_theta=10000")
/* checked: transformers' PhimoeConfig (microsoft/Phi-3.5-MoE-instruct); context is that before
 * LongRoPE; rope_theta: not checked */
SHAPE(
    "phi-moe", "phimoe",
    "layers=32 hidden=4096 heads=32 kv_heads=8 vocab=32064 context=4096 experts=16 experts_used=2 "
    "expert_inner=6400 rms_eps=1e-5 rope_theta=10000")
/* checked: vocabulary, layers, heads, clamp, rope_theta of databricks/dbrx-base; expert_inner: not
 * checked (131.6 billion parameters) */
SHAPE("dbrx", "dbrx",
      "layers=40 hidden=6144 heads=48 kv_heads=8 vocab=100352 context=32768 experts=16 "
      "experts_used=4 expert_inner=10752 clamp_qkv=8 rms_eps=1e-5 rope_theta=500000")
/* checked: the same text model in configurations of LLaDA2.0-mini and Ming (BailingMM2) */
SHAPE("ling-mini-2.0", "bailingmoe2",
      "layers=20 hidden=2048 heads=16 kv_heads=4 head_size=128 vocab=157184 context=32768 "
      "experts=256 experts_used=8 expert_inner=512 dense_layers=1 dense_inner=5120 shared_count=1 "
      "norm_top_k=1 expert_scale=2.5 groups=8 groups_used=4 rope_dims=64 rms_eps=1e-6 "
      "rope_theta=600000")
/* checked: README of SJTU-IPADS/SmallThinker; rope_theta and window: config.json of
 * SmallThinker-4BA0.6B */
SHAPE("smallthinker-21b-a3b", "smallthinker",
      "layers=52 hidden=2560 heads=28 kv_heads=4 head_size=128 vocab=151936 context=16384 "
      "experts=64 experts_used=6 expert_inner=768 window=4096 gating=2 rms_eps=1e-6 "
      "rope_theta=1500000")
/* checked: transformers' GptOssConfig; layers and experts (24, 32): not checked */
SHAPE(
    "gpt-oss-20b", "gpt-oss",
    "layers=24 hidden=2880 heads=64 kv_heads=8 head_size=64 vocab=201088 context=131072 experts=32 "
    "experts_used=4 expert_inner=2880 window=128 rms_eps=1e-5 rope_theta=150000 rope_scaling=2 "
    "rope_factor=32 rope_context=4096")
/* checked: transformers' GptOssConfig (defaults are 120b's) */
SHAPE("gpt-oss-120b", "gpt-oss",
      "layers=36 hidden=2880 heads=64 kv_heads=8 head_size=64 vocab=201088 context=131072 "
      "experts=128 experts_used=4 expert_inner=2880 window=128 rms_eps=1e-5 rope_theta=150000 "
      "rope_scaling=2 rope_factor=32 rope_context=4096")
/* checked: 15.706 billion parameters as published; single fields: not checked */
SHAPE("deepseek-v2-lite", "deepseek2",
      "layers=27 hidden=2048 heads=16 vocab=102400 context=163840 experts=64 experts_used=6 "
      "expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=2 expert_scale=1 gating=1 "
      "kv_rank=512 mla_key_size=192 mla_value_size=128 rope_dims=64 rms_eps=1e-6 rope_theta=10000 "
      "rope_scaling=yarn rope_factor=40 rope_context=4096 rope_beta_fast=32 rope_beta_slow=1 "
      "rope_log_multiplier=0.0707")
/* checked: slime scripts/models/deepseek-v3.sh, transformers' DeepseekV3Config */
SHAPE("deepseek-v3", "deepseek2",
      "layers=61 hidden=7168 heads=128 vocab=129280 context=163840 experts=256 experts_used=8 "
      "expert_inner=2048 dense_layers=3 dense_inner=18432 shared_count=1 expert_scale=2.5 gating=2 "
      "norm_top_k=1 groups=8 groups_used=4 q_rank=1536 kv_rank=512 mla_key_size=192 "
      "mla_value_size=128 rope_dims=64 rms_eps=1e-6 rope_theta=10000 rope_scaling=yarn "
      "rope_factor=40 rope_context=4096 rope_beta_fast=32 rope_beta_slow=1 rope_log_multiplier=0.1")
/* checked: transformers' DeepseekV32Config (defaults are the model's) */
SHAPE("deepseek-v3.2", "deepseek32",
      "layers=61 hidden=7168 heads=128 vocab=129280 context=163840 experts=256 experts_used=8 "
      "expert_inner=2048 dense_layers=3 dense_inner=18432 shared_count=1 expert_scale=2.5 gating=2 "
      "norm_top_k=1 groups=8 groups_used=4 q_rank=1536 kv_rank=512 mla_key_size=192 "
      "mla_value_size=128 rope_dims=64 rms_eps=1e-6 rope_theta=10000 rope_scaling=yarn "
      "rope_factor=40 rope_context=4096 rope_beta_fast=32 rope_beta_slow=1 rope_log_multiplier=0.1 "
      "index_top_k=2048 index_heads=64 index_size=128")
/* checked: transformers' GlmMoeDsaConfig (defaults are the model's); rope_theta of 5.2: not
 * checked */
SHAPE("glm-5", "glm-dsa",
      "layers=78 hidden=6144 heads=64 vocab=154880 context=202752 experts=256 experts_used=8 "
      "expert_inner=2048 dense_layers=3 dense_inner=12288 shared_count=1 expert_scale=2.5 gating=2 "
      "norm_top_k=1 groups=1 groups_used=1 q_rank=2048 kv_rank=512 mla_key_size=256 "
      "mla_value_size=256 rope_dims=64 rms_eps=1e-5 rope_theta=1000000 index_top_k=2048 "
      "index_heads=32 index_size=128")
/* checked: slime scripts/models/kimi-k2.sh; context: not checked */
SHAPE("kimi-k2", "deepseek2",
      "layers=61 hidden=7168 heads=64 vocab=163840 context=131072 experts=384 experts_used=8 "
      "expert_inner=2048 dense_layers=1 dense_inner=18432 shared_count=1 expert_scale=2.827 "
      "gating=2 norm_top_k=1 groups=1 groups_used=1 q_rank=1536 kv_rank=512 mla_key_size=192 "
      "mla_value_size=128 rope_dims=64 rms_eps=1e-6 rope_theta=50000 rope_scaling=yarn "
      "rope_factor=32 rope_context=4096 rope_beta_fast=1 rope_beta_slow=1 rope_log_multiplier=0.1")
/* checked: slime scripts/models/glm4.7-30B-A3B.sh, transformers' Glm4MoeLiteConfig */
SHAPE("glm-4.7-flash", "deepseek2",
      "layers=47 hidden=2048 heads=20 vocab=154880 context=202752 experts=64 experts_used=4 "
      "expert_inner=1536 dense_layers=1 dense_inner=10240 shared_count=1 expert_scale=1.8 gating=2 "
      "norm_top_k=1 groups=1 groups_used=1 q_rank=768 kv_rank=512 mla_key_size=256 "
      "mla_value_size=256 rope_dims=64 rms_eps=1e-5 rope_theta=1000000")
/* checked: size of Qwen3-30B-A3B, whose text model it has; context: not checked */
SHAPE("qwen3-vl-30b", "qwen3vlmoe",
      "layers=48 hidden=2048 heads=32 kv_heads=4 head_size=128 vocab=151936 context=262144 "
      "experts=128 experts_used=8 expert_inner=768 rms_eps=1e-6 rope_theta=5000000")
/* checked: layers, widths, heads, experts, window, vocabulary and rope_theta as published, 20
 * billion parameters; context: not checked */
SHAPE(
    "maple-20b", "maple",
    "layers=24 hidden=2048 heads=16 kv_heads=4 head_size=128 vocab=151936 context=32768 "
    "experts=256 experts_used=8 expert_inner=512 window=512 full_every=4 rope_dims=64 rms_eps=1e-6 "
    "rope_theta=10000")
/* checked: transformers' MellumConfig (defaults are the model's); YaRN's context: not checked */
SHAPE("mellum2-12b", "mellum",
      "layers=28 hidden=2304 heads=32 kv_heads=4 head_size=128 vocab=98304 context=131072 "
      "experts=64 experts_used=8 expert_inner=896 window=1024 full_every=4 rms_eps=1e-6 "
      "rope_theta=500000 rope_theta_window=500000 rope_scaling=yarn rope_factor=16 "
      "rope_context=8192")
/* checked: transformers' MiMoV2FlashConfig (defaults are the model's); windows: the last of six has
 * none, in the model the first one, too */
SHAPE("mimo-v2-flash", "mimo2",
      "layers=48 hidden=4096 heads=64 kv_heads=4 kv_heads_window=8 head_size=192 value_size=128 "
      "rope_dims=64 vocab=152576 context=262144 experts=256 experts_used=8 expert_inner=2048 "
      "dense_layers=1 dense_inner=16384 window=128 full_every=6 value_scale=0.707 rms_eps=1e-5 "
      "rope_theta=5000000 rope_theta_window=10000")
/* checked: layers, widths, heads, experts and window as published, 30.5 billion parameters;
 * context: not checked */
SHAPE("north-mini-code", "cohere2moe",
      "layers=49 hidden=2048 heads=32 kv_heads=4 head_size=128 vocab=262144 context=131072 "
      "experts=128 experts_used=8 expert_inner=768 dense_layers=1 dense_inner=3072 norm_top_k=1 "
      "window=4096 logit_scale=0.0625 rms_eps=1e-5 rope_theta=50000 rope_theta_window=50000 tied=1")
/* checked: layers, widths, heads, experts, window and vocabulary as published, 236 billion
 * parameters; dense_inner, context and rope_theta: not checked */
SHAPE("k-exaone-236b", "exaone-moe",
      "layers=48 hidden=6144 heads=64 kv_heads=8 head_size=128 vocab=153600 context=262144 "
      "experts=128 experts_used=8 expert_inner=2048 dense_layers=1 dense_inner=18432 "
      "shared_count=1 norm_top_k=1 expert_scale=2.5 window=128 rms_eps=1e-5 rope_theta=1000000")
/* checked: transformers' HYV3Config (defaults are Hy3's) */
SHAPE("hy3-295b", "hy_v3",
      "layers=80 hidden=4096 heads=64 kv_heads=8 head_size=128 vocab=120832 context=131072 "
      "experts=192 experts_used=8 expert_inner=1536 dense_layers=1 dense_inner=13312 "
      "shared_count=1 norm_top_k=1 expert_scale=2.826 rms_eps=1e-5 rope_theta=11158840")
/* checked: layers, heads, experts, widths, vocabulary, step and bases of Scout and Maverick as
 * published; the divisors of Scout's angles are left out */
SHAPE("llama4-scout", "llama4",
      "layers=48 hidden=5120 heads=40 kv_heads=8 head_size=128 vocab=202048 context=10485760 "
      "experts=16 experts_used=1 expert_inner=8192 expert_step=1 dense_inner=16384 shared_count=1 "
      "window=8192 query_scale=0.1 query_context=8192 rms_eps=1e-5 rope_theta=500000")
SHAPE("llama4-maverick", "llama4",
      "layers=48 hidden=5120 heads=40 kv_heads=8 head_size=128 vocab=202048 context=1048576 "
      "experts=128 experts_used=1 expert_inner=8192 expert_step=2 dense_inner=16384 "
      "shared_count=1 window=8192 query_scale=0.1 query_context=8192 rms_eps=1e-5 "
      "rope_theta=500000")
/* checked: transformers' Mistral4Config (defaults are Mistral-Small-4's) */
SHAPE("mistral-small-4", "mistral4",
      "layers=36 hidden=4096 heads=32 vocab=131072 context=1048576 experts=128 experts_used=4 "
      "expert_inner=2048 dense_inner=12288 shared_count=1 expert_scale=1 gating=1 norm_top_k=1 "
      "groups=1 groups_used=1 q_rank=1024 kv_rank=256 mla_key_size=128 mla_value_size=128 "
      "rope_dims=64 rms_eps=1e-6 rope_theta=10000 rope_scaling=yarn rope_factor=128 "
      "rope_context=8192 rope_beta_fast=32 rope_beta_slow=1 rope_log_multiplier=0.1 joined=1")
/* checked: layers, widths, heads and experts as published, 16.4 billion parameters; vocabulary,
 * context and rope_theta: not checked */
SHAPE("deepseek-moe-16b", "deepseek",
      "layers=28 hidden=2048 heads=16 kv_heads=16 vocab=102400 context=4096 experts=64 "
      "experts_used=6 expert_inner=1408 dense_layers=1 dense_inner=10944 shared_count=2 "
      "rms_eps=1e-6 rope_theta=10000")
/* checked: layers, widths, heads and experts as published, 16.8 billion parameters; vocabulary,
 * context and rope_theta: not checked */
SHAPE("ling-lite", "bailingmoe",
      "layers=28 hidden=2048 heads=16 kv_heads=4 head_size=128 vocab=126464 context=16384 "
      "experts=64 experts_used=6 expert_inner=1408 shared_count=2 norm_top_k=1 rms_eps=1e-6 "
      "rope_theta=600000")
SHAPE("tiny", "qwen3moe",
      "layers=4 hidden=128 heads=4 kv_heads=2 vocab=1024 context=2048 experts=16 "
      "experts_used=4 expert_inner=64 rms_eps=1e-6 rope_theta=10000")
#undef SHAPE
