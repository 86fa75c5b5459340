"""A covering set of schedules for models with four layers and batches of eight: name -> (schedule, slices of one device)."""
import piper

ONE = "devices(1)\nplace({}, devices=[0])\n"


def _replicas(zero, parts=2):
    return (piper.Schedule().mesh(dp=2).split(parts).place({}, mesh={}).replicate({}, along="dp", zero=zero), 2 * parts)


def dense():
    pp = piper.schedules
    return {
        "one device": (ONE, 1),
        "one device in turn": (piper.Schedule().devices(1).split(4).place({}, devices=[0]), 4),
        "recompute": (piper.Schedule().devices(1).split(2).place({}, devices=[0]).recompute({"layer": "*"}), 2),
        "zero 0": _replicas(0), "zero 1": _replicas(1), "zero 2": _replicas(2), "zero 3": _replicas(3),
        "1f1b": (pp.one_f_one_b(ranks=2, microbatches=4), 4),
        "zb-h1": (pp.zb_h1(ranks=2, microbatches=4), 4),
        "zb-v": (pp.zb_v(ranks=2, microbatches=4), 4),
        "dualpipev": (pp.dualpipev(ranks=2, microbatches=4), 4),
        "1f1b, zero 1": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=1), 4),
        "dualpipev, zero 2": (pp.dualpipev(ranks=2, microbatches=4, replicas=2, zero=2), 8),
    }


def experts():
    pp = piper.schedules
    shard = lambda zero: _replicas(zero)[0].shard({"experts": "*"}, along="dp")
    return {
        "experts": (shard(0), 4), "experts, zero 3": (shard(3), 4),
        "1f1b, experts, zero 1": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=1, experts="experts"), 4),
        "dualpipev, experts": (pp.dualpipev(ranks=2, microbatches=4, replicas=2, zero=1, experts="experts"), 8),
    }
