"""The reference decoder, taken as it is, under every strategy."""
import importlib.util
import shutil
import sys

import pytest
import torch
import torch.nn.functional as F

import piper
import plain
from piper import _piper
import schedules
from conftest import ROOT

SOURCE = ROOT.parent / "shared/peers/model.py"
pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason=f"{SOURCE} is not here")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    copy = tmp_path_factory.mktemp("reference") / "reference_model.py"
    shutil.copy(SOURCE, copy)
    spec = importlib.util.spec_from_file_location("reference_model", copy)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Case:
    def __init__(self, reference, mixture, dtype, on="cpu"):
        base = reference.CONFIGS["MoE-S" if mixture else "tiny"]
        config = base.with_(layers=4, dim=32, heads=4, vocab=64, seq=16, batch=8)
        self.model = reference.Decoder(config).to(dtype).train()
        self.batches = [reference.batch_for(config, step) for step in range(5)]
        piper.annotate_modules(self.model, {"layer": "layers.*"})
        self.graph = piper.capture(self.model, self.batches[0], loss=self.loss, on=on)
        self.plain = {}

    @staticmethod
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def difference(self, schedule, slices, **options):
        if slices not in self.plain:
            self.plain[slices] = plain.train(self.model, self.batches, slices, self.loss, self.graph.on)
        return plain.worst(plain.train_piper(self.graph, schedule, self.batches, **options), self.plain[slices])


_cases = {}


def cases():
    """The dense decoder under some schedules in float32; the rest under one, and under the others in the long tests."""
    some = ("one device in turn", "recompute", "zero 3", "1f1b", "zb-v")
    for mixture in (False, True):
        for dtype, limit in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
            for title in schedules.dense():
                usual = title == "dualpipev, zero 2" or (title in some and not mixture and dtype == torch.float32)
                yield pytest.param(mixture, dtype, limit, title, marks=() if usual else pytest.mark.long,
                                   id=f"{'mixture' if mixture else 'dense'}, {str(dtype).removeprefix('torch.')}: {title}")


@pytest.mark.parametrize("mixture, dtype, limit, title", list(cases()))
def test_equals_plain_pytorch(reference, mixture, dtype, limit, title):
    if (mixture, dtype) not in _cases:
        _cases[mixture, dtype] = Case(reference, mixture, dtype)
    difference, where = _cases[mixture, dtype].difference(*schedules.dense()[title])
    assert difference < limit, where


TWIN = """
[model]
name = "Decoder"
arch = "reference"
layers = 4
hidden = 32
heads = 4
vocab = 64
seq = 16

[step]
batch = 8
"""


def annotated_loss(model, batch):
    """The decoder again, with the scopes that its twin in C++ has."""
    with piper.annotate("embed"):
        h = F.embedding(batch[0], model.tok_emb) + model.pos_emb[:batch[0].shape[1]]
    for block in model.layers.values():
        with piper.annotate("layer"):
            with piper.annotate("attention"):
                b, t, d = h.shape
                q, k, v = block.wqkv(block.norm1(h)).view(b, t, 3, block.heads, d // block.heads).permute(2, 0, 3, 1, 4)
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                h = h + block.wo(mixed.transpose(1, 2).reshape(b, t, d))
            h = h + block.mlp(block.norm2(h))
    with piper.annotate("head"):
        return F.cross_entropy(model.head(model.norm(h)).flatten(0, 1), batch[1].flatten())


def test_plan_of_the_twin_in_cpp(reference):
    """The same model written in C++ gives the same chunks, the same parameters, and plans with the same memory."""
    case = Case(reference, False, torch.float32)
    piper.annotate_modules(case.model, {})
    graph = piper.capture(case.model, case.batches[0], loss=annotated_loss, name="Decoder")
    twin = piper.Model(_piper.Model.capture_config(TWIN, "twin.toml"))
    assert graph.chunks == twin.chunks
    theirs = {name.removesuffix(".weight"): sizes for name, (_, sizes, _) in graph.parameters.items()}
    assert theirs == {name: sizes for name, (_, sizes, _) in twin.parameters.items()}
    for title in ("1f1b", "zero 2"):
        ours, other = (piper.compile(model, schedules.dense()[title][0]) for model in (graph, twin))
        assert ours.order() == other.order()
        for row, twin_row in zip(ours.memory(), other.memory(), strict=True):
            assert row == twin_row, title
