"""Traces for the tests of the page: a pipeline of ranks in one-forward-one-backward order, run by the clock.

    python3 make_trace.py OUT [--ranks P] [--microbatches M] [--chunks C] [--steps S] [--slow X] [--name TEXT] [--replicas R] [--buffers B]
"""
import argparse
import json
import random

COMPUTE, SEND, RECV, REDUCE = range(4)
STREAMS = ["compute", "p2p.send", "p2p.recv", "dp"]
CATEGORIES = ["weights", "gradients", "activations"]
WEIGHTS, GRADIENTS, ACTIVATIONS = range(3)
KEPT = [(6 << 30, WEIGHTS), (3 << 30, GRADIENTS)]  # on every rank, during all of the step
SAVED = 3 << 28  # by the forward of a microbatch, until its weights' gradients are there
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


def step(options, begin, rng):
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
                compute(options, lanes, rank, pass_, m, here, arrived, rng, begin)
    assert not any(todo), "the pipeline stands still"
    for rank, lane in enumerate(lanes):
        last = lane.last[COMPUTE]
        end = lane.events[last]["end"]
        reduce = lane.add(rank, REDUCE, "all_reduce", f"stage.{rank}", "", -1, end, 4e-3 * options.slow, [last], [(end, rank, last)], 1 << 28, 1)
        lane.add(rank, COMPUTE, "update", f"stage.{rank}", "", -1, reduce["end"], 1e-3, [reduce["op"]], [(reduce["end"], rank, reduce["op"])], 0, 1)
    return lanes


def compute(options, lanes, rank, pass_, m, here, arrived, rng, begin):
    lane = lanes[rank]
    ready = here[0] if here else begin
    for c in range(options.chunks):
        layer = rank * options.chunks + (c if pass_ == "F" else options.chunks - 1 - c)
        seconds = SECONDS[pass_] / options.chunks * options.slow * (1 + options.noise * rng.random())
        event = lane.add(rank, COMPUTE, "run", f"layer.{layer}.{options.name} {pass_} mb={m}", pass_, m, ready, seconds,
                         [here[2]] if here and c == 0 else [], [here] if c == 0 else [])
    to = rank + 1 if pass_ == "F" else rank - 1
    if pass_ == "BW" or not 0 <= to < options.ranks:
        return
    done = (event["end"], rank, event["op"])
    name, seconds, bytes_ = f"h.{max(rank, to)} {pass_} mb={m}", 2e-4 * options.slow, 1 << 24
    ready = max(event["end"], lanes[to].free[RECV])
    send = lane.add(rank, SEND, "send", name, pass_, m, ready, seconds, [event["op"]], [done], bytes_)
    recv = lanes[to].add(to, RECV, "recv", name, pass_, m, send["start"], seconds, [], [done], bytes_)
    arrived[(pass_, to, m)] = (recv["end"], to, recv["op"])


def buffers_of(options, lanes):
    """(lane, category, bytes, name, taken, returned) of a step; in all steps the same."""
    out = []
    for rank, lane in enumerate(lanes):
        for bytes_, category in KEPT:
            out += [(rank, category, bytes_ // 2, f"stage.{rank}.{half}", None, None) for half in ("attention", "experts")]
        ops = {e["name"]: e["op"] for e in lane.events if e["kind"] == "run"}
        for e in lane.events:
            if e["kind"] == "run" and e["pass_"] == "F":
                until, mean = ops[e["name"].replace(" F ", " BW ")], SAVED // options.chunks // options.buffers
                for i in range(options.buffers):  # of different sizes, for a power of two of them
                    bytes_ = mean + (2 * i + 1 - options.buffers) * mean // (2 * options.buffers)
                    out.append((rank, ACTIVATIONS, bytes_, e["name"].replace(" F ", f".saved.{i} F "), e["op"], until))
    return out


def memory_of(buffers, lanes, begin):
    """(lane, time, bytes by category, op) where something changes: an operation has its bytes when all before it have started."""
    out = []
    changes = [{} for _ in lanes]  # by operation
    for rank, category, bytes_, _, taken, returned in buffers:
        for op, sign in ((-1, 1),) if taken is None else ((taken, 1), (returned + 1, -1)):
            changes[rank].setdefault(op, [0] * len(CATEGORIES))[category] += sign * bytes_
    for rank, lane in enumerate(lanes):
        alive, time = changes[rank].get(-1, [0] * len(CATEGORIES)), begin
        out.append((rank, begin, list(alive), None))
        for e in lane.events:
            time = max(time, e["start"])
            if e["op"] in changes[rank]:
                alive = [a + b for a, b in zip(alive, changes[rank][e["op"]])]
                out.append((rank, time, alive, e["op"]))
    return out


def make(options):
    rng, memory, events, steps = random.Random(options.seed), [], [], []
    begin = 0.0
    for number in range(options.steps):
        lanes = step(options, begin, rng)
        buffers = buffers_of(options, lanes)
        memory += memory_of(buffers, lanes, begin)
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
    return header, events, memory, buffers


def lines(events, memory, buffers):
    for b in buffers:
        yield dict(ph="M", pid=b[0] + 1, name="piper_buffers", args=dict(buffers=[b[1:4] if b[4] is None else b[1:]]))
    for e in events:
        args = dict(op=e["op"], end=e["end"], origin=e["origin"])
        args.update({k: v for k, v in (("pass", e["pass_"]), ("bytes", e["bytes"]), ("waits", e["waits"]), ("cause", e["cause"]), ("step", e["step"])) if v})
        if e["slice"] >= 0:
            args["slice"] = e["slice"]
        yield dict(ph="X", pid=e["lane"] + 1, tid=e["stream"] + 1, name=e["name"], cat=e["kind"], ts=e["start"] * 1e6,
                   dur=(e["end"] - e["start"]) * 1e6, args=args)
    for lane, time, alive, op in memory:
        sample = dict(ph="C", pid=lane + 1, name="memory", ts=time * 1e6, args=dict(zip(CATEGORIES, alive)))
        yield sample if op is None else dict(sample, op=op)


def write(path, options):
    header, events, memory, buffers = make(options)
    with open(path, "w") as out:
        out.write('{"otherData": %s,\n"traceEvents": [\n' % json.dumps(header))
        out.write(",\n".join(json.dumps(line) for line in lines(events, memory, buffers)))
        out.write("\n]}\n")
    return header, events


def options_of(arguments=()):
    parser = argparse.ArgumentParser()
    for name, usual in (("ranks", 8), ("microbatches", 16), ("chunks", 2), ("steps", 1), ("replicas", 1), ("buffers", 2), ("seed", 1)):
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
