/* SPDX-License-Identifier: Apache-2.0 */
/* Models of every architecture, as keys of sluice synth. No include guard: include it with the
 * macros defined; they are undefined at the end.
 *
 * RUN(name, types, keys...)      every check with experts of these types
 * SAMPLE(name, option, keys...)  in the short form, the check with this option */
SAMPLE(qwen3moe, "--threads=2", "arch=qwen3moe")
SAMPLE(qwen2moe, "--prefill-chunk=7", "arch=qwen2moe", "shared_inner=512")
SAMPLE(olmoe, "--threads=2", "arch=olmoe")
SAMPLE(llama, "--isa=generic", "arch=llama", "experts_used=2")
RUN(glm4moe, "Q4_K_M", "arch=glm4moe", "layers=4", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "norm_top_k=1", "rope_dims=32")
SAMPLE(dots1, "--threads=2", "arch=dots1", "layers=4", "dense_layers=1", "dense_inner=512",
       "shared_count=2", "norm_top_k=1", "expert_scale=2.5")
SAMPLE(ernie4_5_moe, "--prefill-chunk=7", "arch=ernie4_5-moe", "layers=5", "dense_layers=2",
       "dense_inner=512", "shared_count=2", "shared_inner=512")
/* Recurrent layers: their state survives kills, too. */
#define DELTA_KEYS                                                                                 \
    "shared_inner=256", "rope_dims=16", "conv_taps=4", "delta_size=32", "delta_k_heads=2",         \
        "delta_v_heads=4", "delta_inner=128"
RUN(qwen35moe, "Q4_K_M", "arch=qwen35moe", DELTA_KEYS, "attention_step=3")
SAMPLE(qwen3next, "--prefill-chunk=7", "arch=qwen3next", DELTA_KEYS, "attention_step=2")
RUN(lfm2moe, "Q4_K_M", "arch=lfm2moe", "layers=5", "dense_layers=2", "dense_inner=512",
    "conv_taps=3", "attention_step=2")
SAMPLE(minimax_m2, "--isa=generic", "arch=minimax-m2", "rope_dims=32")
/* Networks with gpt-oss's activation; an indexer that chooses a part of the prompt's blocks. */
RUN(minimax_m3, "Q4_K_M", "arch=minimax-m3", "layers=4", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "norm_top_k=1", "expert_scale=2", "rope_dims=32", "kv_heads=2",
    "index_heads=2", "index_size=64", "index_block=4", "index_top_k=4")
SAMPLE(bailingmoe2, "--prefill-chunk=7", "arch=bailingmoe2", "layers=4", "dense_layers=1",
       "dense_inner=512", "shared_count=1", "norm_top_k=1", "groups=4", "groups_used=2")
/* Its experts are requested before attention. */
RUN(smallthinker, "Q4_K_M", "arch=smallthinker", "layers=5", "window=64", "gating=2")
SAMPLE(granitemoe, "--threads=2", "arch=granitemoe", "embedding_scale=12", "residual_scale=0.22",
       "score_scale=0.125", "logit_divisor=6", "shared_inner=512")
/* Router and experts read the input of the layer, and a dense network is beside them. */
RUN(arctic, "Q4_K_M", "arch=arctic", "layers=3", "experts_used=2")
/* Mamba-2 in two of three layers. */
RUN(granitehybrid, "Q4_K_M", "arch=granitehybrid", "conv_taps=4", "delta_size=32",
    "delta_k_heads=2", "delta_v_heads=8", "delta_inner=512", "attention_step=3", "shared_inner=256",
    "embedding_scale=12", "residual_scale=0.22")
/* Layers of one part: Mamba-2, experts of two matrices, attention; then with experts in a
 * latent. */
RUN(nemotron_h_moe, "Q4_K_M", "arch=nemotron_h_moe", "pattern=ME*EE", "conv_taps=4",
    "delta_size=32", "delta_k_heads=2", "delta_v_heads=8", "delta_inner=512", "shared_inner=256",
    "gating=2", "expert_scale=2.5")
RUN(nemotron_latent, "Q8_0", "arch=nemotron_h_moe", "pattern=ME*EE", "conv_taps=4", "delta_size=32",
    "delta_k_heads=2", "delta_v_heads=8", "delta_inner=512", "shared_inner=256", "gating=2",
    "expert_width=256")
/* Streams and n-grams, whose table has rows that are no multiple of a block of K types; an indexer
 * over pools. */
RUN(qwen4exp, "Q4_K_M", "arch=qwen4exp", "shared_inner=256", "conv_taps=4", "delta_size=32",
    "delta_k_heads=2", "delta_v_heads=6", "delta_inner=192", "attention_step=3", "streams=4",
    "stream_rank=32", "ngram_size=3", "ngram_heads=2", "ngram_taps=4", "ngram_width=32",
    "ngram_rows=4000", "index_top_k=16", "index_block=4", "index_heads=4", "index_size=64")
/* Lightning attention in two of three layers; parts add to their normed inputs. */
RUN(minimax_01, "Q4_K_M", "arch=minimax-01", "layers=4", "attention_step=3", "rope_dims=32",
    "normed_scale=1.5")
/* Mamba-1 in two of three layers, and experts in every second one; several blocks of channels. */
RUN(jamba, "Q4_K_M", "arch=jamba", "layers=6", "dense_inner=256", "conv_taps=4", "delta_size=16",
    "step_rank=256", "delta_inner=512", "attention_step=3", "experts_every=2")
/* Streams that are mixed, and limits of all networks. */
RUN(glm5_next, "Q4_K_M", "arch=glm5-next", "layers=4", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "norm_top_k=1", "expert_scale=2.5", "conv_taps=4", "delta_size=32",
    "attention_step=2", "kv_heads=1", "q_rank=128", "kv_rank=64", "mla_key_size=32",
    "mla_value_size=32", "decay_bound=-5", "expert_limits=1", "dense_limits=1", "streams=4",
    "stream_steps=20", "stream_eps=1e-6", "index_top_k=16", "index_block=4", "index_heads=4",
    "index_size=64")
/* A window beside entries of 4 and of 128 positions, of which few are chosen; experts by token in
 * two layers; groups of heads whose matrix has K types. */
RUN(deepseek4, "Q4_K_M", "arch=deepseek4", "layers=5", "kv_heads=1", "head_size=128", "q_rank=256",
    "output_groups=2", "output_rank=128", "window=32", "rope_dims=16", "rope_theta=160000",
    "rope_theta_window=10000", "rope_scaling=yarn", "rope_factor=16", "rope_context=64",
    "rope_magnitude=1", "index_heads=4", "index_size=64", "index_top_k=8", "gating=4",
    "norm_top_k=1", "expert_scale=1.5", "shared_count=1", "table_layers=2", "expert_limits=1",
    "dense_limits=1", "streams=4", "stream_steps=20", "stream_eps=1e-6")
/* Sinks and gates of MLA, and streams that are weighed. */
RUN(hy_v4, "Q4_K_M", "arch=hy_v4", "layers=4", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "norm_top_k=1", "expert_scale=2.5", "kv_heads=1", "q_rank=128", "kv_rank=64",
    "mla_key_size=48", "mla_value_size=32", "rope_dims=16", "expert_limits=1", "streams=4",
    "stream_magnitude=2", "stream_eps=1e-6", "index_top_k=16", "index_heads=4", "index_size=64",
    "head_size=0")
/* MLA in two geometries, with windows, and an indexer in every third layer. */
RUN(dots3note, "Q4_K_M", "arch=dots3note", "layers=6", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "norm_top_k=1", "expert_scale=2.5", "heads_window=2", "kv_heads=1",
    "q_rank=256", "kv_rank=64", "kv_rank_window=256", "mla_key_size=48", "mla_key_size_window=96",
    "mla_value_size=32", "mla_value_size_window=128", "rope_dims=16", "window=32", "full_every=3",
    "rope_theta_window=500", "index_top_k=16", "index_heads=4", "index_size=64", "head_size=0")
/* Kimi delta attention in two of three layers, else MLA without rotation. */
RUN(kimi_linear, "Q4_K_M", "arch=kimi-linear", "layers=4", "dense_layers=1", "dense_inner=512",
    "shared_count=1", "conv_taps=4", "delta_size=64", "attention_step=3", "kv_heads=1",
    "head_size=0", "kv_rank=256", "mla_key_size=96", "mla_value_size=64", "rope_dims=32")
/* The same with a bank of sums of blocks and experts in a latent. */
RUN(kimi_k3, "MXFP4", "arch=kimi-k3", "layers=5", "dense_layers=1", "dense_inner=512",
    "shared_count=2", "conv_taps=4", "delta_size=64", "attention_step=3", "kv_heads=1",
    "head_size=0", "q_rank=256", "kv_rank=256", "mla_key_size=96", "mla_value_size=64",
    "rope_dims=32", "decay_bound=-5", "expert_width=128", "bank_block=2", "cap_gate=4", "cap_up=25")
/* With queries of one matrix, as the larger model. */
SAMPLE(bailingmoe3, "--threads=2", "arch=bailingmoe3", "layers=4", "dense_layers=1",
       "dense_inner=512", "shared_count=1", "conv_taps=4", "delta_size=64", "attention_step=3",
       "kv_heads=1", "head_size=0", "kv_rank=256", "mla_key_size=96", "mla_value_size=64",
       "rope_dims=32", "decay_bound=-5", "groups=4", "groups_used=2")
SAMPLE(hunyuan_moe, "--isa=generic", "arch=hunyuan-moe", "shared_count=1")
SAMPLE(phimoe, "--prefill-chunk=7", "arch=phimoe", "experts_used=2")
SAMPLE(dbrx, "--threads=2", "arch=dbrx", "clamp_qkv=1")
/* Windows, sinks, biases of experts, YaRN; the prompt is longer than a window. */
RUN(gpt_oss, "MXFP4", "arch=gpt-oss", "layers=4", "window=16", "rope_scaling=yarn", "rope_factor=8",
    "rope_context=64")
/* MLA with queries in two factors, and a YaRN. */
#define MLA_KEYS                                                                                   \
    "kv_heads=1", "head_size=0", "q_rank=256", "kv_rank=256", "mla_key_size=160",                  \
        "mla_value_size=64", "rope_dims=32", "rope_scaling=yarn", "rope_context=64",               \
        "shared_count=1", "norm_top_k=1"
#define MLA_DENSE_KEYS                                                                             \
    MLA_KEYS, "layers=4", "dense_layers=1", "dense_inner=512", "gating=2", "expert_scale=2.5",     \
        "rope_factor=40", "rope_log_multiplier=0.1"
RUN(deepseek2, "Q4_K_M", "arch=deepseek2", MLA_DENSE_KEYS, "groups=4", "groups_used=2")
/* An indexer that chooses a part of the prompt's positions, and one that would choose all. */
SAMPLE(deepseek32, "--threads=2", "arch=deepseek32", MLA_DENSE_KEYS, "groups=4", "groups_used=2",
       "index_top_k=16", "index_heads=4", "index_size=64")
SAMPLE(glm_dsa, "--isa=generic", "arch=glm-dsa", MLA_DENSE_KEYS, "index_top_k=1024",
       "index_heads=4", "index_size=64")
/* Queries grow with their position, beyond rope_context. */
SAMPLE(mistral4, "--prefill-chunk=7", "arch=mistral4", MLA_KEYS, "rope_factor=128",
       "query_scale=0.1", "query_context=64")
SAMPLE(qwen3vlmoe, "--threads=2", "arch=qwen3vlmoe")
/* Window layers have their own base of rotations, and no YaRN. */
SAMPLE(mellum, "--prefill-chunk=7", "arch=mellum", "layers=4", "window=64", "full_every=2",
       "rope_scaling=yarn", "rope_factor=16", "rope_context=64", "rope_theta_window=1000")
/* Window layers rotate a part of each head, the others do not. */
SAMPLE(maple, "--threads=2", "arch=maple", "layers=4", "window=48", "full_every=2", "rope_dims=16")
SAMPLE(bailingmoe, "--isa=generic", "arch=bailingmoe", "shared_count=2", "norm_top_k=1")
SAMPLE(deepseek, "--threads=2", "arch=deepseek", "layers=4", "dense_layers=1", "dense_inner=512",
       "shared_count=2")
/* Window layers rotate, the others do not. */
SAMPLE(exaone_moe, "--prefill-chunk=7", "arch=exaone-moe", "layers=5", "dense_layers=1",
       "dense_inner=512", "shared_count=1", "norm_top_k=1", "expert_scale=2.5", "window=64")
SAMPLE(hy_v3, "--isa=generic", "arch=hy_v3", "layers=4", "dense_layers=1", "dense_inner=512",
       "shared_inner=256", "norm_top_k=1", "expert_scale=2.8")
/* Two numbers of query heads, a gate of each, half of a head rotated in full layers, limits. */
SAMPLE(step35, "--prefill-chunk=7", "arch=step35", "layers=5", "heads_window=6", "dense_layers=1",
       "dense_inner=512", "shared_inner=256", "norm_top_k=1", "expert_scale=3", "window=64",
       "full_every=2", "expert_limits=0.4", "rope_theta_window=1000", "dense_limits=0.3")
SAMPLE(laguna, "--threads=2", "arch=laguna", "layers=5", "heads_window=6", "dense_layers=1",
       "dense_inner=512", "norm_top_k=1", "window=64", "rope_scaling=yarn", "rope_factor=32",
       "rope_context=64", "gate_form=2")
SAMPLE(afmoe, "--isa=generic", "arch=afmoe", "layers=5", "dense_layers=2", "dense_inner=512",
       "shared_count=1", "norm_top_k=1", "expert_scale=2.8", "window=64")
/* Window layers rotate, the others do not; gate and up of the shared expert are one matrix. */
SAMPLE(granite_swa, "--prefill-chunk=7", "arch=granite_swa", "layers=4", "shared_inner=256",
       "window=48", "full_every=2", "no_rope_full=1", "embedding_scale=12", "residual_scale=0.22",
       "score_scale=0.125", "logit_divisor=6")
SAMPLE(mimo2, "--threads=2", "arch=mimo2", "layers=4", "dense_layers=1", "dense_inner=512",
       "window=48", "full_every=2", "kv_heads_window=4", "value_size=32", "rope_dims=16",
       "rope_theta_window=1000", "value_scale=0.707", "joined_qkv=1")
/* Chunks and queries that grow; experts in every second layer, with weights of their inputs. */
RUN(llama4, "Q4_K_M", "arch=llama4", "layers=4", "experts_used=1", "expert_step=2", "experts=24",
    "dense_inner=512", "shared_count=1", "window=64", "query_scale=0.1", "query_context=16")
SAMPLE(cohere2moe, "--prefill-chunk=7", "arch=cohere2moe", "layers=5", "dense_layers=1",
       "dense_inner=512", "shared_count=1", "norm_top_k=1", "window=48", "logit_scale=0.25",
       "norm=1")
RUN(gemma4, "Q4_K_M", "arch=gemma4", "dense_inner=512", "window=48", "full_every=3",
    "head_size_window=32", "value_size_window=32", "rope_dims_window=32", "full_v=0",
    "rope_theta_window=1000")
#undef RUN
#undef SAMPLE
