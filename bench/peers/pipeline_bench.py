#!/usr/bin/env python3
"""The reference decoder under the same schedules here and in torch.distributed.pipelining: two processes, one thread each.

    .venv/bin/python bench/peers/pipeline_bench.py build/release/piper [--config tiny|S|MoE-S|M] [--only NAME] [--rounds 5] [--steps 5]

Both take turns, a few steps each per round, so that they see the same noise; a round gives one ratio of wall times of a step (the median of
its steps) and one of CPU times of all processes. Piper's processes talk over MPI, PyTorch's over gloo. PyTorch's side is the kit in
../shared/peers. `best` compares the best schedule of each side, also those of Piper that PyTorch does not have.
"""
import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]
sys.path.insert(0, str(root / "bench"))
from train_bench import CONFIGS, run_piper, spread, write_config  # noqa: E402

PIPELINE = "mesh(pp=2)\nsplit(batch, parts={parts}, as=mb)\nplace({{}}, along=pp, stages={stages}{shape})\nuse {order}(stages=stage, microbatches=mb)\n"


def pipeline(order, stages, shape=""):
    return lambda parts: PIPELINE.format(order=order, stages=stages, shape=shape and f", shape={shape}", parts=parts)


# By PyTorch's name; those that it does not have begin with +.
SCHEDULES = {
    "GPipe": pipeline("gpipe", 2),
    "1F1B": pipeline("1f1b", 2),
    "Interleaved1F1B": pipeline("interleaved-1f1b", 4),
    "InterleavedZeroBubble": pipeline("interleaved-zb", 4),
    "ZBVZeroBubble": pipeline("zb-v", 4, "v"),
    "DualPipeV": pipeline("dualpipev", 4, "v"),
    "+1f1b-v": pipeline("1f1b-v", 4, "v"),
    "+list": pipeline("list", 4, "v"),
}


class Torch:
    """The ranks of PyTorch, alive while Piper's runs. `on(rank)`: what a line that starts a rank begins with."""

    def __init__(self, config, world=2, on=lambda rank: []):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.ranks = [subprocess.Popen([*on(rank), sys.executable, here / "torch_worker.py", str(rank), str(world), str(port), config],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                      for rank in range(world)]

    def steps(self, schedule, count):
        self.ranks[0].stdin.write(f"{schedule} {count}\n")
        self.ranks[0].stdin.flush()
        answer = self.ranks[0].stdout.readline()
        if not answer:
            sys.exit(f"PyTorch has ended in {schedule}")
        return json.loads(answer)

    def end(self):
        self.ranks[0].stdin.close()
        for rank in self.ranks:
            rank.wait()


def measure(program, folder, config, names, rounds, steps):
    path = write_config(folder, config)
    torch = Torch(config.name)
    for name in names:
        (path.parent / f"{name}.piper").write_text(SCHEDULES[name](config.microbatches))
    ratios = {name: ([], []) for name in names}
    ours_wall, theirs_wall = {name: [] for name in names}, {name: [] for name in names}
    losses = {name: [] for name in names}
    for name in names:
        if not name.startswith("+"):
            losses[name] = [row["loss"] for row in torch.steps(name, 1)]  # the first is slow
    for _ in range(rounds):
        for name in names:
            command = [program, "launch", "-n", "2", path, "--schedule", path.parent / f"{name}.piper"]
            few, _ = run_piper(command, path.with_suffix(".jsonl"), 1)
            many, rows = run_piper(command, path.with_suffix(".jsonl"), 1 + steps)
            ours_wall[name].append(statistics.median(row["seconds"] for row in rows[1:]))
            if name.startswith("+"):
                continue
            theirs = torch.steps(name, steps)
            losses[name] += [row["loss"] for row in theirs]
            theirs_wall[name].append(statistics.median(row["wall"] for row in theirs))
            ratios[name][0].append(ours_wall[name][-1] / theirs_wall[name][-1])
            ratios[name][1].append((many - few) / steps / statistics.median(row["cpu"] for row in theirs))
            worst = max(abs(row["loss"] - loss) for row, loss in zip(rows, losses[name]))
            if worst > 1e-5:
                sys.exit(f"pipeline_bench: {config.name} {name}: losses differ by {worst:.1e}")
    torch.end()
    for name in names:
        ours = statistics.median(ours_wall[name])
        if name.startswith("+"):
            print(f"{config.name:6} {name:22} {ours * 1e3:8.1f} ms", flush=True)
        else:
            print(f"{config.name:6} {name:22} {ours * 1e3:8.1f} ms, PyTorch {statistics.median(theirs_wall[name]) * 1e3:8.1f} ms; "
                  f"wall {spread(ratios[name][0])}, CPU {spread(ratios[name][1])}", flush=True)
    if len(names) > 1:
        best = [min(ours) / min(theirs) for ours, theirs in
                zip(zip(*ours_wall.values()), zip(*(theirs_wall[name] for name in names if theirs_wall[name])))]
        print(f"{config.name:6} {'best':22} wall {spread(best)}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--config", action="append", choices=CONFIGS, help="default: tiny, S and MoE-S")
    options.add_argument("--only", action="append", choices=SCHEDULES)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=5, help="of a round, after the first")
    given = options.parse_args()
    for name in given.config or ["tiny", "S", "MoE-S"]:
        with tempfile.TemporaryDirectory() as folder:
            measure(pathlib.Path(given.program).resolve(), folder, CONFIGS[name], given.only or list(SCHEDULES), given.rounds, given.steps)


if __name__ == "__main__":
    main()
