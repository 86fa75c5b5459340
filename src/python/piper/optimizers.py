"""Optimisers: which numbers they have. What they compute is in C++."""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Union

import torch

from . import _piper
from .errors import ScheduleError, check_number, refused


class _Optimizer:
    """Every assignment is checked where it is made."""

    def describe(self) -> dict:
        return {"kind": self._numbers()[0], "gradients": self.gradients or "", "master": self.master or ""}

    def _numbers(self) -> tuple:
        """Kind, learning rate, weight decay, both betas, epsilon, momentum: what a step needs, in the order of C++."""
        raise NotImplementedError

    def __setattr__(self, name: str, value) -> None:
        names = [field.name for field in fields(self)]
        if name not in names:
            raise refused(ScheduleError, "E105", f"{type(self).__name__} has no {name}", "it has " + ", ".join(names))
        before = self.__dict__.copy()
        self.__dict__[name] = _taken(name, value)
        if len(self.__dict__) < len(names):  # the constructor has not ended
            return
        try:
            _piper.check_optimizer(self._numbers())
        except ScheduleError:
            self.__dict__.update(before)
            raise


@dataclass
class AdamW(_Optimizer):
    """As torch.optim.AdamW, to the bit where the order of sums allows it. Fields may be changed between steps: `trainer.optimizer.lr = …`.

    `gradients`, `master`: dtypes in which gradients are summed and the optimiser keeps its own copy of the weights, if not those of the
    weights. For bfloat16 weights: `AdamW(gradients="float32", master="float32")`.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None

    def _numbers(self) -> tuple:
        return "adamw", self.lr, self.weight_decay, self.betas[0], self.betas[1], self.eps, 0.0


@dataclass
class SGD(_Optimizer):
    """As torch.optim.SGD, with or without momentum."""

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None

    def _numbers(self) -> tuple:
        return "momentum" if self.momentum else "sgd", self.lr, self.weight_decay, 0.0, 0.0, 0.0, self.momentum


def check_optimizer(given) -> _Optimizer:
    """One of ours."""
    if isinstance(given, _Optimizer):
        return given
    raise refused(ScheduleError, "E105", f"the optimizer is {_described(given)}, not one of piper's",
                  f"{_ours(given)}: it updates the weights where they are, on the devices, and needs no parameters")


def _described(given) -> str:
    kind = given if isinstance(given, type) else type(given)
    return f"{'the class' if given is kind else 'a'} {kind.__module__.removeprefix('builtins').lstrip('.')}.{kind.__qualname__}".replace(" .", " ")


def _ours(given) -> str:
    """The same in our words, as far as it goes."""
    if not isinstance(given, torch.optim.Optimizer):
        return "piper.AdamW(lr=1e-3) or piper.SGD(lr=1e-3)"
    kind = SGD if isinstance(given, torch.optim.SGD) else AdamW
    known = {field.name for field in fields(kind)}
    return f"piper.{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in given.defaults.items() if name in known)})"


def _taken(name: str, value):
    if name in ("gradients", "master"):
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        raise refused(ScheduleError, "E105", f"{name} is {value!r}", 'it must be a dtype, such as "float32"')
    if name != "betas":
        check_number(name, value, float)
        return float(value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise refused(ScheduleError, "E105", f"betas is {value!r}", "two numbers: betas=(0.9, 0.999)")
    for one in value:
        check_number("one of betas", one, float)
    return tuple(map(float, value))
