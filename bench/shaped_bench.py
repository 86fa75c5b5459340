#!/usr/bin/env python3
"""What overlap hides on cables of limited speed, and whether the simulator knows it: two processes on two hosts of an emulated cluster.

    bench/shaped_bench.py build/release/piper [--rounds 3] [--steps 8]     needs root, Open MPI or MPICH

A mixture of experts, its experts divided between both, with cables on which all-to-alls take half as long as computations by the costs that `piper
profile` measured. A cluster file describes the cables. On this machine packets and polling take the cores that compute, so computations beside
communication are slower: the file's `slowdown`, fitted to steps of the first schedule and used for all of a round. Then steps are predicted and measured:
- DualPipeV: how much of the all-to-alls of its overlapped pairs is hidden. Exposed is the time of a pair less its computations.
- Three choices of streams for reductions of gradients beside all-to-alls (the original work's Figure 3).
"""
import argparse
import collections
import json
import os
import pathlib
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
batch = 64

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


CABLES = """[cluster]
name = "cables"
slowdown = {slowdown:.3f}

[device.core]
launch = "0us"
issue = "0.2us"

[[nodes]]
device = "core"

[[links]]
name = "cable"
latency = "100us"
bandwidth = {bandwidth:.0f}
"""
PAYLOAD = 1448 / 1514  # of a packet


def run(*command):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


class Bench:
    def __init__(self, piper, folder, steps):
        self.piper, self.folder, self.steps = piper, folder, steps
        self.costs = ["--costs", folder / "profile/costs.txt", "--cluster", folder / "cluster.toml"]
        (folder / "model.toml").write_text(MODEL)

    def cables(self, mbit):
        self.mbit = mbit
        run(CLUSTER, "rate", "all", f"{mbit}mbit")
        self.describe(0)

    def describe(self, slowdown):
        (self.folder / "cluster.toml").write_text(CABLES.format(bandwidth=PAYLOAD * self.mbit * 1e6 / 8, slowdown=slowdown))

    def profile(self, schedule):
        """On both hosts at once, as they will compute: they share what feeds their cores."""
        (self.folder / "s.piper").write_text(schedule)
        line = [CLUSTER, "exec", "1", self.piper, "profile", self.folder / "model.toml", "-o", self.folder / "other"]
        with subprocess.Popen(list(map(str, line)), stdout=subprocess.DEVNULL) as other:
            run(CLUSTER, "exec", 0, self.piper, "profile", self.folder / "model.toml", "-o", self.folder / "profile")
        if other.returncode != 0:
            sys.exit("shaped_bench: the profile on the other host failed")

    def measured(self):
        """Seconds of steps without the first two, and the trace of the last."""
        metrics, trace = self.folder / "metrics.jsonl", self.folder / "measured.json"
        run(CLUSTER, "mpirun", "-n", 2, self.piper, "train", self.folder / "model.toml", "--backend", "mpi", "--steps", self.steps,
            "--metrics", metrics, "--trace", trace, *self.costs)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [row["seconds"] for row in rows if "loss" in row][2:], json.loads(trace.read_text())

    def predicted(self, *options):
        trace = self.folder / "predicted.json"
        run(self.piper, "simulate", self.folder / "profile/model.piper", self.folder / "s.piper", "--trace", trace, *self.costs, *options)
        return json.loads(trace.read_text())

    def predicted_step(self):
        return self.predicted()["otherData"]["seconds"]


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


def computation(trace):
    """Of a device and a step."""
    return statistics.median(seconds(events, "run") for events in operations(trace).values())


def half_as_long(trace):
    """The speed at which all-to-alls take half as long as computations, in Mbit/s: half of the bytes stay on their host."""
    sent = sum(event["args"]["bytes"] / 2 for event in operations(trace)[1, 0] if event["cat"] == "all_to_all")
    return round(8e-6 * sent / (computation(trace) / 2) / PAYLOAD)


def fit_slowdown(bench, step):
    """Such that the simulator gives the step that was measured."""
    most = 0.95
    low, high = 0.0, most
    for _ in range(7):
        middle = (low + high) / 2
        bench.describe(middle)
        low, high = (middle, high) if bench.predicted_step() < step else (low, middle)
    if high == most:
        sys.exit("shaped_bench: other programs take the cores; nothing can be predicted here")
    return low


def stage_of(name):
    chunk = name.split(" ")[0]
    return int(chunk.startswith("head") or chunk >= f"layer.{LAYERS // 2}")


def hidden(trace, alone):
    """Of every overlapped pair, the share of its all-to-alls that is hidden. `alone`: how long each takes alone, by operation."""
    shares = []
    for events in operations(trace).values():
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


def show(name, predicted, measured, ratios):
    print(f"{name:28} {1e3 * statistics.median(predicted):9.1f} ms {1e3 * statistics.median(measured):9.1f} ms "
          f"{1e3 * min(measured):9.1f} .. {1e3 * max(measured):.1f} {statistics.median(ratios):7.3f} ({min(ratios):.3f} .. {max(ratios):.3f})")


def measure(bench, rounds):
    """In turns, since the machine's speed changes by the minute: profile, prediction and steps of one schedule after the other."""
    bench.cables(1000)
    bench.profile(PAIRS)
    bench.cables(mbit := half_as_long(bench.predicted()))
    print(f"cables of {mbit} Mbit/s", flush=True)
    rows, shares = collections.defaultdict(list), {"simulated": [], "measured": []}
    for _ in range(rounds):
        bench.profile(PAIRS)
        steps, trace = bench.measured()
        slowdown = fit_slowdown(bench, statistics.median(steps))
        print(f"computations beside communication lose {100 * slowdown:.0f} % of their speed", flush=True)
        predicted = bench.predicted()
        rows["DualPipeV (fitted)"].append((predicted["otherData"]["seconds"], steps))
        exchanges = {e["args"]["op"]: e["end"] - e["start"] for e in operations(bench.predicted("--free-links"))[1, 0]}
        shares["simulated"] += hidden(predicted, exchanges)
        shares["measured"] += hidden(trace, exchanges)
        for name, reduce in CHOICES.items():
            bench.profile(STREAMS.format(reduce=reduce))
            rows[name].append((bench.predicted_step(), bench.measured()[0]))
    print(f"{'':28} {'predicted':>12} {'measured':>12} {'least .. most':>20} {'ratio by round':>24}")
    for name, pairs in rows.items():
        show(name, [p for p, _ in pairs], [s for _, steps in pairs for s in steps], [p / statistics.median(steps) for p, steps in pairs])
    for what, seen in shares.items():
        print(f"hidden, {what}: {100 * statistics.median(seen):.1f} % in {len(seen)} pairs ({100 * min(seen):.1f} .. {100 * max(seen):.1f})")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=8)
    given = options.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", "2", "none", "--", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        measure(Bench(given.program.resolve(), pathlib.Path(folder), given.steps), given.rounds)


if __name__ == "__main__":
    main()
