"""The library of published pipeline timelines, as complete schedules: `piper.schedules.dualpipev(ranks=4, microbatches=8)`.

Every timeline is a function of this module, by its name with `_` for `-`; names that start with a digit are also there with the
digits in words: `one_f_one_b`, `interleaved_one_f_one_b`. `names()` lists them. All take

    ranks           pipeline ranks
    microbatches    parts of the batch
    stages_per_rank where the timeline leaves that open
    group, memory_limit  for those that have them (docs/timelines.md)
    replicas        copies of the pipeline, each on its own devices: data parallelism
    zero, bucket    what of the state is divided among the replicas
    experts         the scope whose experts are divided among the replicas

and give the mesh, the split, the placement and the `use` line. For anything else write the lines yourself.
"""
from __future__ import annotations

from typing import Optional, Union

from . import _piper
from .errors import ScheduleError, check_is, check_number, refused
from .schedule import Schedule

_TABLE = {row["name"]: {**row, "sizes": _piper.in_python(row["sizes"])} for row in _piper.timelines()}


def names() -> list[str]:
    """All timelines, as `use` names them."""
    return list(_TABLE)


def info(name: str) -> dict:
    """Title, paper, legal sizes, bubble and memory of a timeline."""
    return dict(_TABLE[_resolve(name)])


def timeline(name: str, *, ranks: int, microbatches: int, stages_per_rank: int = 0, group: Optional[int] = None,
             memory_limit: Optional[float] = None) -> "_piper.Timeline":
    """The order of passes on every rank: `.text()`, `.grid(columns)`, `.csv(communication)`."""
    check_is("the name of a timeline", name, str, 'a text, such as "1f1b"')
    for what, given in (("ranks", ranks), ("microbatches", microbatches), ("stages_per_rank", stages_per_rank), ("group", group)):
        if given is not None:
            check_number(what, given, int, 0, 2**24)
    if memory_limit is not None:
        check_number("memory_limit", memory_limit, float)
    return _piper.Timeline.make(name, ranks, microbatches, stages_per_rank, group, memory_limit)


def make(name: str, *, ranks: int, microbatches: int, stages_per_rank: int = 0, group: Optional[int] = None,
         memory_limit: Optional[int] = None, replicas: int = 1, zero: Optional[int] = None, bucket: Union[int, str, None] = None,
         experts: Optional[str] = None) -> Schedule:
    """The schedule of a timeline; arguments as above."""
    check_number("replicas", replicas, int, 1, 2**24)
    for what, given in (("zero", zero), ("bucket", bucket), ("experts", experts)):
        if replicas == 1 and given:
            raise refused(ScheduleError, "E104", f"{what}={given!r} is about several replicas, and there is one",
                          f"{what} goes with replicas=2 or more; take it out where there is one pipeline")
    shape = timeline(name, ranks=ranks, microbatches=microbatches, stages_per_rank=stages_per_rank, group=group,
                     memory_limit=memory_limit).pipeline()
    mesh, *rest = shape.text().rstrip("\n").split("\n")
    out = Schedule("\n".join([mesh if replicas == 1 else f"mesh(pp={ranks}, dp={replicas})", *rest]))
    if replicas > 1:
        out.replicate({}, along="dp", zero=zero, bucket=bucket)
        if experts is not None:
            out.shard({experts: "*"}, along="dp")
    return out.use(_resolve(name), group=group, memory_limit=memory_limit)


_WORDS = {"one_f_one_b": "1f1b", "interleaved_one_f_one_b": "interleaved-1f1b", "one_f_one_b_v": "1f1b-v"}


def _resolve(name: str) -> str:
    name = _WORDS.get(name, name)
    return name if name in _TABLE else name.replace("_", "-")


def __getattr__(name: str):
    if name.startswith("__") or _resolve(name) not in _TABLE:
        raise AttributeError(f"there is no timeline {name}; there are {', '.join(_TABLE)}")

    def schedule(**arguments) -> Schedule:
        return make(_resolve(name), **arguments)

    row = _TABLE[_resolve(name)]
    schedule.__name__ = name
    schedule.__doc__ = f"{row['title']} ({row['paper']}). Sizes: {row['sizes']}. Idle: {row['bubble']}. Memory: {row['memory']}."
    return schedule


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.replace("-", "_") for name in _TABLE if name[0].isalpha()), *_WORDS])
