"""The strategies that a number of devices allows, as schedules of the reference decoder."""
from dataclasses import dataclass


@dataclass
class Strategy:
    name: str
    text: str  # of the schedule
    experts: bool = False  # for the mixture
    like: tuple = ()  # what of PyTorch does the same


def schedule(mesh, microbatches, lines):
    return "\n".join([f"mesh({mesh})", f"split(batch, parts={microbatches}, as=mb)", *lines]) + "\n"


def replicas(dp, slices, zero):
    text = schedule(f"dp={dp}", slices // dp, ["place({}, mesh={})", f"replicate({{}}, along=dp, zero={zero}, bucket=25MB)"])
    return Strategy(f"dp {dp}, zero {zero}", text, like=("fsdp2",) if zero == 3 else ("ddp",) if zero == 0 else ())


def pipeline(pp, dp, slices, timeline, stages, shape, zero=None):
    lines = [f"place({{}}, along=pp, stages={stages}, shape={shape})"]
    if dp > 1:
        lines.append(f"replicate({{}}, along=dp, zero={zero}, bucket=25MB)")
    lines.append(f"use {timeline}(stages=stage, microbatches=mb)")
    like = {"1f1b": ("1F1B",), "interleaved-1f1b": ("Interleaved1F1B",), "zb-v": ("ZBVZeroBubble",), "dualpipev": ("DualPipeV",)}
    name = f"{timeline}, pp {pp}" + (f", dp {dp}, zero {zero}" if dp > 1 else "")
    mesh = f"pp={pp}" + (f", dp={dp}" if dp > 1 else "")
    return Strategy(name, schedule(mesh, slices // dp, lines), like=like.get(timeline, ()) if dp == 1 else ())


def tensor(tp, dp, slices, more):
    lines = ["place({}, mesh={})"] + (["replicate({}, along=dp, zero=1, bucket=25MB)"] if dp > 1 else [])
    lines.append(f"shard({{layer=*}}, along=tp{more})")
    mesh = (f"dp={dp}, " if dp > 1 else "") + f"tp={tp}"
    name = f"tp {tp}" + (", sequence" if more else "") + (f", dp {dp}" if dp > 1 else "")
    return Strategy(name, schedule(mesh, slices // dp, lines))


def experts(ep, slices, pp=1):
    lines = [f"place({{}}, along=pp, stages={2 * pp}, shape=v)" if pp > 1 else "place({}, mesh={})", "replicate({}, along=dp, zero=1, bucket=25MB)",
             "shard({experts=*}, along=dp, stream=ep)"] + (["use dualpipev(stages=stage, microbatches=mb)"] if pp > 1 else [])
    mesh = (f"pp={pp}, " if pp > 1 else "") + f"dp={ep}"
    return Strategy(f"ep {ep}" + (f", dualpipev, pp {pp}" if pp > 1 else ""), schedule(mesh, slices // ep, lines), experts=True)


def strategies(devices, slices, layers, heads):
    """All that fit: replicas and microbatches multiply to `slices`, so every strategy computes the same losses."""
    if devices == 1:
        return [Strategy("one device", schedule("dp=1", slices, ["place({}, mesh={})"]))]
    out = []
    if slices % devices == 0:
        out += [replicas(devices, slices, zero) for zero in range(4)]
        out.append(experts(devices, slices))
    halves = [(devices, 1)] + ([(devices // 2, 2)] if devices % 2 == 0 and devices > 2 else [])
    for pp, dp in halves:
        timelines = [("1f1b", pp, "loop"), ("zb-h1", pp, "loop"), ("interleaved-1f1b", 2 * pp, "loop"), ("zb-v", 2 * pp, "v"), ("dualpipev", 2 * pp, "v")]
        for timeline, stages, shape in timelines:
            microbatches = slices // dp
            enough = {"interleaved-1f1b": microbatches % pp == 0, "dualpipev": microbatches >= 2 * pp}.get(timeline, True)
            if slices % dp == 0 and stages <= layers and enough:
                out.append(pipeline(pp, dp, slices, timeline, stages, shape, zero=2 if timeline == "1f1b" else 1))
        if dp > 1:
            out += [pipeline(pp, dp, slices, "1f1b", pp, "loop", zero=3), experts(dp, slices, pp)]
    for tp, dp in halves:
        if heads % tp == 0 and slices % dp == 0:
            out += [tensor(tp, dp, slices, ""), tensor(tp, dp, slices, ", sequence=on")]
    return out
