"""Hooks on gradients: recorded with what they compute, or refused. None is silently left out."""
from __future__ import annotations

from typing import Callable

import torch

from . import _piper
from .errors import CaptureError, refused


def check_hooks(model: torch.nn.Module) -> None:
    """Those that would have to run inside of a step, or after backward of one."""
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise _refused(f"module {name or type(model).__name__} has a backward hook")
    for name, value in model.named_parameters():
        if getattr(value, "_post_accumulate_grad_hooks", None):
            raise _refused(f"{name} has a hook for when its gradient is accumulated (register_post_accumulate_grad_hook)")
        if _piper.has_accumulation_hook(value):
            raise _refused(f"{name} has a hook on its AccumulateGrad node, as in a module of DistributedDataParallel")


def recorded(hook: Callable, fail: Callable) -> Callable:
    """The hook of a tensor: its operators are recorded and what it returns is the gradient. If it returns nothing, it is there for
    what it does besides, which a step does not do."""

    def run(gradient):
        changed = hook(gradient)
        if changed is None:
            raise fail(_refused(f"a hook on a tensor returns nothing ({getattr(hook, '__qualname__', type(hook).__name__)})"))
        return changed

    return run


def _refused(message: str) -> CaptureError:
    return refused(CaptureError, "E610", f"{message}; it would not run in training, where a step runs recorded operators only",
                   "take it out while the model is captured; to change a gradient: tensor.register_hook(f), where f returns the new one")
