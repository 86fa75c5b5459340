"""Losses and predictions as transformers' Trainer has them: the loss is the mean of every batch, weighted by its samples."""
from __future__ import annotations

import contextlib
import math
import warnings
from typing import Callable, Iterable, Iterator, Mapping, Optional, Sequence

import torch
from transformers.trainer_pt_utils import EvalLoopContainer
from transformers.utils import find_labels

Inputs = Mapping[str, torch.Tensor]


def form(batch: Inputs) -> dict[str, tuple]:
    """What of a batch is part of a plan, besides the number of samples."""
    return {name: (value.dtype, tuple(value.shape[1:])) if isinstance(value, torch.Tensor) else (type(value), ()) for name, value in batch.items()}


def samples(batch: Inputs) -> int:
    """0: its values do not have one number of samples."""
    counts = {value.shape[0] if isinstance(value, torch.Tensor) and value.dim() > 0 else 0 for value in batch.values()}
    return counts.pop() if len(counts) == 1 else 0


def whole_batches(batch: Inputs, size: int) -> list[dict[str, torch.Tensor]]:
    """Batches of that size, in which each of the given samples stands equally often, so that means are those of the batch."""
    count = samples(batch)
    copies = size // math.gcd(count, size)
    repeated = {name: torch.cat([value] * copies) for name, value in batch.items()}
    return [{name: value[first:first + size] for name, value in repeated.items()} for first in range(0, count * copies, size)]


def mean_loss(trainer, example: Inputs, batches: Iterable[Inputs], by_module: Callable[[Inputs], float]) -> tuple[float, int, int]:
    """The loss, and how many samples and batches there were. Batches that do not have the form of the example, which the trainer's plan was
    made for, are given to the module, with a warning."""
    total, seen, number, others = 0.0, 0, 0, 0
    for batch in batches:
        count = samples(batch)
        if count > 0 and form(batch) == form(example):
            loss = trainer._evaluated(whole_batches(batch, samples(example))).loss
        else:
            if others == 0:
                _warn(batch, example)
            loss, others = by_module(batch), others + 1
        total, seen, number = total + loss * max(count, 1), seen + max(count, 1), number + 1
    return total / seen, seen, number


@contextlib.contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """As for evaluation, without gradients."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(training)


def outputs_of(module: torch.nn.Module, batches: Iterable[Inputs], ignored: Optional[Sequence[str]], only_loss: bool) -> tuple:
    """Of all batches: what the module returns besides its loss, the labels, as arrays; the mean loss. None where there is nothing."""
    names = find_labels(type(module.get_base_model() if hasattr(module, "get_base_model") else module))
    if ignored is None:
        ignored = getattr(getattr(module, "config", None), "keys_to_ignore_at_inference", ["past_key_values"])
    outputs, labels, losses, seen = EvalLoopContainer(True, -100), EvalLoopContainer(True, -100), 0.0, 0
    with evaluation_mode(module):
        for batch in batches:
            labelled = bool(names) and all(batch.get(name) is not None for name in names)
            out = module(**batch)
            if labelled:
                loss = out["loss"] if isinstance(out, dict) else out[0]
                losses, seen = losses + loss.item() * max(samples(batch), 1), seen + max(samples(batch), 1)
            if only_loss:
                continue
            if isinstance(out, dict):
                found = tuple(value for name, value in out.items() if name not in ignored and not (labelled and name == "loss"))
            else:
                found = (out,) if isinstance(out, torch.Tensor) else tuple(out[1:] if labelled else out)
            outputs.add(found[0] if len(found) == 1 else found)
            if labelled:
                given = tuple(batch[name] for name in names)
                labels.add(given[0] if len(given) == 1 else given)
    return outputs.get_arrays(), labels.get_arrays(), losses / seen if seen else None


def _warn(batch: Inputs, example: Inputs) -> None:
    own, planned = form(batch), form(example)
    names = [name for name in {**own, **planned} if own.get(name) != planned.get(name)]
    if not names:
        why = "its values do not have one number of samples"
    elif isinstance(batch.get(names[0]), torch.Tensor) and isinstance(example.get(names[0]), torch.Tensor):
        why = (f"a sample's {names[0]} is {batch[names[0]].dtype} of shape {list(batch[names[0]].shape[1:])}, "
               f"in steps {example[names[0]].dtype} of shape {list(example[names[0]].shape[1:])}")
    else:
        why = f"{names[0]} is not what it is in steps"
    warnings.warn(f"piper: the plan cannot evaluate a batch, the module does, on one device: {why}", RuntimeWarning, stacklevel=4)
