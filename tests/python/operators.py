"""ATen's operators with a backward, on the samples that PyTorch's own tests have for them: each as a model of two layers, the operator's
results and a loss of them, trained under a pipeline and by plain PyTorch."""
import contextlib
import sys
import types
import unittest
import warnings

import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import piper
import plain

BATCH = (torch.tensor([[0.5], [1.5], [-0.25], [2.0]]),)


def database():
    """PyTorch's table of operators. It is part of its tests, whose other needs it has nothing to do with."""
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, assert_expected_inline=None)
    with quiet():
        from torch.testing._internal.common_methods_invocations import op_db
    return [entry for entry in op_db if entry.supports_autograd and torch.float32 in entry.dtypes]


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def title(entry):
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def samples(entry, most):
    """Some of its samples, evenly spread; in float64 where it can."""
    dtype = torch.float64 if torch.float64 in entry.dtypes else torch.float32
    torch.manual_seed(0)
    with quiet():
        found = [s for s in entry.sample_inputs("cpu", dtype, requires_grad=True) if _is_usable(s)]
    return found[::max(1, -(-len(found) // most))]


def _is_usable(sample):
    tensors = _tensors((sample.input, sample.args, sample.kwargs))
    return any(t.requires_grad for t in tensors) and all(t.layout == torch.strided and t.numel() for t in tensors)


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Operator(nn.Module):
    """Its tensors are parameters where they want a gradient, else buffers; the batch scales the loss."""

    def __init__(self, entry, sample):
        super().__init__()
        self.entry = entry
        self.leaves, self.form = tree_flatten((sample.input, sample.args, sample.kwargs))
        for i, leaf in enumerate(self.leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            if leaf.requires_grad:
                self.register_parameter(f"t{i}", nn.Parameter(leaf.detach().clone()))
            else:
                self.register_buffer(f"t{i}", leaf.detach().clone())

    def forward(self, x):
        with piper.annotate("layer"):  # every other tensor goes through it; the rest is used as it is
            leaves = [getattr(self, f"t{i}") if isinstance(leaf, torch.Tensor) else leaf for i, leaf in enumerate(self.leaves)]
            leaves = [leaf * 1 if i % 2 and isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf for i, leaf in enumerate(leaves)]
            scale = 1 + x.mean()
        with piper.annotate("layer"):
            first, args, kwargs = tree_unflatten(leaves, self.form)
            scale = scale + 0.25  # so that there is something, if the operator only looks
            results = [t for t in _tensors(self.entry(first, *args, **kwargs)) if t.requires_grad]
        with piper.annotate("layer"):
            return sum(_number(result) for result in results) * scale


def _number(result):
    if result.is_complex():
        result = torch.view_as_real(result.resolve_conj())
    weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)
    return (result * weights).sum()


def loss(model, batch):
    return model(batch[0].to(next(model.parameters()).dtype))


def unusable(model):
    """Why plain PyTorch cannot train it, or not the same way twice; empty: it can."""
    try:
        values, drawn = [], Drawn()
        for _ in range(2):
            with drawn:
                value = loss(model, BATCH)
                gradients = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
            if any(g is None for g in gradients):
                return "a tensor without gradient"
            values.append([value, *gradients])
        if drawn.any:  # seeded otherwise by us
            return "random numbers"
        _trained(model)  # of slices, too
    except Exception as problem:  # whatever it is, it is not ours
        return f"{type(problem).__name__}"
    if not all(torch.isfinite(v).all() for v in values[0]):
        return "numbers that are not finite"
    return "" if all(torch.equal(a, b) for a, b in zip(*values)) else "other numbers every time"


class Drawn(TorchDispatchMode):
    """Whether random numbers are drawn. Attention counts as such even where it drops nothing."""

    any = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.any |= torch.Tag.nondeterministic_seeded in function.tags and "attention" not in function.name()
        return function(*args, **(kwargs or {}))


def trainer_of(graph):
    """A pipeline, or one device where a stage would have no backward: an operator that only looks."""
    optimizer = piper.SGD(lr=1.0)
    try:
        return piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=2), optimizer=optimizer)
    except piper.ScheduleError as error:
        if error.code != "E203":
            raise
        return piper.Trainer(graph, piper.Schedule().devices(1).split(2).place({}, devices=[0]), optimizer=optimizer)


def outcome(entry, sample):
    """"equal", "unusable: why", a code of ours, or "WRONG: how"."""
    with quiet():
        model = Operator(entry, sample)
        why = unusable(model)
        if why:
            return f"unusable: {why}"
        double = next(model.parameters()).dtype == torch.float64
        try:
            graph = piper.capture(model, BATCH, loss=loss)
            trainer = trainer_of(graph)
        except piper.RunError as error:
            return f"WRONG: started, then {error}"
        except piper.Error as error:
            return error.code
        except RuntimeError as error:
            return f"WRONG: internal error: {error}"
        try:
            with trainer:
                ours = trainer.step(BATCH).loss, trainer.state_dict()
        except (piper.Error, RuntimeError) as error:
            return f"WRONG: accepted, then {error}"
        difference, where = max(_differences(ours, _trained(model)))
        return "equal" if difference < (1e-9 if double else 2e-5) else f"WRONG: {where} by {difference:.1e}"


def _differences(ours, theirs):
    (loss, state), (expected, weights) = ours, theirs
    yield abs(loss - expected) / max(abs(expected), 1.0), "loss"
    for name, value in weights.items():
        if value.is_floating_point():
            yield (state[name] - value).abs().max().item() / max(value.abs().max().item(), 1.0), name


def _trained(model):
    """One step of SGD, learning rate 1, of two slices."""
    parameters = dict(model.named_parameters())
    total, sums = 0.0, {name: torch.zeros_like(p) for name, p in parameters.items()}
    for part in plain.slices_of(BATCH, 2):
        value = loss(model, part) / 2
        for name, gradient in zip(parameters, torch.autograd.grad(value, list(parameters.values()))):
            sums[name] += gradient
        total += value.item()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for name, gradient in sums.items():
        state[name] -= gradient
    return total, state
