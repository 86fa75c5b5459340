"""Which schedule to use: `piper search` from Python."""
from __future__ import annotations

import json
import os
from typing import Optional, Sequence, Union

from . import _piper
from .capturing import Model
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


def search(model: Model, cluster: Union[str, os.PathLike], devices: int, *, memory: Optional[str] = None, budget: float = 30,
           fix: Sequence[str] = (), tried: Sequence[Union[Schedule, str]] = ()) -> Search:
    """The fastest schedule for the model on so many devices of a cluster, proved and simulated, with what it costs and why.

    `memory`: what a step may use of each device, "70GB"; default: all it has. `budget`: seconds after which the best so far is the answer.
    `fix`: directives that the schedule must agree with, "mesh(tp=8)". `tried`: schedules to compare with.

        found = piper.search(graph, "h100", 64, memory="70GB")
        print(found)
        trainer = piper.Trainer(graph, found.best)
    """
    schedules = [Schedule(one) if isinstance(one, str) else one for one in tried]
    return Search(_piper.search(model._handle, [one._schedule() for one in schedules], os.fspath(cluster), devices,
                                memory or "", float(budget), list(fix)))
