"""The reference decoder, taken as it is, under every strategy."""
import importlib.util
import shutil
import sys

import pytest
import torch
import torch.nn.functional as F

import piper
import plain
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
    def __init__(self, reference, mixture, dtype):
        base = reference.CONFIGS["MoE-S" if mixture else "tiny"]
        config = base.with_(layers=4, dim=32, heads=4, vocab=64, seq=16, batch=8)
        self.model = reference.Decoder(config).to(dtype).train()
        self.batches = [reference.batch_for(config, step) for step in range(5)]
        piper.annotate_modules(self.model, {"layer": "layers.*"})
        self.graph = piper.capture(self.model, self.batches[0], loss=self.loss)
        self.plain = {}

    @staticmethod
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def difference(self, schedule, slices):
        if slices not in self.plain:
            self.plain[slices] = plain.train(self.model, self.batches, slices, self.loss)
        return plain.worst(plain.train_piper(self.graph, schedule, self.batches), self.plain[slices])


_cases = {}


@pytest.mark.parametrize("title", schedules.dense())
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["float32", "float64"])
@pytest.mark.parametrize("mixture", [False, True], ids=["dense", "mixture"])
def test_equals_plain_pytorch(reference, mixture, dtype, limit, title):
    if (mixture, dtype) not in _cases:
        _cases[mixture, dtype] = Case(reference, mixture, dtype)
    difference, where = _cases[mixture, dtype].difference(*schedules.dense()[title])
    assert difference < limit, where
