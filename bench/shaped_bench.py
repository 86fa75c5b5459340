#!/usr/bin/env python3
"""What overlap hides on cables of limited speed, and whether the simulator knows it: two processes on two hosts of an emulated cluster.

    bench/shaped_bench.py build/release/piper [--rounds 6] [--steps 5]     needs root, Open MPI or MPICH

A mixture of experts, its experts divided between both, with cables on which all-to-alls take half as long as computations by the costs that `piper
profile` measured. A cluster file describes the cables. On this machine packets and polling take the cores that compute, so computations beside
communication are slower: the file's `slowdown`, fitted to steps of the first schedule and used for the others. Every schedule is profiled and measured in
short turns. What else goes on in the machine's surroundings changes its speed by the minute, and only ever makes it slower: lower quartiles are
compared, of all costs and of all steps.

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


def usual(numbers):
    """What it is when others leave the machine alone: the lower quartile."""
    return sorted(numbers)[len(numbers) // 4]


def merge_costs(files, into):
    costs = collections.defaultdict(list)
    for file in files:
        header, *lines = file.read_text().splitlines()
        for line in lines:
            key, number = line.rsplit(" ", 1)
            costs[key].append(float(number))
    into.write_text("\n".join([header, *(f"{key} {usual(numbers)}" for key, numbers in costs.items())]) + "\n")


class Bench:
    def __init__(self, piper, folder, steps):
        self.piper, self.folder, self.steps = piper, folder, steps
        self.cluster = folder / "cluster.toml"
        (folder / "model.toml").write_text(MODEL)

    def cables(self, mbit):
        self.mbit = mbit
        run(CLUSTER, "rate", "all", f"{mbit}mbit")
        self.describe(0)

    def describe(self, slowdown):
        self.cluster.write_text(CABLES.format(bandwidth=PAYLOAD * self.mbit * 1e6 / 8, slowdown=slowdown))

    def profile(self, schedule):
        """A folder with schedule, model and costs: of both hosts at once, as they will compute, since they share what feeds their cores."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "s.piper").write_text(schedule)

        def line(host):
            return [CLUSTER, "exec", host, self.piper, "profile", self.folder / "model.toml", "--schedule", folder / "s.piper", "--steps", 2, "-o", folder / str(host)]

        with subprocess.Popen(list(map(str, line(1))), stdout=subprocess.DEVNULL) as other:
            run(*line(0))
        if other.returncode != 0:
            sys.exit("shaped_bench: the profile on the other host failed")
        (folder / "model.piper").write_bytes((folder / "0/model.piper").read_bytes())
        merge_costs([folder / "0/costs.txt", folder / "1/costs.txt"], folder / "costs.txt")
        return folder

    def measured(self, profile):
        """Seconds of steps without the first two, and the trace of the last."""
        metrics, trace = self.folder / "metrics.jsonl", self.folder / "measured.json"
        metrics.unlink(missing_ok=True)
        run(CLUSTER, "mpirun", "-n", 2, self.piper, "train", self.folder / "model.toml", "--schedule", profile / "s.piper", "--backend", "mpi",
            "--steps", self.steps, "--metrics", metrics, "--trace", trace, "--costs", profile / "costs.txt", "--cluster", self.cluster)
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [row["seconds"] for row in rows if "loss" in row][2:], json.loads(trace.read_text())

    def predicted(self, profile, *options):
        trace = self.folder / "predicted.json"
        run(self.piper, "simulate", profile / "model.piper", profile / "s.piper", "--trace", trace, "--costs", profile / "costs.txt",
            "--cluster", self.cluster, *options)
        return json.loads(trace.read_text())

    def predicted_step(self, profile):
        return self.predicted(profile)["otherData"]["seconds"]


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


def fit_slowdown(bench, profile, step):
    """Such that the simulator gives the step that was measured."""
    most = 0.95
    low, high = 0.0, most
    for _ in range(7):
        middle = (low + high) / 2
        bench.describe(middle)
        low, high = (middle, high) if bench.predicted_step(profile) < step else (low, middle)
    if high == most:
        sys.exit("shaped_bench: other programs take the cores; nothing can be predicted here")
    bench.describe(low)
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


def measure(bench, rounds):
    bench.cables(1000)
    bench.cables(mbit := half_as_long(bench.predicted(bench.profile(PAIRS))))
    print(f"cables of {mbit} Mbit/s", flush=True)
    schedules = {"DualPipeV (fitted)": PAIRS} | {name: STREAMS.format(reduce=reduce) for name, reduce in CHOICES.items()}
    profiles, steps, traces = collections.defaultdict(list), collections.defaultdict(list), []
    for _ in range(rounds):
        for name, schedule in schedules.items():
            profiles[name].append(bench.profile(schedule))
            taken, trace = bench.measured(profiles[name][-1])
            steps[name] += taken
            if schedule == PAIRS:
                traces.append(trace)
            print(f"{name:28} {' '.join(f'{second:.3f}' for second in taken)} s", flush=True)
    for all_of_one in profiles.values():
        merge_costs([profile / host / "costs.txt" for profile in all_of_one for host in "01"], all_of_one[0] / "costs.txt")
    (fitted, *_), *_ = profiles.values()
    exchanges = {e["args"]["op"]: e["end"] - e["start"] for e in operations(bench.predicted(fitted, "--free-links"))[1, 0]}
    for what, seen in (("simulated", hidden(bench.predicted(fitted), exchanges)),
                       ("measured", [share for trace in traces for share in hidden(trace, exchanges)])):
        print(f"hidden, {what}: {100 * statistics.median(seen):.1f} % in {len(seen)} pairs ({100 * min(seen):.1f} .. {100 * max(seen):.1f})")
    slowdown = fit_slowdown(bench, fitted, usual(steps["DualPipeV (fitted)"]))
    print(f"computations beside communication lose {100 * slowdown:.0f} % of their speed")
    print(f"{'':28} {'predicted':>12} {'measured':>12} {'least .. most':>20} {'ratio':>7}")
    for name, (first, *_) in profiles.items():
        predicted, seen = bench.predicted_step(first), steps[name]
        print(f"{name:28} {1e3 * predicted:9.1f} ms {1e3 * usual(seen):9.1f} ms {1e3 * min(seen):9.1f} .. {1e3 * max(seen):.1f} {predicted / usual(seen):7.3f}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", type=pathlib.Path)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--steps", type=int, default=5)
    given = options.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", "2", "none", "--", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        measure(Bench(given.program.resolve(), pathlib.Path(folder), given.steps), given.rounds)


if __name__ == "__main__":
    main()
