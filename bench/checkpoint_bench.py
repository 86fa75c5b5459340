#!/usr/bin/env python3
"""Saving and reading a run beside torch.distributed.checkpoint: the same model, the same optimiser state, the same disk.

    PYTHONPATH=build/release/python .venv/bin/python bench/checkpoint_bench.py [--parameters 50e6] [--rounds 5] [--folder DIR] [--on cuda]

In every round each takes its turn: the time for which training waits (blocked), the time until everything is on the disk
(total), and the time until another trainer has all of it (read). Beside them what copying the same bytes in memory takes (of
a GPU: to pinned memory of the host), and writing and reading them in one piece with dd. Ratios are medians over rounds.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.nn as nn  # noqa: E402

import piper  # noqa: E402


class Layers(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def seconds(work):
    start = time.perf_counter()
    out = work()
    return time.perf_counter() - start, out


def state_of(model, place):
    """As a training loop of PyTorch has it: weights and both moments."""
    return {"model": {name: value.to(place) for name, value in model.state_dict().items()},
            "optim": {name: {"exp_avg": torch.rand_like(value, device=place), "exp_avg_sq": torch.rand_like(value, device=place)}
                      for name, value in model.state_dict().items()}}


def tensors_in(state):
    for value in state.values():
        if isinstance(value, dict):
            yield from tensors_in(value)
        else:
            yield value


def dd(source, target, bytes_):
    return seconds(lambda: subprocess.run(["dd", f"if={source}", f"of={target}", "bs=4M", f"count={-(-bytes_ // (4 << 20))}", "conv=fsync" if target != "/dev/null"
                                           else "status=none"], check=True, capture_output=True))[0]


def drop_caches():
    subprocess.run(["sync"])
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, default=50e6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--on", default="cpu")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder, prefix="checkpoint-bench-"))
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    width = 2048
    model = Layers(width, max(1, round(options.parameters / width**2)))
    piper.annotate_modules(model, {"layer": "layers.*"})
    batch = {"x": torch.randn(2, width)}
    graph = piper.capture(model, batch, loss=lambda model, batch: model(batch["x"]).square().mean(), on=options.on)
    state = state_of(model, options.on)
    size = sum(t.nbytes for t in tensors_in(state))
    pinned = options.on != "cpu"
    copies = [torch.empty_like(t, device="cpu", pin_memory=pinned).zero_() for t in tensors_in(state)]

    def copy():
        for target, source in zip(copies, tensors_in(state)):
            target.copy_(source, non_blocking=True)
        if pinned:
            torch.cuda.synchronize()

    names = ["copy", "piper blocked", "piper total", "piper read", "save", "async_save blocked", "async_save total", "load", "dd write", "dd read"]
    times = {name: [] for name in names}
    with piper.Trainer(graph, optimizer=piper.AdamW(lr=1e-4), on=options.on) as trainer:
        trainer.step(batch)
        for round_ in range(options.rounds + 1):  # the first is not counted
            now = {}
            now["copy"] = seconds(copy)[0]
            start = time.perf_counter()
            now["piper blocked"], path = seconds(lambda: trainer.save(folder / "piper"))
            trainer._running().failed_saves(True)
            now["piper total"] = time.perf_counter() - start
            now["save"] = seconds(lambda: dcp.save(state, checkpoint_id=str(folder / "dcp")))[0]
            start = time.perf_counter()
            now["async_save blocked"], future = seconds(lambda: dcp.async_save(state, checkpoint_id=str(folder / "async")))
            future.result()
            now["async_save total"] = time.perf_counter() - start
            drop_caches()
            now["piper read"] = seconds(lambda: trainer.resume(path))[0]
            drop_caches()
            now["load"] = seconds(lambda: dcp.load(state, checkpoint_id=str(folder / "dcp")))[0]
            now["dd write"] = dd("/dev/zero", str(folder / "dd"), size)
            drop_caches()
            now["dd read"] = dd(str(folder / "dd"), "/dev/null", size)
            for name in names if round_ else ():
                times[name].append(now[name])
    shutil.rmtree(folder)
    print(f"{size / 1e6:.0f} MB of state on {options.on}, {options.rounds} rounds\n\n| | median s | from | to | GB/s |\n| --- | --- | --- | --- | --- |")
    for name in names:
        of = times[name]
        print(f"| {name} | {statistics.median(of):.3f} | {min(of):.3f} | {max(of):.3f} | {size / 1e9 / statistics.median(of):.2f} |")

    def ratio(a, b):
        of = [x / y for x, y in zip(times[a], times[b])]
        print(f"{a} / {b}: {statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})")

    print()
    for a, b in (("piper blocked", "copy"), ("piper blocked", "async_save blocked"), ("piper total", "save"), ("piper total", "async_save total"),
                 ("piper read", "load"), ("piper total", "dd write"), ("piper read", "dd read")):
        ratio(a, b)


if __name__ == "__main__":
    main()
