"""Which precision a model is trained in if nothing is said."""
import pytest
import torch

import piper
import plain
import small
from test_updates import SCHEDULES


def graph_of(dtype):
    torch.manual_seed(0)
    return piper.capture(small.Stack().to(dtype), small.batch(), loss=small.loss)


def test_bfloat16_is_mixed_precision():
    with piper.Trainer(graph_of(torch.bfloat16), optimizer=piper.AdamW(lr=1e-2)) as trainer:
        trainer.step(small.batch())
        entries = trainer.optimizer_state_dict()["state"]["head.weight"]
        assert {name: value.dtype for name, value in entries.items()} == dict.fromkeys(("exp_avg", "exp_avg_sq", "master"), torch.float32)
        weight = trainer.state_dict()["head.weight"]
        assert weight.dtype == torch.bfloat16 and torch.equal(weight, entries["master"].bfloat16())


def mixed(model, batches, slices, rate):
    """In plain PyTorch: forward and backward in bfloat16; gradients summed up, and weights updated, in float32."""
    kept = {name: value.detach().float() for name, value in model.named_parameters()}
    momentum, losses = {name: torch.zeros_like(value) for name, value in kept.items()}, []
    for batch in batches:
        total, sums = 0.0, {name: torch.zeros_like(value) for name, value in kept.items()}
        for part in plain.slices_of(batch, slices):
            model.zero_grad()
            loss = small.loss(model, part)
            loss.backward()
            total += loss.item() / slices
            for name, value in model.named_parameters():
                sums[name] += value.grad.float() / slices
        losses.append(total)
        for name, value in model.named_parameters():
            momentum[name] = 0.9 * momentum[name] + sums[name]
            kept[name] -= rate * momentum[name]
            value.data.copy_(kept[name])
    return losses, kept


@pytest.mark.parametrize("schedule", ["in turn", "1f1b, zero 2", "dualpipev", "tp 2"])
def test_mixed_precision_equals_pytorch(schedule):
    """Where operators are divided, up to the rounding of partial sums to bfloat16; plain float32 differs as much."""
    written, slices = {"in turn": (piper.Schedule().devices(1).split(4).place({}, devices=[0]), 4), **SCHEDULES}[schedule]
    torch.manual_seed(0)
    model = small.Stack(4).to(torch.bfloat16)
    piper.annotate_modules(model, {"layer": "layers.*"})
    before = {name: value.detach().float() for name, value in model.named_parameters()}
    batches = [small.batch(seed=seed) for seed in range(4)]
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, written, optimizer=piper.SGD(lr=0.05, momentum=0.9)) as trainer:
        losses = [trainer.step(batch).loss for batch in batches]
        state, weights = trainer.optimizer_state_dict()["state"], trainer.state_dict()
    expected, kept = mixed(model, batches, slices, 0.05)
    assert losses == pytest.approx(expected, rel=5e-3 if schedule == "tp 2" else 1e-6)
    for name, value in kept.items():
        assert torch.equal(weights[name], state[name]["master"].bfloat16()), name
        wrong = (state[name]["master"] - value).norm() / (value - before[name]).norm()
        assert wrong < (3e-2 if schedule == "tp 2" else 1e-5), (name, wrong)


def test_pure_bfloat16_is_asked_for():
    with piper.Trainer(graph_of(torch.bfloat16), optimizer=piper.AdamW(lr=1e-2, master="bfloat16")) as trainer:
        trainer.step(small.batch())
        entries = trainer.optimizer_state_dict()["state"]["head.weight"]
        assert {name: value.dtype for name, value in entries.items()} == dict.fromkeys(("exp_avg", "exp_avg_sq"), torch.bfloat16)


def test_a_small_step_is_not_lost():
    """In pure bfloat16 a weight near 1 does not move by 1e-3; with a master copy it does in the end."""
    moved = {}
    for master in (None, "bfloat16"):
        with piper.Trainer(graph_of(torch.bfloat16), optimizer=piper.SGD(lr=1e-3, master=master)) as trainer:
            before = trainer.state_dict()["layers.0.norm.weight"]
            for _ in range(40):
                trainer.step(small.batch())
            moved[master] = (trainer.state_dict()["layers.0.norm.weight"] - before).abs().max().item()
    assert moved["bfloat16"] == 0


def test_the_memory_of_a_plan_counts_the_copies():
    rows = lambda **given: piper.compile(graph_of(torch.bfloat16), "devices(1)\nplace({}, devices=[0])\n", **given).memory().rows[0]
    count = sum(value.numel() for value in small.Stack().parameters())
    for given in ({}, {"optimizer": piper.AdamW()}):
        row = rows(**given)
        assert (row["weights"], row["gradients"], row["optimizer"]) == (2 * count, 4 * count, 12 * count)
    row = rows(optimizer=piper.AdamW(master="bfloat16"))
    assert (row["weights"], row["gradients"], row["optimizer"]) == (2 * count, 2 * count, 4 * count)


def test_float16_is_refused_with_the_reason():
    with pytest.raises(piper.Error, match="float16") as caught:
        with piper.Trainer(graph_of(torch.float16)):
            pass
    assert "loss scaler" in str(caught.value) and "bfloat16" in str(caught.value)
