"""Which schedule to use: `piper search` from Python."""
from __future__ import annotations

import json
import os
import sys
from typing import Callable, Optional, Sequence, Union

from . import _piper
from .capturing import Model
from .errors import check_is, check_number, path_of
from .plans import schedule_of
from .schedule import Schedule


class Search:
    """The answer of a search. Prints as the page of `piper search`."""

    def __init__(self, handle: "_piper.Searched"):
        self._text = handle.text
        self.best: Optional[Schedule] = Schedule(handle.best) if handle.best else None  # None: nothing fits
        self.numbers: dict = json.loads(handle.json)  # docs/json.md

    @property
    def seconds(self) -> float:
        """Predicted time of a step under the best schedule; infinite if nothing fits."""
        return self.numbers["best"]["seconds"] if self.best else float("inf")

    @property
    def peak(self) -> Optional[int]:
        """Bytes of the fullest device under the best schedule."""
        return self.numbers["best"]["peak_bytes"] if self.best else None

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<piper.Search: {self.seconds * 1e3:.3f} ms a step>" if self.best else "<piper.Search: nothing fits>"


Progress = Callable[[float, int, int, Optional[float]], None]


def search(model: Model, cluster: Union[str, os.PathLike], devices: int, *, memory: Optional[str] = None,
           costs: Union[str, os.PathLike, None] = None, budget: float = 30, time: Optional[float] = None, fix: Sequence[str] = (),
           tried: Sequence[Union[Schedule, str]] = (), progress: Optional[Progress] = None) -> Search:
    """The fastest schedule for the model on so many devices of a cluster, proved and simulated, with what it costs and why.

    `memory`: what a step may use of each device, "70GB"; default: all it has. `budget`: the work after which the best so far is the answer,
    about seconds on two cores, counted: the same search gives the same answer. `time`: limit in seconds of the clock; default: the budget.
    `costs`: measured times of computations, a file of `piper profile`; schedules with others are not looked at.
    `progress`: called now and then with the seconds so far, the schedules that were simulated, those that wait, and the seconds of a step
    under the best, or None. Default: a line on the terminal, if there is one. Ctrl-C ends the search with the best so far.
    `fix`: directives that the schedule must agree with, "mesh(tp=8)". `tried`: schedules to compare with.

        found = piper.search(graph, "h100", 64, memory="70GB")
        print(found)
        trainer = piper.Trainer(graph, found.best)
    """
    check_is("the model", model, Model, "what piper.capture or piper.load_model gave")
    check_number("devices", devices, int, 1, 2**24)
    check_number("budget", budget, float)
    if time is not None:
        check_number("time", time, float)
    for what, given in (("fix", fix), ("tried", tried)):
        check_is(what, given, (list, tuple), "a list")
    for directive in fix:
        check_is("a directive of fix", directive, str, 'a text, such as "mesh(tp=8)"')
    if memory is not None:
        check_is("memory", memory, str, 'a text, such as "70GB"')
    schedules = [schedule_of(one) for one in tried]
    line = _Line()
    if progress is None and sys.stderr.isatty():
        progress = line.show
    try:
        return Search(_piper.search(model._handle, [one._schedule() for one in schedules], path_of("cluster", cluster), devices, memory or "",
                                    "" if costs is None else path_of("costs", costs), float(budget), float(budget if time is None else time), list(fix), progress))
    finally:
        line.clear()


class _Line:
    """One line of the terminal that changes."""

    def __init__(self):
        self._last = 0.0

    def show(self, seconds: float, simulated: int, waiting: int, best: Optional[float]) -> None:
        if seconds - self._last < 0.2:
            return
        self._last = seconds
        found = "none yet" if best is None else f"{best * 1e3:.4g} ms"
        print(f"\r{seconds:.0f} s  {simulated} simulated, {waiting} waiting  best {found}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
