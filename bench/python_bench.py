#!/usr/bin/env python3
"""What Python costs: per step, beside the C++ runtime; and the capture of a 32-layer model of 0.6 G parameters on the meta device.

    PYTHONPATH=build/release/python .venv/bin/python bench/python_bench.py
"""
import os
import resource
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/python"))

import torch
import transformers

import piper
import small
from piper.integrations import transformers as integration


def overhead():
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    batch, extra, inside = small.batch(), [], []
    with piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=4)) as trainer:
        for _ in range(600):
            start = time.perf_counter()
            seconds = trainer.step(batch).seconds
            extra.append(time.perf_counter() - start - seconds)
            inside.append(seconds)
    extra, inside = sorted(extra[100:]), sorted(inside[100:])
    print(f"a step: {statistics.median(inside) * 1e6:.0f} us in C++; Python adds {statistics.median(extra) * 1e6:.1f} us "
          f"(90 %: {extra[len(extra) * 9 // 10] * 1e6:.1f} us)")


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def large():
    config = transformers.Qwen3Config(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=32,
                                      num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    integration.use(model)
    integration.annotate(model)
    ids = torch.zeros(2, 2048, dtype=torch.long)
    before, start, busy = peak(), time.perf_counter(), time.thread_time()
    graph = piper.capture(model, {"input_ids": ids, "labels": ids}, loss=lambda model, batch: model(**batch, use_cache=False).loss, batch=64)
    seconds = time.perf_counter() - start
    parameters = sum(value.numel() for value in model.parameters())
    print(f"capture of {parameters / 1e9:.2f} G parameters, {len(graph.operators().splitlines())} calls: {seconds:.1f} s "
          f"({time.thread_time() - busy:.1f} s of them on a processor), {peak() - before:.0f} MB above the import")
    start = time.perf_counter()
    plan = piper.compile(graph, piper.schedules.one_f_one_b(ranks=8, microbatches=16), "h100")
    print(f"compiled for 8 devices in {time.perf_counter() - start:.1f} s: {plan.check()}")


overhead()
large()
