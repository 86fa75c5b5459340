"""Layers of Llama shapes (hidden 4096) on one GPU with and without float8: milliseconds of a step, and losses of many steps of both on the
same text, a chain of tokens each of which has eight successors. bfloat16 weights, gradients and moments, 4 microbatches of 4 x 2048 tokens,
AdamW, clipping. Rows take turns; medians of `--rounds` rounds.

usage: PYTHONPATH=build/release/python python bench/gpu/float8_bench.py [--layers 4] [--steps 200] [--rounds 3]
       [--kernels inductor] [--graphs step]
"""
import argparse
import gc
import statistics
import tempfile
import time

import torch
import transformers

import piper
from piper.integrations import transformers as integration

MICROBATCHES, SAMPLES, TOKENS, WORDS, SUCCESSORS, WARM_UP = 4, 4, 2048, 32000, 8, 4
CACHE = tempfile.mkdtemp()


def fresh(layers):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=4096)
    with torch.device("cuda"):  # much faster than the processor
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).cpu()


def batches(steps):
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randint(0, SUCCESSORS, (TOKENS, steps, MICROBATCHES * SAMPLES), generator=generator)
    tokens = [torch.randint(0, WORDS, chosen.shape[1:], generator=generator)]
    for choice in chosen[1:]:
        tokens.append((tokens[-1] * 31 + 7 * choice + 3) % WORDS)
    return torch.stack(tokens, -1)


def run(options, data, float8, steps):
    """Seconds and losses of steps, and what PyTorch has taken of the GPU's memory."""
    model = fresh(options.layers)
    integration.use(model)
    integration.annotate(model)
    graph = piper.capture(model, {"input_ids": data[0], "labels": data[0]}, loss=lambda m, b: m(**b, use_cache=False).loss, on="cuda")
    schedule = piper.Schedule().devices(1).split(MICROBATCHES).place({}, devices=[0])
    if float8:
        schedule.precision({"layer": "*"}, matmul="float8")
    torch.cuda.reset_peak_memory_stats()
    optimizer = piper.AdamW(lr=1e-4, weight_decay=1e-2, gradients="bfloat16", master="bfloat16")
    seconds, losses = [], []
    with piper.Trainer(graph, schedule, optimizer=optimizer, clip=1.0, graphs=options.graphs, kernels=options.kernels,
                       kernel_cache=CACHE) as trainer:
        for ids in data[:steps]:
            start = time.perf_counter()
            losses.append(trainer.step({"input_ids": ids, "labels": ids}).loss)
            seconds.append(time.perf_counter() - start)
        print(trainer.table(), flush=True)
    return seconds[WARM_UP:], losses, torch.cuda.max_memory_allocated()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="the first of so many steps, the others of ten")
    parser.add_argument("--kernels", default="inductor")
    parser.add_argument("--graphs", default="step")
    options = parser.parse_args()
    data = batches(options.steps)
    medians, losses = {False: [], True: []}, {}
    for round_ in range(options.rounds):
        for float8, name in ((False, "bfloat16"), (True, "float8")):
            gc.collect()
            torch.cuda.empty_cache()
            seconds, of_steps, peak = run(options, data, float8, options.steps if round_ == 0 else min(options.steps, WARM_UP + 10))
            losses.setdefault(float8, of_steps)
            medians[float8].append(statistics.median(seconds))
            print(f"{name}: {medians[float8][-1] * 1e3:.1f} ms/step, {data[0].numel() / medians[float8][-1]:.0f} tokens/s, peak "
                  f"{peak / 2**30:.2f} GiB", flush=True)
    shown = sorted({*range(0, options.steps, max(1, options.steps // 10)), options.steps - 1})
    for step in shown:
        print(f"step {step}: loss {losses[False][step]:.4f} in bfloat16, {losses[True][step]:.4f} in float8")
    apart = [abs(a / b - 1) for a, b in zip(losses[True], losses[False])]
    fast, slow = statistics.median(medians[True]), statistics.median(medians[False])
    print(f"median: bfloat16 {slow * 1e3:.1f} ms/step, float8 {fast * 1e3:.1f} ms/step: {slow / fast:.2f}x; losses of {options.steps} steps "
          f"differ by {max(apart):.2%} at most, {statistics.mean(apart):.2%} on average, {apart[-1]:.2%} at the end")


if __name__ == "__main__":
    main()
