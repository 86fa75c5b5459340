"""Values that a model reports for every step, besides its loss."""
from __future__ import annotations

import contextlib
import threading
from typing import Iterator

import torch

from .errors import CaptureError, refused

_now = threading.local()


def metric(name: str, value: torch.Tensor) -> None:
    """Reports a value of the batch, in `forward` or where the loss is computed: `StepResult.metrics` has it after every step.

    `value`: a scalar, the mean over the samples or tokens that the module sees, or over counted tokens as in a loss. It does not affect
    training. Outside of capture it does nothing.

        piper.metric("accuracy", (logits.argmax(-1) == labels).float().mean())
    """
    if not isinstance(name, str) or not name:
        raise refused(CaptureError, "E605", f"the name of a metric is {name!r}", 'it is a text: piper.metric("accuracy", value)')
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        raise refused(CaptureError, "E605", f"metric {name} is not one number", "a tensor without dimensions, such as value.mean()")
    report(name, value)


def report(name: str, value: torch.Tensor) -> None:
    """The same of a list of numbers too, whose elements are NAME.0, NAME.1 and so on."""
    into = getattr(_now, "into", None)
    if into is None:
        return
    if name in into:
        raise refused(CaptureError, "E605", f"metric {name} is said twice", "name the layer too, or say it once for all")
    into[name] = value


@contextlib.contextmanager
def collected(into: dict[str, torch.Tensor]) -> Iterator[None]:
    """While it lasts, metrics go there."""
    into.clear()
    _now.into = into
    try:
        yield
    finally:
        _now.into = None
