"""Which precision a model is trained in if nothing is said."""
import pytest
import torch

import piper
import small


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
