"""The C++ recorder and the one written in Python see the same calls."""
import re

import pytest
import torch

import oracle
import piper
import small
from piper import _piper, _torch
from piper.capturing import _Frontend


def parse(text):
    """Lines of the C++ graph. Its constants stand for Python's numbers, which are no tensors there."""
    calls = []
    for line in text.splitlines():
        backward, scope, results, name, arguments = re.fullmatch(r"([FB]) (\S+): (.*?) = (\w+::[\w.]+)\((.*)\)", line).groups()
        given = [n for n, named in re.findall(r"%(\d+)(:[\w.]*)?", arguments) if named != ":"]
        made = re.findall(r"%(\d+)(?::[\w.]*)?\[([\d,]*)\]@(\d+)", results)
        calls.append((backward == "B", scope, name, tuple(given),
                      tuple((n, tuple(map(int, sizes.split(","))) if sizes else (), s) for n, sizes, s in made)))
    return calls


def renumbered(calls):
    """Tensors and storages numbered in order of first appearance."""
    tensors, storages, out = {}, {}, []
    for backward, scope, name, given, made in calls:
        if name.startswith("aten::detach") and made[0][0] == given[0]:
            continue  # the same tensor: what autograd saves of results goes through Python, not through the dispatcher
        given = tuple(tensors.setdefault(n, len(tensors)) for n in given)
        made = tuple((tensors.setdefault(n, len(tensors)), sizes, storages.setdefault(s, len(storages))) for n, sizes, s in made)
        out.append((backward, scope, name.removesuffix(".default"), given, made))
    return out


RENAMED = {"aten::lift_fresh": "aten::lift_fresh_copy"}  # so that nobody writes to the constant


def same_calls(model, batch, loss):
    frontend = _Frontend(model, batch, loss, "cpu")
    inputs = [_torch.fake_like(frontend._fake, tensor, "cpu") for tensor in frontend.flatten(batch)]
    names = [name for name, *_ in frontend.specs]
    ours = renumbered(parse(_piper.record(frontend, frontend.parameters, frontend.buffers, list(zip(names, inputs)))))
    theirs = renumbered((b, s, RENAMED.get(n, n), g, m) for b, s, n, g, m in oracle.record(frontend, inputs))
    for position, (one, other) in enumerate(zip(ours, theirs)):
        assert one == other, f"call {position}"
    assert len(ours) == len(theirs) > 0
    return len(ours)


def test_small():
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*", "head": "head"})
    assert same_calls(model, small.batch(), small.loss) > 80


@pytest.mark.parametrize("name", ["llama", "mixtral", *(pytest.param(name, marks=pytest.mark.long) for name in ("qwen3", "gpt2", "qwen3-moe"))])
def test_transformers(name):
    pytest.importorskip("transformers")
    import test_transformers as models
    from piper.integrations import transformers as integration

    model = models.build(name)
    integration.use(model, attention=False)  # which mask it leaves out is for the recorder in C++ to say
    integration.annotate(model)
    assert same_calls(model, models.batches(1)[0], models.loss) > 200
