"""An exponential moving average of the weights, against plain PyTorch."""
import pytest
import torch

import piper
import plain
import small
import test_updates as updates

DECAY = 0.9
KINDS = {
    "adamw": (piper.AdamW(lr=1e-2, weight_decay=0.1, ema=DECAY), lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)),
    "sgd": (piper.SGD(lr=0.5, ema=DECAY), lambda model: torch.optim.SGD(model.parameters(), lr=0.5)),
}


def plain_means(model, optimizer, slices):
    means = {name: value.detach().clone() for name, value in model.named_parameters()}
    for batch in updates.BATCHES:
        optimizer.zero_grad()
        for part in plain.slices_of(batch, slices):
            (small.loss(model, part) / slices).backward()
        optimizer.step()
        for name, value in model.named_parameters():
            means[name].lerp_(value.detach(), 1 - DECAY)
    return means


@pytest.mark.parametrize("schedule", updates.SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_pytorch(kind, schedule):
    ours, theirs = KINDS[kind]
    written, slices = updates.SCHEDULES[schedule]
    model = updates.stack()
    expected = plain_means(model, theirs(model), slices)
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, written, optimizer=ours) as trainer:
        for batch in updates.BATCHES:
            trainer.step(batch)
        plain.assert_equal(([], trainer.ema_state_dict()), ([], expected), 1e-12)


def test_muon_keeps_one_too():
    """Of matrices and of what AdamW updates: with a decay of 0 it is the weights."""
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, updates.SCHEDULES["1f1b, zero 2"][0], optimizer=piper.Muon(lr=1e-2, ema=0.0)) as trainer:
        trainer.step(updates.BATCHES[0])
        plain.assert_equal(([], trainer.ema_state_dict()), ([], trainer.state_dict()), 1e-15)
        trainer.optimizer.ema = DECAY  # may change between steps
        before = trainer.state_dict()
        trainer.step(updates.BATCHES[1])
        expected = {name: value.lerp(trainer.state_dict()[name], 1 - DECAY) for name, value in before.items()}
        plain.assert_equal(([], trainer.ema_state_dict()), ([], expected), 1e-15)


def test_is_saved_and_goes_on_under_another_plan(tmp_path):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    ours = KINDS["adamw"][0]
    with piper.Trainer(graph, updates.SCHEDULES["1f1b, zero 2"][0], optimizer=ours) as trainer:
        trainer.step(updates.BATCHES[0])
        trainer.save(tmp_path, wait=True)
        trainer.step(updates.BATCHES[1])
        expected = trainer.ema_state_dict()
    with piper.Trainer(graph, updates.SCHEDULES["tp 2"][0], optimizer=ours) as trainer:
        trainer.resume(tmp_path)
        trainer.step(updates.BATCHES[1])
        plain.assert_equal(([], trainer.ema_state_dict()), ([], expected), 1e-12)


def test_costs_one_number_for_each_parameter():
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    one = "devices(1)\nplace({}, devices=[0])\n"
    with_it, without = (piper.compile(graph, one, optimizer=piper.AdamW(ema=ema)).memory().rows[0]["optimizer"] for ema in (0.5, None))
    assert with_it - without == 8 * sum(value.numel() for value in updates.stack().parameters())


def test_refuses():
    for wrong in (1.0, -0.1, "0.9", True):
        with pytest.raises(piper.ScheduleError) as caught:
            piper.AdamW(ema=wrong)
        assert caught.value.code == "E105"
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph) as trainer:
        with pytest.raises(piper.ScheduleError, match="no exponential moving average"):
            trainer.ema_state_dict()
        trainer.optimizer.ema = 0.9
        with pytest.raises(piper.ScheduleError, match="the plan is for adamw, the optimizer is adamw with an exponential moving average"):
            trainer.step(small.batch())
