"""piper.search: the same answer as the program's, for graphs that Python has."""
import json
import os
import signal
import subprocess

import piper
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(__file__)
MODEL = os.path.join(HERE, "../../examples/moe.toml")
FOREVER = 1e6  # seconds: the answer does not depend on the machine


def test_search_is_that_of_the_program():
    found = piper.search(piper.load_model(MODEL), "h100", 8, fix=["mesh(tp=1)"], budget=FOREVER)
    run = subprocess.run([os.environ["PIPER_PROGRAM"], "search", MODEL, "--cluster", "h100", "--devices", "8", "--fix", "mesh(tp=1)",
                          "--budget", str(FOREVER), "--format", "json"], capture_output=True, text=True, check=True)
    assert found.numbers["best"] == json.loads(run.stdout)["best"]
    assert found.seconds == found.numbers["best"]["seconds"]
    plan = piper.compile(piper.load_model(MODEL), found.best, "h100")
    plan.check()
    assert plan.simulate().seconds == pytest.approx(found.seconds)


@pytest.mark.thorough
def test_search_for_what_does_not_fit():
    found = piper.search(piper.load_model(MODEL), "h100", 1, memory="1GB", fix=["mesh(tp=1)"], budget=FOREVER)
    assert found.best is None and found.seconds == float("inf")
    assert "nothing fits" in str(found)


def test_search_refuses():
    with pytest.raises(piper.Error, match="does not choose"):
        piper.search(piper.load_model(MODEL), "h100", 8, fix=["devices(8)"])
    with pytest.raises(piper.Error, match="no size"):
        piper.search(piper.load_model(MODEL), "h100", 8, memory="much")


@pytest.mark.thorough
def test_tensor_parallel_forms_of_an_analytic_model():
    fix = ["mesh(tp=2, pp=1)", "split(batch, parts=2)"]
    found = piper.search(piper.load_model(MODEL), "h100", 4, fix=fix, budget=FOREVER)
    options = [word for directive in fix for word in ("--fix", directive)]
    run = subprocess.run([os.environ["PIPER_PROGRAM"], "search", MODEL, "--cluster", "h100", "--devices", "4", *options, "--budget", str(FOREVER),
                          "--format", "json"], capture_output=True, text=True, check=True)
    assert found.numbers["best"] == json.loads(run.stdout)["best"]
    assert "tp=2" in str(found.best)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down_proj(F.gelu(self.up_proj(x)))


class Stack(nn.Module):
    def __init__(self, dim=256, layers=4):
        super().__init__()
        self.embedding, self.head = nn.Embedding(64, dim), nn.Linear(dim, 64)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            with piper.annotate("layer"):
                x = layer(x)
        return self.head(x)


def captured():
    tokens = torch.zeros(16, 32, dtype=torch.long)
    return piper.capture(Stack(), (tokens, tokens), loss=lambda model, batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()))


@pytest.mark.thorough
def test_a_captured_model_is_divided():
    graph = captured()
    found = piper.search(graph, "h100", 4, fix=["mesh(tp=2)"], budget=FOREVER)
    assert "tp=2" in str(found.best)
    plan = piper.compile(graph, found.best, "h100")
    plan.check()
    assert plan.simulate().seconds == pytest.approx(found.seconds)
    free = piper.search(graph, "h100", 4, budget=FOREVER)
    assert free.seconds <= found.seconds


@pytest.mark.thorough
def test_measured_costs(tmp_path):
    """Of a captured model, by `piper profile`: what was not measured is not a candidate, and what is found takes what the costs say."""
    config = os.path.join(HERE, "../../examples/train_moe.toml")
    subprocess.run([os.environ["PIPER_PROGRAM"], "profile", config, "--steps", "1", "-o", tmp_path], check=True, capture_output=True)
    graph = piper.load_model(str(tmp_path / "model.piper"))
    costs = tmp_path / "costs.txt"
    measured = piper.search(graph, tmp_path / "cluster.toml", 4, costs=costs, fix=["mesh(tp=1)"], budget=FOREVER)
    assert measured.best is not None
    plan = piper.compile(graph, measured.best, tmp_path / "cluster.toml", costs=costs)
    assert plan.simulate().seconds == pytest.approx(measured.seconds)
    with pytest.raises(piper.Error, match="cost"):
        piper.search(graph, tmp_path / "cluster.toml", 4, costs=tmp_path / "model.piper")


def test_progress_and_ctrl_c():
    seen = []

    def stop_at_the_first(seconds, simulated, waiting, best):
        seen.append((simulated, best))
        if best is not None:
            signal.raise_signal(signal.SIGINT)

    found = piper.search(piper.load_model("analytic:Llama-3-8B", batch=256), "h100", 64, budget=FOREVER, progress=stop_at_the_first)
    assert found.numbers["end"] == "stopped" and found.best is not None
    assert seen[-1][1] == pytest.approx(found.seconds)

    def fail(*_):
        raise ValueError("of the caller's own")

    with pytest.raises(ValueError, match="own"):
        piper.search(piper.load_model(MODEL), "h100", 8, progress=fail)
