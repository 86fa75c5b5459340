"""Moments in bfloat16, rounded at random: the same bits under every plan, and right in the mean."""
import pytest
import torch

import piper
import plain
import small
import test_muon
import test_updates as updates

SCHEDULES = test_muon.SCHEDULES
ONE = "devices(1)\nplace({}, devices=[0])\nsplit(batch, parts=4, as=mb)\n"
OPTIMIZERS = {
    "adamw": piper.AdamW(lr=1e-2, weight_decay=0.1, moments="bfloat16"),
    "momentum": piper.SGD(lr=1e-1, momentum=0.9, moments=torch.bfloat16),
    "lion": piper.Lion(lr=1e-3, moments="bfloat16"),
}


def train(schedule, optimizer, **options):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, schedule, optimizer=optimizer, seed=7, **options) as trainer:
        losses = [trainer.step(batch).loss for batch in updates.BATCHES]
        return losses, trainer.state_dict(), trainer.optimizer_state_dict()["state"]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_plan_gives_the_same_moments(schedule, kind):
    """Gradients differ by the order of their sums, in float64: too little to decide where a moment goes."""
    if kind != "adamw" and schedule not in ("1f1b, zero 2", "tp 2, zero 2"):
        pytest.skip("one optimizer goes through all")
    *expected, moments = train(ONE, OPTIMIZERS[kind])
    *got, state = train(SCHEDULES[schedule][0], OPTIMIZERS[kind])
    plain.assert_equal(got, expected, 1e-11)
    for name, entries in moments.items():
        for entry, value in entries.items():
            assert value.dtype == torch.bfloat16 and torch.equal(state[name][entry], value), (name, entry)


def test_they_are_near_those_of_float64():
    *_, moments = train(SCHEDULES["zero 3"][0], OPTIMIZERS["adamw"])
    *_, exact = train(SCHEDULES["zero 3"][0], piper.AdamW(lr=1e-2, weight_decay=0.1))
    for name in exact:
        for entry, value in exact[name].items():
            error, largest = moments[name][entry].double() - value, value.abs().max()
            assert error.abs().max() < 0.03 * largest and error.abs().max() > 0, (name, entry)
            assert value.numel() < 64 or error.mean().abs() < 1e-3 * largest, (name, entry)


def test_the_seed_decides():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    seen = []
    for seed in (7, 7, 8):
        with piper.Trainer(graph, SCHEDULES["zero 3"][0], optimizer=OPTIMIZERS["adamw"], seed=seed) as trainer:
            trainer.step(updates.BATCHES[0])
            seen.append(trainer.optimizer_state_dict()["state"]["head.weight"]["exp_avg"])
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


def test_they_take_a_quarter_of_float64():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    state = lambda **options: piper.compile(graph, ONE, optimizer=piper.AdamW(**options)).memory().rows[0]["optimizer"]
    assert 4 * state(moments="bfloat16") == state()


@pytest.mark.parametrize("to", ["tp 2", "dualpipev"])
def test_a_run_goes_on_under_another_plan(to, tmp_path):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    optimizer = OPTIMIZERS["adamw"]
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"][0], optimizer=optimizer, seed=7) as trainer:
        trainer.step(updates.BATCHES[0])
        trainer.save(tmp_path, wait=True)
    *_, expected = train(ONE, optimizer)
    with piper.Trainer(graph, SCHEDULES[to][0], optimizer=optimizer, seed=7) as trainer:
        trainer.resume(tmp_path)
        for batch in updates.BATCHES[1:]:
            trainer.step(batch)
        state = trainer.optimizer_state_dict()["state"]
    assert all(torch.equal(state[name][entry], value) for name, entries in expected.items() for entry, value in entries.items())


@pytest.mark.parametrize("optimizer", [piper.AdamW(moments="float32"), piper.SGD(moments="bfloat16")], ids=str)
def test_refuses(optimizer):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Trainer(graph, optimizer=optimizer)
    assert caught.value.code == "E105" and caught.value.help


def test_another_optimizer_must_fit_the_plan():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, ONE, optimizer=OPTIMIZERS["adamw"]) as trainer:
        trainer.optimizer = piper.AdamW(lr=1e-4, moments="bfloat16")
        with pytest.raises(piper.ScheduleError, match="moments of the optimizer are as usual, the plan is for bfloat16"):
            trainer.optimizer = piper.AdamW(lr=1e-4)
