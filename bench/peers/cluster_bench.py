#!/usr/bin/env python3
"""The reference decoder on four hosts, a pipeline of two stages with two replicas, here and in PyTorch, where communication is half of the step.

    .venv/bin/python bench/peers/cluster_bench.py build/release/piper [--config S] [--rounds 5] [--steps 4] [--rate 200mbit]     needs root

The hosts are those of an emulated cluster (tests/cluster). Its cables are slowed down until a step of PyTorch's, 1F1B with DDP, takes twice as long as
with cables that are not limited.

Both take turns, a few steps each per round. A round gives one ratio for each schedule here: its step time (the median of its steps) of the best of
PyTorch's, which has DDP and FSDP2. Losses must agree.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
from pipeline_bench import Torch, root  # noqa: E402
from train_bench import CONFIGS, run_piper, spread, write_config  # noqa: E402

CLUSTER = str(root / "tests/cluster/cluster")
HOSTS = 4
SCHEDULE = """mesh(pp=2, dp=2)
split(batch, parts={parts}, as=mb)
place({{}}, along=pp, stages={stages}, shape={shape})
replicate({{}}, along=dp, zero={zero}, bucket=1MB)
use {order}(stages=stage, microbatches=mb)
"""
OURS = {
    "1f1b, zero=0": dict(order="1f1b", stages=2, shape="loop", zero=0),
    "1f1b, zero=1": dict(order="1f1b", stages=2, shape="loop", zero=1),
    "1f1b-v, zero=0": dict(order="1f1b-v", stages=4, shape="v", zero=0),
}
THEIRS = ["1F1B+ddp", "1F1B+fsdp", "Interleaved1F1B+ddp", "LoopedBFS+fsdp"]


def cluster(*arguments):
    return subprocess.run([CLUSTER, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


class Peer:
    """PyTorch on all hosts. It trains on, so its losses are kept from the first step."""

    def __init__(self, config):
        self.torch = Torch(config, HOSTS, lambda rank: [CLUSTER, "exec", str(rank)])
        self.losses = {name: [] for name in THEIRS}
        for name in THEIRS:
            self.steps(name, 1)  # the first is slow

    def steps(self, name, count):
        """Seconds of a step."""
        rows = self.torch.steps(name, count)
        self.losses[name] += [row["loss"] for row in rows]
        return statistics.median(row["wall"] for row in rows)


def half(peer):
    """The speed of cables at which communication is half of PyTorch's step."""
    computing, mbit = peer.steps(THEIRS[0], 3), 500
    for _ in range(4):
        cluster("rate", "all", f"{mbit}mbit")
        seconds = peer.steps(THEIRS[0], 3)
        print(f"PyTorch {THEIRS[0]}: {seconds:.3f} s with cables of {mbit} Mbit/s, {computing:.3f} s without limits", flush=True)
        if abs(seconds / computing - 2) < 0.05:
            break
        mbit = round(mbit * (seconds / computing - 1))  # what is not hidden takes so much longer
    return f"{mbit}mbit"


def measure(program, path, config, rounds, steps, rate):
    for number, settings in enumerate(OURS.values()):
        (path.parent / f"{number}.piper").write_text(SCHEDULE.format(parts=config.microbatches // 2, **settings))
    peer = Peer(config.name)
    rate = rate or half(peer)
    cluster("rate", "all", rate)
    ours, theirs = {name: [] for name in OURS}, {name: [] for name in THEIRS}
    for _ in range(rounds):
        for name in THEIRS:
            theirs[name].append(peer.steps(name, steps))
        for number, name in enumerate(OURS):
            command = [CLUSTER, "launch", program, "launch", "-n", str(HOSTS), "--hosts", "/run/hostfile", path,
                       "--schedule", path.parent / f"{number}.piper"]
            _, rows = run_piper(command, path.with_suffix(".jsonl"), 1 + steps)
            ours[name].append(statistics.median(row["seconds"] for row in rows[1:]))
            for other, losses in peer.losses.items():
                worst = max(abs(row["loss"] - loss) for row, loss in zip(rows, losses))
                if worst > 1e-5:
                    sys.exit(f"cluster_bench: losses of {name} and of PyTorch's {other} differ by {worst:.1e}")
    peer.torch.end()
    best = [min(times) for times in zip(*theirs.values())]
    for name, times in theirs.items():
        print(f"{'PyTorch ' + name:28} {statistics.median(times) * 1e3:8.1f} ms")
    for name, times in ours.items():
        print(f"{name:28} {statistics.median(times) * 1e3:8.1f} ms, of PyTorch's best {spread([a / b for a, b in zip(times, best)])}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--config", default="S", choices=CONFIGS)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=4, help="of a round, after the first")
    options.add_argument("--rate", help="of the cables, instead of the chosen one")
    given = options.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", str(HOSTS), "none", "--", sys.executable, *sys.argv])
    os.environ.update(PIPER_BENCH_ADDRESS="host0", GLOO_SOCKET_IFNAME="eth0")
    with tempfile.TemporaryDirectory() as folder:
        config = CONFIGS[given.config]
        measure(given.program.resolve(), write_config(folder, config), config, given.rounds, given.steps, given.rate)


if __name__ == "__main__":
    main()
