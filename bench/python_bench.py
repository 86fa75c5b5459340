#!/usr/bin/env python3
"""What Python costs: per step, beside the C++ runtime; the tokens per second that samples and their fetching ahead reach; and the capture of a
32-layer model of 0.6 G parameters on the meta device.

    PYTHONPATH=build/release/python .venv/bin/python bench/python_bench.py [--small: without the capture]
"""
import array
import itertools
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/python"))

import torch
import transformers

import piper
import small
from piper.integrations import transformers as integration


class Telling(small.Stack):
    """Says metrics."""

    def forward(self, tokens):
        out = super().forward(tokens)
        piper.metric("largest", out.detach().abs().max())
        piper.metric("mean", out.detach().mean())
        return out


class Silent(piper.callbacks.Callback):
    pass


class Instant:
    """In the place of the C++ runtime: what is left is Python."""

    def __init__(self, result):
        self.result, self.steps = tuple(result), 1

    def step(self, batch, names, flatten, *_):
        flatten(batch)
        return self.result


def overhead(what, model, optimizer=None, callbacks=(), loss=small.loss, **options):
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=loss)
    batch, extra, inside, alone = small.batch(), [], [], []
    with piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=4), optimizer=optimizer, callbacks=callbacks, **options) as trainer:
        for _ in range(600):
            start = time.perf_counter()
            result = trainer.step(batch)
            extra.append(time.perf_counter() - start - result.seconds)
            inside.append(result.seconds)
        runtime, trainer._handle = trainer._handle, Instant(result)
        for _ in range(3000):
            start = time.perf_counter()
            trainer.step(batch)
            alone.append(time.perf_counter() - start)
        trainer._handle = runtime
    extra, inside, alone = sorted(extra[100:]), sorted(inside[100:]), sorted(alone[500:])
    print(f"a step, {what}: Python {statistics.median(alone) * 1e6:.1f} us (90 %: {alone[len(alone) * 9 // 10] * 1e6:.1f} us); devices "
          f"{statistics.median(inside) * 1e6:.0f} us; the call takes {statistics.median(extra) * 1e6:.1f} us more than those "
          f"(10 %: {extra[len(extra) // 10] * 1e6:.1f} us): Python, and what C++ does with the batch")


def uncounted(model, batch):
    return -model(batch["tokens"]).gather(-1, batch["targets"][..., None]).mean()


def overheads():
    groups = [piper.ParameterGroup("*.bias", weight_decay=0.0), piper.ParameterGroup("embedding.*", lr_factor=0.1)]
    overhead("bare", small.Stack())
    overhead("bare, a loss that counts no tokens", small.Stack(), loss=uncounted)
    overhead("parameter groups", small.Stack(), piper.AdamW(groups=groups))
    overhead("two metrics", Telling())
    with tempfile.TemporaryDirectory() as folder:
        overhead("a callback", small.Stack(), callbacks=[Silent()])
        overhead("all of them, a metrics file and a prediction", Telling(), piper.AdamW(groups=groups),
                 [Silent(), piper.callbacks.MetricsFile(folder + "/metrics.jsonl")], cluster="laptop")


def data(sequence=2048, batch=8, batches=400):
    """Samples fetched ahead, by processor time of all threads of this process, and by the clock."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        path.write_bytes(array.array("H", range(50000)).tobytes() * 400)
        samples = piper.Samples(path, sequence=sequence, batch=batch)
        with piper.FetchAhead(samples) as ahead:
            next(ahead)
            busy, start = time.process_time(), time.perf_counter()
            for _ in itertools.islice(ahead, batches):
                pass
            busy, seconds = time.process_time() - busy, time.perf_counter() - start
    tokens = sequence * batch * batches
    print(f"samples of {sequence} tokens, fetched ahead: {tokens / busy / 1e6:.0f} M tokens per second of processor time, "
          f"{tokens / seconds / 1e6:.0f} M per second")


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


overheads()
data()
if "--small" not in sys.argv:
    large()
