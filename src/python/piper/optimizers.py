"""Optimizers: their settings. The arithmetic is in C++."""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Optional, Sequence, Union

import torch

from . import _piper
from .errors import ScheduleError, check_is, check_number, check_word, described, refused


class _Checked(type):
    """Calls of the constructor are checked too: parameters of a module, as PyTorch's optimizers take them, and unknown names."""

    def __call__(cls, *arguments, **named):
        if arguments and not isinstance(arguments[0], (int, float)):
            raise refused(ScheduleError, "E105", f"the first argument of {cls.__name__} is {described(arguments[0])}, not a learning rate",
                          f"piper.{cls.__name__}(lr=...) takes no parameters: the trainer knows those of the model")
        known = [field.name for field in fields(cls)]
        unknown = [name for name in named if name not in known]
        if unknown or len(arguments) > len(known) or any(name in named for name in known[:len(arguments)]):
            what = f"has no {unknown[0]}" if unknown else "is given an argument twice, or too many"
            raise refused(ScheduleError, "E104", f"{cls.__name__} {what}", "it has " + ", ".join(known))
        return super().__call__(*arguments, **named)


class _Optimizer(metaclass=_Checked):
    """Assignments to fields are checked at once."""

    def describe(self) -> dict:
        return {"kind": self._numbers()[0], "gradients": self.gradients or "", "master": self.master or "",
                "moments": getattr(self, "moments", None) or ""}

    def matrices(self, module: torch.nn.Module) -> list[str]:
        """Names of the parameters that are updated as whole matrices; AdamW updates the others then."""
        return []

    def _numbers(self) -> tuple:
        """Kind, learning rate, weight decay, both betas, epsilon, momentum, nesterov, groups, decay of the moving average, numbers of Muon,
        of Adafactor: what a step needs, in the order of C++."""
        raise NotImplementedError

    def __setattr__(self, name: str, value) -> None:
        names = [field.name for field in fields(self)]
        if name not in names:
            raise refused(ScheduleError, "E105", f"{type(self).__name__} has no {name}", "it has " + ", ".join(names))
        before = self.__dict__.copy()
        self.__dict__[name] = _taken(name, value, pairs=("betas", "eps") if isinstance(self, Adafactor) else ("betas",))
        if name == "groups":
            self.__dict__["_groups"] = [group._numbers() for group in self.groups]  # for every step
        if any(other not in self.__dict__ for other in names):  # the constructor has not ended
            return
        try:
            _piper.check_optimizer(self._numbers())
        except ScheduleError:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with settings of their own. A parameter belongs to the first group whose pattern matches its name.

    `pattern`: of names as in `module.named_parameters()`; `*` stands for any part of a name. `lr_factor`: their learning rate, as a multiple
    of the optimizer's. `weight_decay`: theirs, if not the optimizer's. Parameters that are not to be trained at all:
    `parameter.requires_grad_(False)`, before the model is captured.
    """

    pattern: str
    lr_factor: float = 1.0
    weight_decay: Optional[float] = None

    def __post_init__(self):
        if not isinstance(self.pattern, str) or not self.pattern:
            raise refused(ScheduleError, "E105", f"the pattern of a group is {self.pattern!r}", 'it is a text, such as "*.bias"')
        check_number("lr_factor", self.lr_factor, float)
        if self.weight_decay is not None:
            check_number("weight_decay", self.weight_decay, float)

    def _numbers(self) -> tuple:
        return self.pattern, float(self.lr_factor), None if self.weight_decay is None else float(self.weight_decay)


def decay_matrices_only(module: torch.nn.Module) -> tuple[ParameterGroup, ...]:
    """The usual recipe: no weight decay of norms, biases and embeddings.

        piper.AdamW(lr=3e-4, weight_decay=0.1, groups=piper.decay_matrices_only(model))
    """
    check_is("the model", module, torch.nn.Module, "a torch.nn.Module")
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))}
    return tuple(ParameterGroup(name, weight_decay=0.0) for name, value in module.named_parameters()
                 if value.dim() < 2 or id(value) in embeddings)


Groups = Sequence[ParameterGroup]


@dataclass
class AdamW(_Optimizer):
    """As torch.optim.AdamW, to the bit where the order of sums allows it. Fields may be changed between steps: `trainer.optimizer.lr = …`.

    `gradients`, `master`: dtypes in which gradients are summed and the optimizer keeps its own copy of the weights. Default: those of the
    weights, and float32 for bfloat16 weights: mixed precision. Pure bfloat16, with moments in bfloat16 too, is `master="bfloat16"`.
    `moments`: "bfloat16" halves their memory; they are rounded at random, up or down, so that they are right in the mean. By default they
    are as wide as the master copy.
    `groups`: parameters with a learning rate or weight decay of their own.
    `ema`: keeps an exponential moving average of the weights with this decay: `trainer.ema_state_dict()`.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None
    groups: Groups = ()
    ema: Optional[float] = None
    moments: Union[str, torch.dtype, None] = None

    def _numbers(self) -> tuple:
        return ("adamw", self.lr, self.weight_decay, self.betas[0], self.betas[1], self.eps, 0.0, False, self._groups, self.ema, None, None)


@dataclass
class SGD(_Optimizer):
    """As torch.optim.SGD, with or without momentum. `nesterov`: Nesterov momentum; needs a momentum. `moments`: as of AdamW."""

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None
    nesterov: bool = False
    groups: Groups = ()
    ema: Optional[float] = None
    moments: Union[str, torch.dtype, None] = None

    def _numbers(self) -> tuple:
        if self.nesterov and not self.momentum:
            raise refused(ScheduleError, "E105", "nesterov needs a momentum", "SGD(momentum=0.9, nesterov=True)")
        return ("momentum" if self.momentum else "sgd", self.lr, self.weight_decay, 0.0, 0.0, 0.0, self.momentum, self.nesterov,
                self._groups, self.ema, None, None)


@dataclass
class Lion(_Optimizer):
    """Updates by the sign of an averaged gradient: one moment per parameter instead of AdamW's two. Its learning rate is usually three to ten
    times smaller than AdamW's, its weight decay as much larger. `moments`: as of AdamW."""

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None
    groups: Groups = ()
    ema: Optional[float] = None
    moments: Union[str, torch.dtype, None] = None

    def _numbers(self) -> tuple:
        return "lion", self.lr, self.weight_decay, self.betas[0], self.betas[1], 0.0, 0.0, False, self._groups, self.ema, None, None


@dataclass
class Muon(_Optimizer):
    """As torch.optim.Muon for the matrices of hidden layers: orthogonalized updates, one moment per parameter.

    Everything else is updated by AdamW, as is usual: vectors, embeddings (`torch.nn.Embedding`), the head that a module of
    transformers names, and parameters whose names match a pattern of `adamw`, for example `adamw=("head.*",)`. Whole matrices are
    orthogonalized, also where ZeRO or tensor parallelism shards them: devices then gather their parts.
    `adjust_lr`: "original" or "match_rms_adamw", with which learning rates and weight decays tuned for AdamW fit. `adamw_lr_factor`: the
    learning rate of parameters that AdamW updates, as a multiple of `lr`; `betas` and `eps` are AdamW's.
    """

    lr: float = 1e-3
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.1
    ns_steps: int = 5
    adjust_lr: str = "original"
    adamw: Sequence[str] = ()
    adamw_lr_factor: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None
    groups: Groups = ()
    ema: Optional[float] = None

    def matrices(self, module: torch.nn.Module) -> list[str]:
        left_out = {id(part.weight) for part in module.modules() if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))}
        head = module.get_output_embeddings() if callable(getattr(module, "get_output_embeddings", None)) else None
        left_out.add(id(getattr(head, "weight", None)))
        return [name for name, value in module.named_parameters()
                if value.requires_grad and value.dim() == 2 and id(value) not in left_out
                and not any(_piper.matches_pattern(name, pattern) for pattern in self.adamw)]

    def _numbers(self) -> tuple:
        return ("muon", self.lr, self.weight_decay, self.betas[0], self.betas[1], self.eps, self.momentum, self.nesterov, self._groups,
                self.ema, (self.ns_steps, self.adjust_lr == "match_rms_adamw", self.adamw_lr_factor), None)


@dataclass
class Adafactor(_Optimizer):
    """As torch.optim.Adafactor: second moments of matrices are kept as means of their rows and columns, almost no memory; no first moment.

    A step depends on whole parameters: how large they are, how large their update is, and sums over rows and columns. Where ZeRO or tensor
    parallelism shards them, devices gather gradients for the update, a bucket at a time.
    `lr`: relative to the root mean square of each parameter, and at most 1 / sqrt(step). `beta2_decay`: in step t new squares weigh t to
    this power. `eps`: the least root of a second moment (None: the precision of the weights), and the least root mean square of a
    parameter. `d`: the largest root mean square of an update.
    """

    lr: float = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[Optional[float], float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    gradients: Union[str, torch.dtype, None] = None
    master: Union[str, torch.dtype, None] = None
    groups: Groups = ()
    ema: Optional[float] = None

    def _numbers(self) -> tuple:
        return ("adafactor", self.lr, self.weight_decay, 0.0, 0.0, 0.0, 0.0, False, self._groups, self.ema, None,
                (self.beta2_decay, *self.eps, self.d))


def check_optimizer(given) -> _Optimizer:
    """One of Piper's optimizers."""
    if isinstance(given, _Optimizer):
        return given
    raise refused(ScheduleError, "E105", f"the optimizer is {described(given)}, not one of piper's",
                  f"{_ours(given)}: it updates the weights where they are, on the devices, and needs no parameters")


def check_groups(optimizer: _Optimizer, names: Sequence[str]) -> None:
    """Every group has a parameter."""
    for pattern in (*(group.pattern for group in optimizer.groups), *getattr(optimizer, "adamw", ())):
        if not any(_piper.matches_pattern(name, pattern) for name in names):
            raise refused(ScheduleError, "E105", f"no parameter has a name like {pattern!r}",
                          f"names as in module.named_parameters(), such as {names[0]!r}; * stands for any part of a name")


def _ours(given) -> str:
    """The same in our words, as far as it goes."""
    if not isinstance(given, torch.optim.Optimizer):
        return "piper.AdamW(lr=1e-3), piper.SGD(lr=1e-3), piper.Lion(lr=1e-4), piper.Muon(lr=1e-3) or piper.Adafactor(lr=1e-2)"
    kind = {"SGD": SGD, "Muon": Muon, "Adafactor": Adafactor}.get(type(given).__name__, AdamW)
    known = {field.name for field in fields(kind)}
    return f"piper.{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in given.defaults.items() if name in known and value is not False)})"


def _taken(name: str, value, pairs: Sequence[str]):
    if name in ("gradients", "master", "moments"):
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        raise refused(ScheduleError, "E105", f"{name} is {value!r}", 'it must be a dtype, such as "float32"')
    if name == "nesterov":
        if not isinstance(value, bool):
            raise refused(ScheduleError, "E105", f"nesterov is {value!r}", "True or False")
        return value
    if name == "ema" and value is None:
        return None
    if name == "ns_steps":
        check_number(name, value, int, 1, 99)
        return value
    if name == "eps" and name in pairs:
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise refused(ScheduleError, "E105", f"eps is {value!r}", "two numbers, of which the first may be None: eps=(None, 1e-3)")
        for one in value[value[0] is None:]:
            check_number("one of eps", one, float)
        return tuple(None if one is None else float(one) for one in value)
    if name == "adjust_lr":
        check_word(name, value, ("original", "match_rms_adamw"))
        return value
    if name == "adamw":
        if not isinstance(value, (tuple, list)) or not all(isinstance(pattern, str) and pattern for pattern in value):
            raise refused(ScheduleError, "E105", f"adamw is {value!r}", 'patterns of names: adamw=("head.*",)')
        return tuple(value)
    if name == "groups":
        if not isinstance(value, (tuple, list)) or not all(isinstance(group, ParameterGroup) for group in value):
            raise refused(ScheduleError, "E105", f"groups is {value!r}", 'groups=[piper.ParameterGroup("*.bias", weight_decay=0.0)]')
        return tuple(value)
    if name not in pairs:
        check_number(name, value, float)
        return float(value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise refused(ScheduleError, "E105", f"betas is {value!r}", "two numbers: betas=(0.9, 0.999)")
    for one in value:
        check_number("one of betas", one, float)
    return tuple(map(float, value))
