"""Steps of whole models on one GPU, beside torch.compile: Qwen3-0.6B of transformers, a Llama of 1.24 B parameters, and two small mixtures of
experts, in bfloat16, 8 microbatches of 2 x 2048 tokens, AdamW, clipping. Rows of one run take turns; medians of `--rounds` rounds.

usage: PYTHONPATH=build/release/python python bench/gpu/model_bench.py [--model qwen3|llama|mixtral|qwen3-moe] [--rounds 3] [--kernel-cache DIR] [ROW...]
rows: eager, default (torch.compile), MODE of torch.compile, piper:KERNELS:GRAPHS[:PRECISION[:EXPERTS[:LOSS_BLOCK]]] (piper:inductor:step,
piper:inductor:step:mixed, piper:inductor:step:bfloat16:slots).
Precision is that of the PyTorch rows, bfloat16 weights, gradients and moments, or mixed: float32 gradients, master copies and moments.
Experts are those of the PyTorch rows, sorted rows (transformers' `grouped_mm`), or slots for all tokens.
"""
import argparse
import gc
import statistics
import tempfile
import time
import traceback

import torch
import transformers

import piper
from piper.integrations import transformers as integration

MICROBATCHES, SAMPLES, TOKENS, STEPS, WARM_UP = 8, 2, 2048, 6, 4
CONFIGS = {
    "qwen3": lambda: transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, tie_word_embeddings=True, rope_theta=1e6, max_position_embeddings=4096),
    "llama": lambda: transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        tie_word_embeddings=True, max_position_embeddings=4096),
    "mixtral": lambda: transformers.MixtralConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=3584, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=8,
        num_local_experts=8, num_experts_per_tok=2, sliding_window=None, max_position_embeddings=4096),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(
        vocab_size=32000, hidden_size=2048, moe_intermediate_size=768, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, max_position_embeddings=4096),
}
PRECISIONS = {"bfloat16": dict(gradients="bfloat16", master="bfloat16"), "mixed": dict(gradients="float32", master="float32")}


def fresh(model):
    torch.manual_seed(0)
    with torch.device("cuda"):  # much faster than the processor
        made = transformers.AutoModelForCausalLM.from_config(CONFIGS[model](), dtype=torch.bfloat16).cpu()
    if hasattr(made.config, "num_experts_per_tok"):
        made.set_experts_implementation("grouped_mm")
    return made


def batch(model):
    vocabulary = CONFIGS[model]().vocab_size
    return torch.randint(0, vocabulary, (MICROBATCHES * SAMPLES, TOKENS), generator=torch.Generator().manual_seed(1))


def pytorch(model_name, mode):
    """Seconds of steps, losses, peak bytes, seconds of the first step."""
    torch._dynamo.reset()
    model = fresh(model_name).cuda().train()
    loss = lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss
    if mode != "eager":
        loss = torch.compile(loss, mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    slices = batch(model_name).cuda().view(MICROBATCHES, SAMPLES, TOKENS)
    seconds, losses = [], []
    for _ in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        start, total = time.perf_counter(), 0
        for ids in slices:
            torch.compiler.cudagraph_mark_step_begin()
            one = loss(ids) / MICROBATCHES
            one.backward()
            total = total + one.detach().clone()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        losses.append(total.item())
    return seconds[WARM_UP:], losses, torch.cuda.max_memory_allocated(), seconds[0]


def ours(model_name, cache, kernels, graphs, precision="bfloat16", experts="rows", loss_block=None):
    model, ids = fresh(model_name), batch(model_name)
    integration.use(model, experts=experts == "slots")
    integration.annotate(model)
    start = time.perf_counter()
    graph = piper.capture(model, {"input_ids": ids, "labels": ids}, loss=lambda m, b: m(**b, use_cache=False).loss, on="cuda",
                          loss_block=loss_block and int(loss_block))
    schedule = piper.Schedule().devices(1).split(MICROBATCHES).place({}, devices=[0])
    torch.cuda.reset_peak_memory_stats()
    seconds, losses = [], []
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=1e-4, weight_decay=1e-2, **PRECISIONS[precision]), clip=1.0, graphs=graphs,
                       kernels=kernels, kernel_cache=cache) as trainer:
        ready = time.perf_counter() - start
        for _ in range(WARM_UP + STEPS):
            start = time.perf_counter()
            losses.append(trainer.step({"input_ids": ids, "labels": ids}).loss)
            seconds.append(time.perf_counter() - start)
        print(trainer.table(), flush=True)
    return seconds[WARM_UP:], losses, torch.cuda.max_memory_allocated(), ready


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="qwen3", choices=CONFIGS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernel-cache", help="a folder that other runs have filled; else a new one")
    parser.add_argument("rows", nargs="*", default=["default", "piper:eager:step", "piper:inductor:step"])
    options = parser.parse_args()
    cache = options.kernel_cache or tempfile.mkdtemp()
    medians = {row: [] for row in options.rows}
    for _ in range(options.rounds):
        for row in options.rows:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            try:
                run = ours(options.model, cache, *row.split(":")[1:]) if row.startswith("piper:") else pytorch(options.model, row)
            except Exception:
                traceback.print_exc()
                continue
            seconds, losses, peak, first = run
            medians[row].append(statistics.median(seconds))
            tokens = MICROBATCHES * SAMPLES * TOKENS / medians[row][-1]
            print(f"{row}: {medians[row][-1] * 1e3:.1f} ms/step, {tokens:.0f} tokens/s, peak {peak / 2**30:.2f} GiB, ready or first step "
                  f"{first:.1f} s, losses {[round(x, 4) for x in losses[:4]]}", flush=True)
    for row, of in medians.items():
        if of:
            print(f"median {row}: {statistics.median(of) * 1e3:.1f} ms/step", flush=True)


if __name__ == "__main__":
    main()
