#!/usr/bin/env python3
"""The reference decoder on four hosts, a pipeline of two stages with two replicas, here and in PyTorch, where communication is half of the step.

    .venv/bin/python bench/peers/cluster_bench.py build/release/piper [--config S] [--rounds 5] [--steps 4] [--rate 200mbit]     needs root

The hosts are those of an emulated cluster (tests/cluster). The speed of its cables is chosen: on it, the bytes that the busiest host sends in a
step of PyTorch's (1F1B with DDP; counted by the cable) take as long as that step takes with cables that are not limited.

Both take turns, a few steps each per round; PyTorch is at its best of pipelines with DDP and with FSDP2. A round gives one ratio, of the step
times (medians of its steps). `looped-bfs` here has 8 stages: gradients of a stage are complete, and on their way, while others compute.
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
place({{}}, along=pp, stages={stages})
replicate({{}}, along=dp, zero={zero}, bucket=4MB)
use {order}(stages=stage, microbatches=mb)
"""
OURS = {
    "1f1b, zero=0": dict(order="1f1b", stages=2, zero=0),
    "1f1b, zero=1": dict(order="1f1b", stages=2, zero=1),
    "looped-bfs, zero=0": dict(order="looped-bfs", stages=8, zero=0),
}
THEIRS = ["1F1B+ddp", "1F1B+fsdp", "Interleaved1F1B+ddp", "LoopedBFS+fsdp"]


def cluster(*arguments):
    return subprocess.run([CLUSTER, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def sent():
    return [int(cluster("exec", host, "cat", "/sys/class/net/eth0/statistics/tx_bytes")) for host in range(HOSTS)]


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
    """The speed at which communication takes as long as computation."""
    count, before = 4, sent()
    seconds = peer.steps(THEIRS[0], count)
    busiest = max(now - then for now, then in zip(sent(), before)) / count
    rate = f"{round(8e-6 * busiest / seconds)}mbit"
    print(f"PyTorch's {THEIRS[0]} without limits: {seconds:.3f} s and {busiest / 1e6:.1f} MB a step; so the cables have {rate}", flush=True)
    return rate


def measure(program, path, config, rounds, steps, rate):
    for number, settings in enumerate(OURS.values()):
        (path.parent / f"{number}.piper").write_text(SCHEDULE.format(parts=config.microbatches // 2, **settings))
    peer = Peer(config.name)
    cluster("rate", "all", rate or half(peer))
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
