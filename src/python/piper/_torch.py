"""All that Piper uses of PyTorch besides its documented interface, and the only file that knows about it.

The C++ side of capture uses one more: the dispatch key `Fake`, which PyTorch 2.11 does not use itself (src/capture/record/recorder.cc).
"""
from __future__ import annotations

import contextlib
import logging
import sys
from typing import Callable

import torch

WANTED = "2.11.0"

if torch.__version__.split("+")[0] != WANTED:
    raise ImportError(
        f"piper was built for PyTorch {WANTED}, this is {torch.__version__}: pip install torch=={WANTED}, or build piper for another "
        "version after tests/python/test_torch.py passes with it")

try:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
except ImportError as problem:
    raise ImportError("this PyTorch has no torch._subclasses.fake_tensor.FakeTensorMode, which piper.capture needs") from problem

import torch.utils.checkpoint


def fake_mode() -> FakeTensorMode:
    """Everything made while it is on has a shape and no values. Real tensors may meet fake ones: they become constants."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Its shape on a device, dense; nothing is copied, and what it has may be on the meta device."""
    with mode:
        out = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    return out.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def recording(mode: FakeTensorMode, on_checkpoint: Callable[[], None] = lambda: None, hooked: Callable = lambda hook: hook,
              converted: Callable = torch.nn.Module._apply):
    """Around forward and backward: one thread; functions under torch.utils.checkpoint simply called, after `on_checkpoint`; what
    torch.compile has made run as it is written; `hooked` in the place of every hook that is put on a tensor; `converted` in the place of what is behind module.to(), .float(), .cuda().

    Without oneDNN an LSTM is the operators it consists of; oneDNN's layer keeps what backward needs in a form that only it knows. Which
    library computes products and convolutions is decided when they run.
    """
    module = torch.utils.checkpoint
    originals = module._checkpoint_without_reentrant_generator, module.CheckpointFunction

    def nothing_saved(*args, **kwargs):
        on_checkpoint()
        yield  # the function is called here

    class Called:
        @staticmethod
        def apply(function, preserve, *args):
            on_checkpoint()
            return function(*args)

    module._checkpoint_without_reentrant_generator, module.CheckpointFunction = nothing_saved, Called
    register_hook, convert = torch.Tensor.register_hook, torch.nn.Module._apply
    torch.Tensor.register_hook = lambda tensor, hook: register_hook(tensor, hooked(hook))
    torch.nn.Module._apply = converted
    try:
        with (_without_onednn(), torch.autograd.set_multithreading_enabled(False), torch.enable_grad(), _as_written(), _without_log(),
              mode):
            yield
    finally:
        module._checkpoint_without_reentrant_generator, module.CheckpointFunction = originals
        torch.Tensor.register_hook, torch.nn.Module._apply = register_hook, convert


@contextlib.contextmanager
def _without_onednn():
    """As torch.backends.mkldnn.flags, which warns about something else where there is no GPU of Intel's."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)


def _as_written():
    """Without torch.compile. Nothing was compiled if its compiler is not even loaded, which takes seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


@contextlib.contextmanager
def _without_log():
    """A call that fails on fake tensors is logged by PyTorch, with a traceback, before it is raised; we say it ourselves."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was
