"""Schedules: how one training step runs on many devices. The verbs and their arguments are those of docs/schedule.md."""
from __future__ import annotations

import keyword
import os
from typing import Mapping, Optional, Sequence, Union

from . import _piper
from .errors import ScheduleError, path_of, refused

Indices = Union[int, str, range, Sequence[Union[int, str]], None]
Filter = Union[str, Mapping[str, Indices]]
Devices = Union[Sequence[int], Sequence[Sequence[int]]]


class overlapped:
    """A place in an order whose parts may run interleaved: `[{…}, {…}]` in the text form."""

    def __init__(self, *parts: Filter):
        self.parts = parts


class Schedule:
    """A list of directives. Every verb adds one, checks it, and returns the schedule itself.

    >>> s = piper.Schedule().mesh(pp=2, dp=2).split(4).place({}, along="pp", stages=2).replicate({}, along="dp", zero=1).use("1f1b")
    >>> print(s)
    mesh(pp=2, dp=2)
    split(batch, parts=4, as=mb)
    place({}, along=pp, stages=2)
    replicate({}, along=dp, zero=1)
    use 1f1b(stages=stage, microbatches=mb)

    Filters are dictionaries, or text: `{"layer": range(0, 4), "pass": "F"}` is `{layer=0..3, pass=F}`; `"*"` is any instance, `None` none.
    """

    def __init__(self, text: str = "", *, name: str = "schedule"):
        self._lines: list[str] = []
        self._whole: Optional[_piper.Schedule] = None  # of the lines, until one is added
        if text.strip():
            self._take(_piper.Schedule.parse(text, name))

    @classmethod
    def load(cls, path: Union[str, os.PathLike]) -> "Schedule":
        """From a file in text form, or in the JSON of the original Piper if its name ends in `.json`."""
        return cls()._take(_piper.Schedule.load(path_of("the schedule", path)))

    @classmethod
    def from_json(cls, text: str, *, name: str = "schedule.json") -> "Schedule":
        return cls()._take(_piper.Schedule.parse_json(text, name))

    @classmethod
    def from_csv(cls, text: str, *, name: str = "timeline.csv") -> "Schedule":
        """From a timeline of torch.distributed.pipelining: its stages placed as it has them, and one order per rank."""
        return cls()._take(_piper.Timeline.parse(text, name).schedule())

    # structure

    def devices(self, count: int) -> "Schedule":
        return self._add("devices", locals())

    def mesh(self, **axes: int) -> "Schedule":
        """The devices are the product of the axes; the last varies fastest."""
        return self._add("mesh", locals())

    def split(self, parts: int, as_: Optional[str] = None) -> "Schedule":
        """Cuts the batch into microbatches."""
        return self._add("split", locals(), first="batch")

    def place(self, what: Filter = "{}", *, devices: Optional[Devices] = None, mesh: Optional[Filter] = None,
              along: Union[str, Sequence[str], None] = None, stages: Optional[int] = None, at: Optional[Sequence[int]] = None,
              shape: Optional[str] = None, ranks: Optional[Sequence[int]] = None, stage: Optional[int] = None, as_: Optional[str] = None,
              stream: Optional[str] = None, transfers: Optional[str] = None) -> "Schedule":
        """Where the selected computations run; `stages` cuts them into stages along an axis."""
        return self._add("place", locals())

    def lose(self, devices: Sequence[int], *, along: Optional[str] = None, replicas: Optional[int] = None) -> "Schedule":
        """These devices are gone: what is left of their placements does their work."""
        return self._add("lose", locals())

    def replicate(self, what: Filter = "{}", *, devices: Optional[Devices] = None, along: Union[str, Sequence[str], None] = None,
                  zero: Optional[int] = None, bucket: Union[int, str, None] = None, gather_stream: Optional[str] = None,
                  reduce_stream: Optional[str] = None, release: Optional[str] = None) -> "Schedule":
        """Data parallelism, and what of the state is divided (`zero`)."""
        return self._add("replicate", locals())

    def shard(self, what: Filter, *, devices: Optional[Devices] = None, along: Union[str, Sequence[str], None] = None,
              parameters: Optional[str] = None, vocabulary: Optional[bool] = None,
              sequence: Union[bool, str, None] = None, order: Optional[str] = None, regather: Optional[bool] = None,
              buffer: Union[float, str, None] = None, stream: Optional[str] = None) -> "Schedule":
        """Divides what the selected chunks are made of among devices.

        Expert parallelism, where all of them are experts; `buffer`: of experts without slots, rows for which a device has memory at once,
        as a multiple of the balanced load. Else tensor parallelism: parameters are divided along a dimension, as in
        `parameters="*.o_proj.weight: 1"`; the rest follows. With `sequence="gather"`, `"heads"` or `"ring"` context parallelism: tokens are divided."""
        return self._add("shard", locals())

    def __getattr__(self, name: str):
        if name == "cut":
            raise AttributeError("there is no Schedule.cut: tensor parallelism is shard(..., along=\"tp\")")
        raise AttributeError(f"'Schedule' object has no attribute {name!r}")

    def recompute(self, what: Filter = "{}") -> "Schedule":
        """Activation checkpointing."""
        return self._add("recompute", locals())

    def precision(self, what: Filter, *, matmul: Optional[str] = None) -> "Schedule":
        """In which numbers linear layers are computed: `matmul="float8"`."""
        return self._add("precision", locals())

    # time

    def prefetch(self, what: Filter, *, distance: Union[int, str, None] = None) -> "Schedule":
        """When parameters of `zero=3` may be gathered."""
        return self._add("prefetch", locals())

    def order(self, *elements: Union[Filter, overlapped]) -> "Schedule":
        """On every device each element starts after all of the previous one has ended."""
        return self._add("order", locals())

    def use(self, timeline: str, *, stages: Optional[str] = None, microbatches: Optional[str] = None, group: Optional[int] = None,
            memory_limit: Optional[int] = None, backward: Optional[str] = None) -> "Schedule":
        """A published timeline (`piper.schedules.names()`), or `file("zb.csv")`."""
        name, _, file = timeline.partition("(")
        return self._add("use", {**locals(), "file": file.rstrip(")") or None}, name=name.strip())

    # what it is

    def text(self) -> str:
        """The text form, as the program prints it."""
        return self._schedule().text()

    def json(self) -> str:
        """The JSON of the original Piper; what it has no words for is refused (E107)."""
        return self._schedule().json()

    def csv(self, *, communication: bool = False) -> str:
        """The timeline that its orders spell out, for torch.distributed.pipelining."""
        return self._schedule().timeline().csv(communication)

    def save(self, path: Union[str, os.PathLike]) -> None:
        with open(path_of("the schedule", path), "w") as file:
            file.write(self.json() if os.fspath(path).endswith(".json") else self.text())

    def copy(self) -> "Schedule":
        out = Schedule()
        out._lines, out._whole = list(self._lines), self._whole
        return out

    def __str__(self) -> str:
        return self.text() if self._lines else ""

    def __repr__(self) -> str:
        return f"<piper.Schedule of {len(self._lines)} directives>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.text() == other.text()

    __hash__ = None

    def _add(self, verb: str, given: Mapping[str, object], *, name: str = "", first: str = "") -> "Schedule":
        """The directive with the arguments of a call. `name`: after the verb; `first`: before the other arguments."""
        arguments = [first] if first else []
        for row in _DIRECTIVES[verb]:
            arguments += _where(given) if row["kind"] == "where" else _argument(verb, row, given.get(_keyword(row)))
        line = f"{f'{verb} {name}' if name else verb}({', '.join(arguments)})"
        self._lines.append(_piper.Schedule.parse(line, "schedule").text().rstrip("\n"))
        self._whole = None
        return self

    def _take(self, schedule: "_piper.Schedule") -> "Schedule":
        self._lines = schedule.text().rstrip("\n").split("\n")
        self._whole = schedule
        return self

    def _schedule(self) -> "_piper.Schedule":
        if self._whole is None:
            self._whole = _piper.Schedule.parse("\n".join(self._lines) + "\n", "schedule")
        return self._whole


# Values as the text form writes them, by the kinds of the table of arguments (schedule/fields.h).

_DIRECTIVES = _piper.directives()


def _keyword(row) -> str:
    """`as_` for `as`."""
    return row["name"] + "_" * keyword.iskeyword(row["name"])


def _list(items) -> str:
    return "[" + ", ".join(items) + "]"


def _index(index) -> str:
    if isinstance(index, range):
        if index.step != 1 or len(index) == 0:
            return _list(map(str, index))
        return f"{index.start}..{index.stop - 1}"
    return "none" if index is None else str(index)


def _filter(what: Filter) -> str:
    if isinstance(what, str):
        return what
    conditions = []
    for tag, indices in what.items():
        many = isinstance(indices, Sequence) and not isinstance(indices, (str, range))
        conditions.append(f"{tag}={_list(map(_index, indices)) if many else _index(indices)}")
    return "{" + ", ".join(conditions) + "}"


def _element(element: Union[Filter, overlapped]) -> str:
    return _list(map(_filter, element.parts)) if isinstance(element, overlapped) else _filter(element)


def _plain(value) -> str:
    return str(value) if isinstance(value, (int, str)) else _list(map(str, value))


def _name(value) -> str:
    return _piper.as_name(value) if isinstance(value, str) else _plain(value)


_WRITE = {
    "whole": _plain, "whole or word": _plain, "wholes": _plain, "bytes": _plain, "decimal": str, "count": _plain,
    "name": _name, "choice": _name, "seeds": _name,
    "flag or word": lambda value: ("off", "on")[value] if isinstance(value, bool) else _name(value),
    "filter": _filter, "file": str,
    "axes": lambda axes: ", ".join(f"{name}={size}" for name, size in axes.items()),
    "elements": lambda elements: ", ".join(map(_element, elements)),
}


def _argument(verb: str, row, value) -> list[str]:
    if value is None:
        return []
    if row["kind"] == "flag":
        if value not in (True, False, "on", "off"):  # in Python's words, or in those of the text form
            raise refused(ScheduleError, "E105", f"{verb}: {row['name']} is {value!r}", "True or False")
        text = "on" if value in (True, "on") else "off"
    else:
        text = _WRITE[row["kind"]](value)
    return [f"{row['name']}={text}" if row["named"] else text]


def _where(given) -> list[str]:
    out = []
    devices, mesh, along = (given.get(name) for name in ("devices", "mesh", "along"))
    if devices is not None:
        lists = [devices] if all(isinstance(device, int) for device in devices) else devices
        out.append("devices=" + " | ".join(_list(map(str, one)) for one in lists))
    if mesh is not None:
        out.append(f"mesh={_filter(mesh)}")
    if along is not None:
        out.append(f"along={_name(along) if isinstance(along, str) else _list(map(_name, along))}")
    return out


def _describe(rows) -> str:
    """The named arguments, for help()."""
    lines = [f"    {_keyword(row)}: {row['meaning']}" + (f" (default: {row['default']})" if row["default"] else "")
             for row in rows if row["named"]]
    return "\n\n" + "\n".join(f"        {line}" for line in lines) if lines else ""


for _verb, _rows in _DIRECTIVES.items():
    _method = getattr(Schedule, _verb)
    _method.__doc__ = (_method.__doc__ or "") + _describe(_rows)
