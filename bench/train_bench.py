#!/usr/bin/env python3
"""Training the reference decoder on one device beside eager PyTorch, one thread each.

    .venv/bin/python bench/train_bench.py build/release/piper [--config tiny|S|M|MoE-S] [--rounds 5] [--steps 5]

Both take turns, a few steps each per round, so that they see the same noise; a round gives one ratio of CPU times and one
of wall times. CPU time is the fairer one on a machine that others use too: of a run of many steps less that of a run of few.
PyTorch's side is the kit in ../shared/peers.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent
kit = root.parent / "shared" / "peers"
if not (kit / "peer.py").exists():
    sys.exit(f"train_bench: {kit} is not there: it has PyTorch's side of the comparison")
sys.path.insert(0, str(kit))
os.environ["OMP_NUM_THREADS"] = "1"

import peer  # noqa: E402
import torch  # noqa: E402
from model import CONFIGS  # noqa: E402


def write_config(folder, config):
    experts = f"experts = {config.experts}\n" if config.experts else ""
    path = pathlib.Path(folder) / f"{config.name}.toml"
    path.write_text(f"""[model]
name = "{config.name}"
arch = "{'reference-moe' if config.experts else 'reference'}"
layers = {config.layers}
hidden = {config.dim}
heads = {config.heads}
vocab = {config.vocab}
{experts}seq = {config.seq}

[step]
batch = {config.batch}

[data]
kind = "reference"

[run]
schedule = "one_device.piper"
""")
    (path.parent / "one_device.piper").write_text(
        f"devices(1)\nsplit(batch, parts={config.microbatches}, as=mb)\nplace({{}}, devices=[0])\n")
    return path


def run_piper(command, metrics, steps):
    """CPU seconds of the whole run, and the steps as the metrics have them."""
    metrics.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--steps", str(steps), "--metrics", metrics], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen = [json.loads(line) for line in metrics.read_text().splitlines()]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, [entry for entry in seen if "loss" in entry]


def spread(numbers):
    return f"{statistics.median(numbers):.3f} ({min(numbers):.3f} .. {max(numbers):.3f})"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--config", action="append", choices=CONFIGS, help="default: tiny and M")
    options.add_argument("--mode", default="eager", choices=["eager", "eager-blas", "compile"])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=5, help="of a round, after the first")
    given = options.parse_args()
    torch.set_num_threads(1)
    for name in given.config or ["tiny", "M"]:
        config = CONFIGS[name]
        with tempfile.TemporaryDirectory() as folder:
            path = write_config(folder, config)
            command, metrics = [given.program, "train", path], path.with_suffix(".jsonl")
            trainer = peer.Accumulating(config, given.mode)
            losses = [trainer.step(0)]
            cpu_ratios, wall_ratios, cpu_seconds = [], [], []
            for _ in range(given.rounds):
                few, _ = run_piper(command, metrics, 1)
                many, steps = run_piper(command, metrics, 1 + given.steps)
                ours_cpu = (many - few) / given.steps
                ours_wall = statistics.median(step["seconds"] for step in steps[1:])
                cpu, wall = time.process_time(), []
                for _ in range(given.steps):
                    start = time.perf_counter()
                    losses.append(trainer.step(len(losses)))
                    wall.append(time.perf_counter() - start)
                theirs_cpu = (time.process_time() - cpu) / given.steps
                cpu_ratios.append(ours_cpu / theirs_cpu)
                wall_ratios.append(ours_wall / statistics.median(wall))
                cpu_seconds.append((ours_cpu, theirs_cpu))
            worst = max(abs(step["loss"] - loss) for step, loss in zip(steps, losses))
            ours, theirs = (statistics.median(side) for side in zip(*cpu_seconds))
            print(f"{name}: CPU time of a step {ours:.4f} s, {given.mode} PyTorch {theirs:.4f} s\n"
                  f"  piper / {given.mode}: CPU {spread(cpu_ratios)}, wall {spread(wall_ratios)}; "
                  f"losses differ by at most {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
