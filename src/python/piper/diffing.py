"""Where a trainer computes something else than PyTorch does."""
from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Optional

import torch
from torch.utils._pytree import tree_leaves

from . import _piper
from .annotation import _NOTES
from .capturing import _WithLoss
from .errors import ScheduleError, check_is, check_number, refused
from .plans import with_usual_copies

_TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
_DECIDED = 1e-3  # where gradients are farther apart rounding decides about them, and so about the update


@dataclass
class Diff:
    """What `Trainer.diff` found. `print(diff)` shows it; `diff.equal` says whether nothing differs, or everything is finite."""

    plan: dict
    """The plan against one device that runs the same slices, or what is not finite: the object of `piper diff --format json`."""
    text: str
    """The same for people."""
    compared: int = 0
    """Values, gradients and weights that were compared with PyTorch."""
    first: Optional[str] = None
    """The first of them that differs, in the order in which they are computed, and by how much."""
    not_compared: dict[str, str] = field(default_factory=dict)
    """What could not be compared with PyTorch, and why."""

    @property
    def equal(self) -> bool:
        return self.plan["equal"] and self.first is None

    def __str__(self) -> str:
        lines = [self.text.rstrip("\n")]
        if self.plan["looked_for"] == "not finite":
            return lines[0]
        if self.first is not None:
            lines.append(f"PyTorch: {self.first}")
        else:
            lines.append(f"equal to PyTorch: {self.compared} values, gradients and weights")
        lines += [f"  not compared with PyTorch: {name}: {why}" for name, why in self.not_compared.items()]
        return "\n".join(lines)


def diff(trainer, module: Optional[torch.nn.Module], batch, tolerance: Optional[float], find_nan: bool) -> Diff:
    check_is("find_nan", find_nan, bool, "True or False")
    if module is not None or not find_nan:
        check_is("the module", module, torch.nn.Module, "the torch.nn.Module that the model was captured from")
    if tolerance is not None:
        check_number("tolerance", tolerance, float, 0, 1)
        if find_nan:
            raise refused(ScheduleError, "E105", "find_nan compares nothing, so a tolerance means nothing", "leave one of them out")
    frontend = trainer.model._frontend
    found = trainer._running().diff(batch, trainer._names, trainer._flatten, trainer.optimizer._numbers(), tolerance, find_nan)
    out = Diff(json.loads(found["json"]), found["text"])
    if find_nan:
        return out
    tensors, slices = frontend.flatten(batch), found["slices"]
    parts = [frontend._batch([tensor.chunk(slices)[i] for tensor in tensors]) for i in range(slices)]
    with _borrowed(module, trainer) as eager:
        loss_of = _WithLoss(eager, frontend.model._compute, frontend.model._weight)
        if _draws(loss_of, parts[0]):
            out.not_compared["everything"] = ("the model draws random numbers, which PyTorch draws otherwise; try it in eval mode, or with "
                                              "dropout 0")
            return out
        scopes, total = dict(found["scopes"]), 0.0
        samples = tensors[0].shape[0] // slices
        at_once = found["counts_differ"]  # then the mean of the batch is not that of its slices
        for i, part in enumerate(parts):
            with _borders(eager) as seen:
                loss = loss_of(part)
            for scope, returned in seen.items():
                _compare_border(out, scope, scopes, returned, i * samples, tolerance)
            if not at_once:
                loss.backward()
                total += loss.item() / slices
        if at_once:
            loss = loss_of(frontend._batch(tensors))
            loss.backward()
            total, slices = loss.item(), 1
        _compare(out, "the loss", torch.tensor(found["loss"], dtype=loss.dtype), torch.tensor(total, dtype=loss.dtype), tolerance)
        _compare_updates(out, trainer, eager, found, slices, tolerance)
    return out


@contextlib.contextmanager
def _borrowed(module: torch.nn.Module, trainer):
    """The module itself, so that its hooks are there, with the trainer's weights and without gradients; afterwards it is as before."""
    values = {name: value.clone() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    try:
        try:
            module.load_state_dict(trainer.state_dict())
        except RuntimeError as problem:
            raise refused(ScheduleError, "E105",
                          f"the module has other parameters than the trainer's model: {str(problem).splitlines()[-1].strip()}",
                          "give the module that was captured, or one of the same class and sizes") from problem
        for parameter in module.parameters():
            parameter.grad = None
        yield module
    finally:
        module.load_state_dict(values, strict=False)
        for name, parameter in module.named_parameters():
            parameter.grad = gradients[name]


def _draws(loss_of, part) -> bool:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        losses = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            losses.append(loss_of(part).item())
    return losses[0] != losses[1]


@contextlib.contextmanager
def _borders(model: torch.nn.Module):
    """What annotated modules return while it lasts: by instance, numbered as capture numbers them."""
    path, counts, seen, handles = [], {}, {}, []

    def watch(module, names):
        def enter(*_):
            for name in names:
                parent = path[-1] if path else ""
                index = counts.get((parent, name), 0)
                counts[parent, name] = index + 1
                path.append(f"{parent}.{name}.{index}" if parent else f"{name}.{index}")

        def leave(module, args, output):
            tensors = [leaf.detach() for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
            for _ in names:
                seen[path.pop()] = tensors

        handles.extend([module.register_forward_pre_hook(enter), module.register_forward_hook(leave)])

    for module in model.modules():
        names = module.__dict__.get(_NOTES)
        if names and not getattr(module, "marks_scope", False):
            watch(module, names)
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _compare_border(out: Diff, scope: str, scopes: dict, tensors: list, first_sample: int, tolerance) -> None:
    values = dict(scopes.get(scope, []))
    for tensor in tensors:
        matching = [name for name, slices in values.items() if first_sample in slices and slices[first_sample].numel() == tensor.numel()]
        if len(matching) == 1:
            _compare(out, f"{matching[0]}, which {scope} returns, samples from {first_sample}", values[matching[0]][first_sample], tensor, tolerance)
        else:
            out.not_compared[f"what {scope} returns"] = f"{len(matching)} values of the graph look like it"


def _compare_updates(out: Diff, trainer, eager: torch.nn.Module, found: dict, slices: int, tolerance) -> None:
    gradients, trained = {}, {}
    for name, parameter in eager.named_parameters():
        if name not in found["gradients"]:
            continue
        if parameter.grad is None:
            out.not_compared[f"gradient of {name}"] = "PyTorch gives it none"
            continue
        parameter.grad /= slices
        trained[name], gradients[name] = parameter, parameter.grad.clone()
    largest = max((_rms(gradient) for gradient in gradients.values()), default=0.0)
    for name, gradient in gradients.items():
        ours = found["gradients"][name].reshape(gradient.shape)
        least = largest * (_TOLERANCES.get(gradient.dtype, 0.0) if tolerance is None else tolerance)
        if _rms(gradient) <= least and _rms(ours) <= least:
            out.not_compared[f"gradient of {name}"] = "rounding errors only, beside the largest gradient"
        else:
            _compare(out, f"the gradient of {name}", ours.to(gradient.dtype), gradient, tolerance)
    optimizer = trainer.optimizer
    described = with_usual_copies(optimizer.describe(), trainer.model)
    if described["gradients"] or described["master"]:
        out.not_compared["weights after the update"] = "the optimizer keeps numbers of other types than PyTorch's"
        return
    if optimizer._numbers()[0] == "lion":
        out.not_compared["weights after the update"] = "PyTorch has no Lion"
        return
    if (kind := optimizer._numbers()[0]) in ("muon", "adafactor"):
        out.not_compared["weights after the update"] = f"{kind} updates whole parameters"
        return
    if described["moments"]:
        out.not_compared["weights after the update"] = "moments are rounded at random"
        return
    if not trained:
        return
    if trainer.clip is not None:
        torch.nn.utils.clip_grad_norm_(trained.values(), trainer.clip)
    if trainer.clip_value is not None:
        torch.nn.utils.clip_grad_value_(trained.values(), trainer.clip_value)
    _step(trainer, optimizer, trained)
    for name, parameter in trained.items():
        ours, gradient = found["weights"][name].reshape(parameter.shape), found["gradients"][name].reshape(parameter.shape)
        decided = (gradient - gradients[name]).abs() <= _DECIDED * gradients[name].abs()
        _compare(out, f"{name} after the update", ours[decided], parameter.detach()[decided], tolerance)


def _step(trainer, optimizer, trained: dict) -> None:
    """One of torch.optim, from the state that the trainer has."""
    kind, lr, weight_decay, beta1, beta2, eps, momentum, nesterov, groups, *_ = optimizer._numbers()
    each = []
    for name, parameter in trained.items():
        factor, decay = next(((factor, decay) for pattern, factor, decay in groups if _piper.matches_pattern(name, pattern)), (1.0, None))
        each.append({"params": [parameter], "lr": lr * factor, "weight_decay": weight_decay if decay is None else decay})
    if kind == "adamw":
        theirs = torch.optim.AdamW(each, betas=(beta1, beta2), eps=eps)
    else:
        theirs = torch.optim.SGD(each, momentum=momentum, nesterov=nesterov)
    state = trainer.optimizer_state_dict()
    if state["updates"]:
        for name, parameter in trained.items():
            entries = {entry: value.reshape(parameter.shape).clone() for entry, value in state["state"].get(name, {}).items()}
            if kind == "adamw":
                entries["step"] = torch.tensor(float(state["updates"]))
            if entries:
                theirs.state[parameter] = entries
    theirs.step()  # on data of the module, which gets its own back


def _rms(tensor: torch.Tensor) -> float:
    return tensor.double().norm().item() / max(tensor.numel(), 1) ** 0.5


def _compare(out: Diff, what: str, ours: torch.Tensor, theirs: torch.Tensor, tolerance) -> None:
    if tolerance is None:
        tolerance = _TOLERANCES.get(theirs.dtype, 0.0)
    ours, theirs = ours.double().flatten(), theirs.double().flatten()
    apart = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, ours - theirs)
    difference, norm = apart.norm().item(), theirs.norm().item()
    out.compared += 1
    if out.first is None and not difference <= tolerance * norm:
        relative = difference / norm if norm else float("inf")
        out.first = (f"{what} differs: at most {apart.abs().max().item():.3g}; {relative:.3g} of the norm, where {tolerance:.3g} is allowed")
