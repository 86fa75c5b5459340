#!/usr/bin/env python3
"""Saving and reading a run beside torch.distributed.checkpoint: the same model, the same optimizer state, the same disk.

    PYTHONPATH=build/release/python .venv/bin/python bench/checkpoint_bench.py [--parameters 50e6] [--rounds 5] [--folder DIR] [--on cuda]

In every round each takes its turn: the time for which training waits (blocked), the time until everything is on the disk
(total), and the time until another trainer has all of it (read). Beside them what copying the same bytes in memory takes (of
a GPU: to pinned memory of the host), and writing and reading them in one piece with dd. Ratios are medians over rounds.

Steps are timed in turn, too: while nothing is written, and while a save is. And the memory of the host that the first save takes is compared
with the bytes of the state, which is what `piper check --checkpoint` declares for one process.
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


def host_memory_used(on):
    """Of this process; pinned memory is no part of that, but of what the machine has left."""
    file, name = ("/proc/self/status", "VmRSS") if on == "cpu" else ("/proc/meminfo", "MemAvailable")
    number = int(next(line for line in Path(file).read_text().splitlines() if line.startswith(name + ":")).split()[1]) * 1024
    return number if on == "cpu" else -number


def steps_until(trainer, batch, done):
    """Seconds of each step, at least three."""
    out = []
    while len(out) < 3 or not done(len(out)):
        out.append(seconds(lambda: trainer.step(batch))[0])
    return out


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
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--on", default="cpu")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder, prefix="checkpoint-bench-"))
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    width = 2048
    model = Layers(width, max(1, round(options.parameters / width**2)))
    piper.annotate_modules(model, {"layer": "layers.*"})
    batch = {"x": torch.randn(options.batch, width)}
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

    steps = {"without a save": [], "while one is written": []}
    names = ["copy", "piper blocked", "piper total", "piper read", "save", "async_save blocked", "async_save total", "load", "dd write", "dd read"]
    times = {name: [] for name in names}
    with piper.Trainer(graph, optimizer=piper.AdamW(lr=1e-4), on=options.on) as trainer:
        trainer.step(batch)
        before = host_memory_used(options.on)
        trainer.save(folder / "piper", wait=True)
        taken = host_memory_used(options.on) - before
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
            trainer.step(batch)
            shutil.rmtree(path)
            path = Path(trainer.save(folder / "piper"))
            during = steps_until(trainer, batch, lambda _: path.exists())
            trainer._running().failed_saves(True)
            quiet = steps_until(trainer, batch, lambda count: count >= len(during))
            shutil.rmtree(path)
            for name, of in zip(steps, (quiet, during)) if round_ else ():
                steps[name].append(statistics.median(of))
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
    for name, of in steps.items():
        print(f"step {name}: {statistics.median(of) * 1e3:.2f} ms ({min(of) * 1e3:.2f} to {max(of) * 1e3:.2f})")
    slower = [during / quiet for quiet, during in zip(*steps.values())]
    print(f"step while a save is written / without: {statistics.median(slower):.3f} ({min(slower):.3f} to {max(slower):.3f})")
    print(f"host memory of the copies: {taken / 1e6:.1f} MB measured, {size / 1e6:.1f} MB declared: {taken / size:.4f}")


if __name__ == "__main__":
    main()
