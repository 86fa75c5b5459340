"""Traces for the tests of the page: a pipeline of ranks in one-forward-one-backward order, run by the clock.

    python3 make_trace.py OUT [--ranks P] [--microbatches M] [--chunks C] [--steps S] [--slow X] [--name TEXT] [--replicas R]
"""
import argparse
import json
import random

COMPUTE, SEND, RECV, REDUCE = range(4)
STREAMS = ["compute", "p2p.send", "p2p.recv", "dp"]
CATEGORIES = ["weights", "gradients", "activations"]
SECONDS = {"F": 1.0e-3, "BI": 1.1e-3, "BW": 0.8e-3}


def order(rank, ranks, microbatches):
    """Passes of a rank: warm-up, one forward and one backward in turn, the rest."""
    warm = min(microbatches, ranks - rank)
    passes = [("F", m) for m in range(warm)]
    for m in range(microbatches):
        passes += [("BI", m), ("BW", m)]
        if warm + m < microbatches:
            passes.append(("F", warm + m))
    return passes


class Lane:
    def __init__(self):
        self.events = []
        self.free = [0.0] * len(STREAMS)
        self.last = [None] * len(STREAMS)

    def add(self, lane, stream, kind, name, pass_, slice_, ready, seconds, waits, causes, bytes_=0, origin=0):
        """Starts when its stream is free and what it needs is there; `causes`: (time, lane, op) of what may have held it."""
        causes = [c for c in causes if c] + ([(self.free[stream], lane, self.last[stream])] if self.last[stream] is not None else [])
        start = max([ready, self.free[stream]])
        held = max(causes, key=lambda c: c[0], default=None)
        event = dict(lane=lane, stream=stream, op=len(self.events), kind=kind, name=name, pass_=pass_, slice=slice_, start=start,
                     end=start + seconds, bytes=bytes_, origin=origin, waits=waits, cause=held and [held[1], held[2]])
        self.events.append(event)
        self.free[stream], self.last[stream] = event["end"], event["op"]
        return event


def step(options, begin, rng, memory):
    lanes = [Lane() for _ in range(options.ranks)]
    for lane in lanes:
        lane.free = [begin] * len(STREAMS)
    todo = [order(r, options.ranks, options.microbatches) for r in range(options.ranks)]
    arrived = {}  # (pass, rank, microbatch): (time, lane, op) of the receive
    moved = True
    while any(todo) and moved:
        moved = False
        for rank in range(options.ranks):
            while todo[rank]:
                pass_, m = todo[rank][0]
                first = rank == (0 if pass_ == "F" else options.ranks - 1)
                here = arrived.get((pass_, rank, m))
                if pass_ != "BW" and not first and here is None:
                    break
                todo[rank].pop(0)
                moved = True
                compute(options, lanes, rank, pass_, m, here, arrived, rng, memory, begin)
    assert not any(todo), "the pipeline stands still"
    for rank, lane in enumerate(lanes):
        last = lane.last[COMPUTE]
        end = lane.events[last]["end"]
        reduce = lane.add(rank, REDUCE, "all_reduce", f"stage.{rank}", "", -1, end, 4e-3 * options.slow, [last], [(end, rank, last)], 1 << 28, 1)
        lane.add(rank, COMPUTE, "update", f"stage.{rank}", "", -1, reduce["end"], 1e-3, [reduce["op"]], [(reduce["end"], rank, reduce["op"])], 0, 1)
    return lanes


def compute(options, lanes, rank, pass_, m, here, arrived, rng, memory, begin):
    lane = lanes[rank]
    ready = here[0] if here else begin
    for c in range(options.chunks):
        layer = rank * options.chunks + (c if pass_ == "F" else options.chunks - 1 - c)
        seconds = SECONDS[pass_] / options.chunks * options.slow * (1 + options.noise * rng.random())
        if pass_ == "F":
            memory.append((rank, max(ready, lane.free[COMPUTE]), +(3 << 28) // options.chunks))
        event = lane.add(rank, COMPUTE, "run", f"layer.{layer}.{options.name} {pass_} mb={m}", pass_, m, ready, seconds,
                         [here[2]] if here and c == 0 else [], [here] if c == 0 else [])
        if pass_ == "BW":
            memory.append((rank, event["end"], -(3 << 28) // options.chunks))
    to = rank + 1 if pass_ == "F" else rank - 1
    if pass_ == "BW" or not 0 <= to < options.ranks:
        return
    done = (event["end"], rank, event["op"])
    name, seconds, bytes_ = f"h.{max(rank, to)} {pass_} mb={m}", 2e-4 * options.slow, 1 << 24
    ready = max(event["end"], lanes[to].free[RECV])
    send = lane.add(rank, SEND, "send", name, pass_, m, ready, seconds, [event["op"]], [done], bytes_)
    recv = lanes[to].add(to, RECV, "recv", name, pass_, m, send["start"], seconds, [], [done], bytes_)
    arrived[(pass_, to, m)] = (recv["end"], to, recv["op"])


def make(options):
    rng, memory, events, steps = random.Random(options.seed), [], [], []
    begin = 0.0
    for number in range(options.steps):
        lanes = step(options, begin, rng, memory)
        end = max(e["end"] for lane in lanes for e in lane.events)
        events += [dict(e, step=number) for lane in lanes for e in lane.events]
        steps.append([number + 10, begin, end])
        begin = end + 1e-3
    lanes = [[r * options.replicas + i for i in range(options.replicas)] for r in range(options.ranks)]
    header = dict(format="piper-trace", version=1, source=options.source, model=options.model, cluster="8x H100", plan="00000000000000aa",
                  seconds=steps[-1][2], lanes=lanes, streams=STREAMS, categories=CATEGORIES, tokens=options.microbatches * 4096,
                  capacity=[40 << 30] * options.ranks,
                  origins=[["pipeline.piper:3", "place({}, along=pp, stages=8, transfers=p2p)"],
                           ["pipeline.piper:4", "replicate({}, along=dp, zero=1, bucket=25MB, reduce_stream=dp)"]])
    if options.steps > 1:
        header["steps"] = steps
    return header, events, memory


def lines(header, events, memory):
    for e in events:
        args = dict(op=e["op"], end=e["end"], origin=e["origin"])
        args.update({k: v for k, v in (("pass", e["pass_"]), ("bytes", e["bytes"]), ("waits", e["waits"]), ("cause", e["cause"]), ("step", e["step"])) if v})
        if e["slice"] >= 0:
            args["slice"] = e["slice"]
        yield dict(ph="X", pid=e["lane"] + 1, tid=e["stream"] + 1, name=e["name"], cat=e["kind"], ts=e["start"] * 1e6,
                   dur=(e["end"] - e["start"]) * 1e6, args=args)
    for rank in range(len(header["lanes"])):
        alive = 0
        changes = [(0.0, 0)] + sorted((time, change) for lane, time, change in memory if lane == rank)
        for time, change in changes:
            alive += change
            yield dict(ph="C", pid=rank + 1, name="memory", ts=time * 1e6, args=dict(weights=6 << 30, gradients=3 << 30, activations=alive))


def write(path, options):
    header, events, memory = make(options)
    with open(path, "w") as out:
        out.write('{"otherData": %s,\n"traceEvents": [\n' % json.dumps(header))
        out.write(",\n".join(json.dumps(line) for line in lines(header, events, memory)))
        out.write("\n]}\n")
    return header, events


def options_of(arguments=()):
    parser = argparse.ArgumentParser()
    for name, usual in (("ranks", 8), ("microbatches", 16), ("chunks", 2), ("steps", 1), ("replicas", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--name", default="attention")
    parser.add_argument("--model", default="Qwen3-1.7B")
    parser.add_argument("--source", default="simulated")
    return parser.parse_args(list(arguments))


if __name__ == "__main__":
    import sys
    write(sys.argv[1], options_of(sys.argv[2:]))
