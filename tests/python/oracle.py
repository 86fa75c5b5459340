"""Another recorder, written in Python: one TorchDispatchMode above FakeTensorMode, scopes through autograd's sequence numbers.

It shares with the C++ recorder how the model is run (piper.capturing), and nothing else. Both must see the same calls, with the same
tensors, in the same scopes.
"""
import bisect
import contextlib
import types

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import piper.annotation
from piper import _torch


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls, self.backward = [], False
        self.kept, self.storages, self.numbers = [], {}, {}
        self.scopes, self.counts = ["model"], {}
        self.marks = [(0, "model")]  # sequence number from which on autograd's nodes belong to the scope
        self.node_scope = "model"

    # scopes, in the place of piper._piper.Scope
    def enter(self, name):
        parent = self.scopes[-1]
        index = self.counts.get((parent, name), 0)
        self.counts[parent, name] = index + 1
        path = f"{name}.{index}" if parent == "model" else f"{parent}.{name}.{index}"
        self.scopes.append(path)
        self.mark()

    def leave(self):
        self.scopes.pop()
        self.mark()

    def mark(self):
        self.marks.append((torch.autograd._get_sequence_nr(), self.scopes[-1]))

    def scope_of_node(self, sequence):
        at = bisect.bisect_right(self.marks, sequence, key=lambda mark: mark[0]) - 1
        return self.marks[at][1]

    def start_backward(self, loss):
        self.backward = True
        seen, queue = {loss.grad_fn}, [loss.grad_fn]
        while queue:
            for node, _ in queue.pop().next_functions:
                if node is not None and node not in seen:
                    seen.add(node)
                    queue.append(node)
        for node in seen:
            if node._sequence_nr() < 2**60:
                node.register_prehook(lambda *_, scope=self.scope_of_node(node._sequence_nr()): setattr(self, "node_scope", scope))

    # tensors
    def number(self, tensor):
        storage = tensor.untyped_storage()._cdata
        if storage not in self.storages:
            self.storages[storage] = len(self.storages)
            self.kept.append(tensor.untyped_storage())  # so that no address is used twice
        key = (storage, tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        return self.numbers.setdefault(key, len(self.numbers))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [tensor for tensor in tree_leaves((args, kwargs or {})) if isinstance(tensor, _torch.FakeTensor)]
        numbers = [self.number(tensor) for tensor in given]
        out = function(*args, **(kwargs or {}))
        made = [tensor for tensor in tree_leaves(out) if isinstance(tensor, torch.Tensor)]
        if made and all(isinstance(tensor, _torch.FakeTensor) for tensor in made):
            results = [(self.number(tensor), tuple(tensor.shape), self.storages[tensor.untyped_storage()._cdata]) for tensor in made]
            scope = self.node_scope if self.backward else self.scopes[-1]
            self.calls.append((self.backward, scope, function.name(), tuple(numbers), tuple(results)))
        return out


@contextlib.contextmanager
def scopes_of(recorder):
    """Annotations go to this recorder."""

    class Scope:
        def __init__(self, name, experts=0):
            self.name = name

        def enter(self):
            recorder.enter(self.name)

        def leave(self):
            recorder.leave()

        @staticmethod
        def note_failure():
            pass

    original = piper.annotation._piper
    piper.annotation._piper = types.SimpleNamespace(Scope=Scope)
    try:
        yield
    finally:
        piper.annotation._piper = original


def record(frontend, inputs):
    """All calls of forward and backward on these fake inputs, in order."""
    recorder = Recorder()
    for _, tensor in frontend.parameters + frontend.buffers:
        recorder.number(tensor)
    for tensor in inputs:
        recorder.number(tensor)
    with frontend.mode(), recorder, scopes_of(recorder):
        loss = frontend.loss(inputs)
        recorder.node_scope = recorder.calls[-1][1]
        recorder.start_backward(loss)
        trained = [tensor for _, tensor in frontend.parameters if tensor.requires_grad]
        torch.autograd.grad(loss, trained, [torch.ones([], dtype=loss.dtype)], allow_unused=True)
    return recorder.calls
