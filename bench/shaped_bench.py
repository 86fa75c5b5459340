#!/usr/bin/env python3
"""What overlap hides on cables of limited speed, and whether the simulator knows it: two processes on two hosts of an emulated cluster.

    bench/shaped_bench.py build/release/piper [--steps 12]     needs root, Open MPI or MPICH

A mixture of experts, its experts divided between both, with cables on which all-to-alls take half as long as computations by the costs that `piper
profile` measured. A cluster file describes the cables. On this machine packets and polling take the cores that compute, so computations beside
communication are slower: the file's `slowdown`, measured once under the first schedule and used for all. Then steps are predicted and measured:
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

    def cables(self, mbit, slowdown):
        (self.folder / "cluster.toml").write_text(CABLES.format(bandwidth=PAYLOAD * mbit * 1e6 / 8, slowdown=slowdown))
        run(CLUSTER, "rate", "all", f"{mbit}mbit")

    def profile(self, schedule):
        (self.folder / "s.piper").write_text(schedule)
        run(CLUSTER, "exec", 0, self.piper, "profile", self.folder / "model.toml", "-o", self.folder / "profile")

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


def share_beside(trace):
    """Of the time of computations, the share in which their device communicates."""
    beside = whole = 0
    for events in operations(trace).values():
        under_way = [(e["start"], e["end"]) for e in events if e["cat"] not in ("run", "update")]
        for event in (e for e in events if e["cat"] == "run"):
            reached = event["start"]
            for start, end in sorted(under_way):
                start = max(start, reached)
                if start < min(end, event["end"]):
                    reached = min(end, event["end"])
                    beside += reached - start
            whole += event["end"] - event["start"]
    return beside / whole


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


def measure(bench):
    bench.cables(1000, 0)
    bench.profile(PAIRS)
    mbit = half_as_long(bench.predicted())
    bench.cables(mbit, 0)
    alone = computation(bench.predicted())
    _, trace = bench.measured()
    slowdown = max(0, (1 - alone / computation(trace)) / share_beside(trace))
    if slowdown >= 1:
        sys.exit("shaped_bench: other programs take the cores; nothing can be predicted here")
    bench.cables(mbit, slowdown)
    print(f"cables of {mbit} Mbit/s; computations beside communication lose {100 * slowdown:.0f} % of their speed")
    print(f"{'':28} {'predicted':>12} {'measured':>12} {'least .. most':>20} {'ratio':>7}", flush=True)
    for name, schedule in {"DualPipeV": PAIRS, **{name: STREAMS.format(reduce=reduce) for name, reduce in CHOICES.items()}}.items():
        bench.profile(schedule)
        predicted, (steps, trace) = bench.predicted(), bench.measured()
        step, middle = predicted["otherData"]["seconds"], statistics.median(steps)
        print(f"{name:28} {1e3 * step:9.1f} ms {1e3 * middle:9.1f} ms {1e3 * min(steps):9.1f} .. {1e3 * max(steps):.1f} {step / middle:7.3f}",
              flush=True)
        if schedule == PAIRS:
            exchanges = {e["args"]["op"]: e["end"] - e["start"] for e in operations(bench.predicted("--free-links"))[1, 0]}
            for what, seen in (("simulated", predicted), ("measured", trace)):
                shares = hidden(seen, exchanges)
                print(f"  hidden, {what}: {100 * statistics.median(shares):.1f} % in {len(shares)} pairs "
                      f"({100 * min(shares):.1f} .. {100 * max(shares):.1f})", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--steps", type=int, default=12)
    given = options.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", "2", "none", "--", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        measure(Bench(given.program.resolve(), pathlib.Path(folder), given.steps))


if __name__ == "__main__":
    main()
