#!/usr/bin/env python3
"""What overlap hides on cables of limited speed, and whether the simulator knows it: two processes on two hosts of an emulated cluster.

    bench/shaped_bench.py build/release/piper [--steps 9]     needs root, Open MPI or MPICH

A mixture of experts, its experts divided between both. First with cables that are not limited: the speed at which all-to-alls take half as long as
computations follows from the bytes and the seconds in the trace. With cables of that speed `piper profile` measures costs and cluster, `piper
simulate` predicts a step, and steps are measured:
- DualPipeV: how much of the all-to-alls of its overlapped pairs is hidden. Exposed is the time of a pair less its computations.
- Three choices of streams for reductions of gradients beside all-to-alls (the original work's Figure 3).
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

CLUSTER = str(pathlib.Path(__file__).resolve().parents[1] / "tests/cluster/cluster")
LAYERS = 8
MODEL = f"""[model]
name = "mixture"
arch = "reference-moe"
layers = {LAYERS}
hidden = 256
heads = 4
vocab = 256
experts = 4
seq = 128

[step]
batch = 16

[data]
kind = "reference"

[run]
schedule = "s.piper"
"""
PAIRS = """mesh(pp=1, ep=2)
split(batch, parts=8, as=mb)
place({}, along=pp, stages=2, shape=v)
replicate({}, along=ep)
shard({experts=*}, along=ep)
use dualpipev(stages=stage, microbatches=mb)
"""
STREAMS = """mesh(dp=2)
split(batch, parts=4, as=mb)
place({{}}, mesh={{}})
replicate({{}}, along=dp, zero=2, {reduce})
shard({{experts=*}}, along=dp, stream=ep)
"""
CHOICES = {
    "a stream of its own": "reduce_stream=dp, bucket=8MB",
    "that of all-to-alls": "reduce_stream=ep, bucket=8MB",
    "the same, small buckets": "reduce_stream=ep, bucket=1MB",
}


def run(*command):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


class Bench:
    def __init__(self, piper, folder, steps):
        self.piper, self.folder, self.steps = piper, folder, steps
        (folder / "model.toml").write_text(MODEL)

    def processes(self, *command):
        run(CLUSTER, "mpirun", "-n", 2, self.piper, *command, "--backend", "mpi")

    def profile(self):
        """Costs of the schedule, and the cluster as it was found the first time."""
        self.processes("profile", self.folder / "model.toml", "-o", self.folder / "profile")
        cluster = self.folder / "cluster.toml"
        if not cluster.exists():
            shutil.copy(self.folder / "profile/cluster.toml", cluster)
        return ["--costs", self.folder / "profile/costs.txt", "--cluster", cluster]

    def measured(self, costs):
        self.processes("train", self.folder / "model.toml", "--steps", self.steps, "--trace", self.folder / "measured.json", *costs)
        return json.loads((self.folder / "measured.json").read_text())

    def predicted(self, costs, *options):
        run(self.piper, "simulate", self.folder / "profile/model.piper", self.folder / "s.piper", "--trace", self.folder / "predicted.json",
            *costs, *options)
        return json.loads((self.folder / "predicted.json").read_text())


def operations(trace):
    """By (lane, step): operations in order of issue, with start and end in seconds."""
    out = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            event["start"], event["end"] = event["ts"] / 1e6, event["args"]["end"]
            out[event["pid"], event["args"].get("step", 0)].append(event)
    return out


def seconds(events, kind):
    return sum(event["end"] - event["start"] for event in events if event["cat"] == kind)


def half_as_long(trace):
    """The speed at which all-to-alls take half as long as computations: half of the bytes stay on their host."""
    later = [events for (_, step), events in operations(trace).items() if step > 1]
    computation = statistics.median(seconds(events, "run") for events in later)
    sent = sum(event["args"]["bytes"] / 2 for event in later[0] if event["cat"] == "all_to_all")
    return f"{round(8e-6 * sent / (computation / 2))}mbit"


def stage_of(name):
    chunk = name.split(" ")[0]
    return int(chunk.startswith("head") or chunk >= f"layer.{LAYERS // 2}")


def hidden(trace, alone):
    """Of every overlapped pair, the share of its all-to-alls that is hidden. `alone`: how long each takes alone, by operation."""
    shares = []
    for (_, step), events in operations(trace).items():
        if step < 2 and len(trace["otherData"].get("steps", [])) > 2:
            continue
        sides = collections.defaultdict(list)
        for index, event in enumerate(events):
            if event["cat"] == "run":
                sides[event["args"]["pass"], event["args"]["slice"], stage_of(event["name"])].append(index)
        for forward, f in sides.items():
            for backward, b in sides.items():
                if forward[0] != "F" or backward[0] == "F" or f[-1] < b[0] or b[-1] < f[0]:
                    continue
                both = [events[i] for i in f + b]
                span = max(e["end"] for e in both) - min(e["start"] for e in both)
                exchange = sum(alone[e["args"]["op"]] for e in events[min(f[0], b[0]):max(f[-1], b[-1])] if e["cat"] == "all_to_all")
                shares.append(1 - (span - seconds(both, "run")) / exchange)
    return shares


def step_seconds(trace):
    """Without the first two."""
    steps = [end - start for _, start, end in trace["otherData"].get("steps", [])]
    return steps[2:] or [trace["otherData"]["seconds"]]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--steps", type=int, default=9)
    given = options.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", "2", "none", "--", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given.program.resolve(), pathlib.Path(folder), given.steps)
        schedules = {"DualPipeV, overlapped pairs": PAIRS, **{name: STREAMS.format(reduce=reduce) for name, reduce in CHOICES.items()}}
        (bench.folder / "s.piper").write_text(PAIRS)
        rate = half_as_long(bench.measured([]))
        run(CLUSTER, "rate", "all", rate)
        print(f"{'cables of ' + rate:28} {'predicted':>12} {'measured':>12} {'least .. most':>20} {'ratio':>7}")
        for name, schedule in schedules.items():
            (bench.folder / "s.piper").write_text(schedule)
            costs = bench.profile()
            predicted, measured = bench.predicted(costs), bench.measured(costs)
            steps = step_seconds(measured)
            middle = statistics.median(steps)
            print(f"{name:28} {1e3 * step_seconds(predicted)[0]:9.1f} ms {1e3 * middle:9.1f} ms "
                  f"{1e3 * min(steps):9.1f} .. {1e3 * max(steps):.1f} {step_seconds(predicted)[0] / middle:7.3f}", flush=True)
            if schedule == PAIRS:
                alone = {e["args"]["op"]: e["end"] - e["start"] for e in operations(bench.predicted(costs, "--free-links"))[1, 0]}
                for what, trace in (("simulated", predicted), ("measured", measured)):
                    shares = hidden(trace, alone)
                    print(f"  hidden, {what}: {100 * statistics.median(shares):.1f} % of {len(shares)} pairs "
                          f"({100 * min(shares):.1f} .. {100 * max(shares):.1f})", flush=True)


if __name__ == "__main__":
    main()
