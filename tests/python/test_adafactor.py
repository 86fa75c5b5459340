"""Adafactor against torch.optim.Adafactor: parameters are seen whole, whatever divides them."""
import pytest
import torch

import piper
import plain
import small
import test_muon
import test_updates as updates

SCHEDULES = test_muon.SCHEDULES
OURS = dict(lr=3e-2, weight_decay=0.1)
OTHER = dict(beta2_decay=-0.5, eps=(1e-4, 0.3), d=1.5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [{}, OTHER], ids=["usual", "other"])
def test_equals_pytorch(options, schedule):
    written, slices = SCHEDULES[schedule]
    model = updates.stack()
    expected = updates.train_plain(model, torch.optim.Adafactor(model.parameters(), **OURS, **options), slices)
    plain.assert_equal(updates.train_piper(piper.Adafactor(**OURS, **options), written), expected, 1e-11)


def test_every_setting_counts():
    weights = lambda **options: updates.train_piper(piper.Adafactor(**OURS | options), SCHEDULES["1f1b, zero 2"][0])[1]["head.weight"]
    usual = weights()
    for name, value in (*OTHER.items(), ("lr", 1e-2), ("weight_decay", 0.0)):
        assert not torch.equal(weights(**{name: value}), usual), name


def test_groups():
    model = updates.stack()
    expected = updates.train_plain(model, torch.optim.Adafactor(updates.their_groups(model, **OURS), **OURS), 4)
    ours = updates.train_piper(piper.Adafactor(**OURS, groups=updates.GROUPS), SCHEDULES["1f1b, zero 2"][0])
    plain.assert_equal(ours, expected, 1e-11)


def test_memory():
    """A number for every row and column, none for elements; every device has them all."""
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    numbers = sum(sum(value.shape) for value in updates.stack().parameters())
    state = lambda schedule: [row["optimizer"] for row in piper.compile(graph, schedule, optimizer=piper.Adafactor()).memory().rows]
    assert state("devices(1)\nplace({}, devices=[0])\n") == [8 * numbers]
    assert set(state(SCHEDULES["zero 3"][0])) == {8 * numbers}


@pytest.mark.parametrize("to", ["zero 3", "tp 2", "dualpipev"])
def test_a_run_goes_on_under_another_plan(to, tmp_path):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"][0], optimizer=piper.Adafactor(**OURS)) as trainer:
        trainer.step(updates.BATCHES[0])
        trainer.save(tmp_path, wait=True)
        weights, state = trainer.state_dict(), trainer.optimizer_state_dict()
        expected = [trainer.step(batch).loss for batch in updates.BATCHES[1:]], trainer.state_dict()
    shape = weights["head.weight"].shape
    assert {name: value.shape for name, value in state["state"]["head.weight"].items()} == {
        "exp_avg_sq_row": shape[:1], "exp_avg_sq_col": shape[1:]}
    assert set(state["state"]["head.bias"]) == {"exp_avg_sq"}
    with piper.Trainer(graph, SCHEDULES[to][0], optimizer=piper.Adafactor(**OURS)) as trainer:
        assert trainer.resume(tmp_path).step == 1
        again = trainer.optimizer_state_dict()["state"]
        assert all(torch.equal(value, again[name][entry]) for name, entries in state["state"].items() for entry, value in entries.items())
        plain.assert_equal(([trainer.step(batch).loss for batch in updates.BATCHES[1:]], trainer.state_dict()), expected, 1e-11)
        trainer.load_state_dict(weights)
        trainer.load_optimizer_state_dict(state)
        plain.assert_equal(([trainer.step(batch).loss for batch in updates.BATCHES[1:]], trainer.state_dict()), expected, 1e-11)


def test_state_is_that_of_pytorch():
    model = updates.stack()
    theirs = torch.optim.Adafactor(model.parameters(), **OURS)
    updates.train_plain(model, theirs, 4)
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, SCHEDULES["tp 2, zero 2"][0], optimizer=piper.Adafactor(**OURS)) as trainer:
        for batch in updates.BATCHES:
            trainer.step(batch)
        state = trainer.optimizer_state_dict()["state"]
    for name, value in model.named_parameters():
        kept, own = theirs.state[value], state[name]
        pairs = [(own["exp_avg_sq"], kept["variance"])] if value.dim() < 2 else [
            (own["exp_avg_sq_row"], kept["row_var"].squeeze(-1)), (own["exp_avg_sq_col"], kept["col_var"].squeeze(-2))]
        for ours, expected in pairs:
            assert torch.allclose(ours, expected, rtol=1e-10, atol=0), name


@pytest.mark.parametrize("given", [dict(eps=1e-8), dict(eps=(None, None)), dict(eps=(0.0, 1e-3)), dict(eps=(None, -1.0)), dict(d=0.5),
                                   dict(beta2_decay=0.8), dict(lr="0.1"), dict(moments="bfloat16")], ids=str)
def test_refuses(given):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Adafactor(**given)
    assert caught.value.code in ("E104", "E105") and caught.value.help


def test_adafactor_of_pytorch_is_refused_with_ours_in_its_place():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError, match="Adafactor") as caught:
        piper.Trainer(graph, optimizer=torch.optim.Adafactor([torch.zeros(2, 2)], lr=0.5))
    assert "piper.Adafactor(lr=0.5" in caught.value.help[0]
