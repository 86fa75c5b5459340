"""Several steps that make one update equal one step with a batch as large, in plain PyTorch."""
import copy
import math

import pytest
import torch

import piper
import plain
import small
import test_counted_losses as counted
import test_updates as updates

BATCHES = [small.batch(seed=seed) for seed in range(6)]
SCHEDULES = {
    **updates.SCHEDULES,
    "one device": ("devices(1)\nplace({}, devices=[0])\n", 1),
    "zero 0": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp"), 4),
    "zero 1": (piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=1), 4),
    "dualpipe": (piper.schedules.dualpipe(ranks=2, microbatches=4), 4),
    "tp 2, zero 2": (piper.Schedule().mesh(dp=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=2)
                     .shard({"layer": "*"}, along="tp", parameters="*.down.weight: 1"), 4),
}


def train_plain(slices, together, clip=None):
    model = updates.stack()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    losses, norms = [], []
    for first in range(0, len(BATCHES), together):
        optimizer.zero_grad()
        for batch in BATCHES[first:first + together]:
            total = 0.0
            for part in plain.slices_of(batch, slices):
                value = small.loss(model, part) / slices
                (value / together).backward()
                total += value.item()
            losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf).item())
        optimizer.step()
    return losses, model.state_dict(), norms


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equals_a_larger_batch(schedule):
    written, slices = SCHEDULES[schedule]
    losses, weights, norms = train_plain(slices, 3, clip=0.1)
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, written, optimizer=piper.AdamW(lr=1e-2, weight_decay=0.1), accumulate=3, clip=0.1) as trainer:
        results = [trainer.step(batch) for batch in BATCHES]
        plain.assert_equal(([result.loss for result in results], trainer.state_dict()), (losses, weights), 1e-12)
        assert trainer.steps == 6 and trainer.optimizer_state_dict()["updates"] == 2
    assert [math.isnan(result.gradient_norm) for result in results] == [True, True, False] * 2
    assert [result.gradient_norm for result in results if not math.isnan(result.gradient_norm)] == pytest.approx(norms, rel=1e-12)


def with_ignored_labels(empty=4):
    """As many labels in every step as its number says, about; in one step none."""
    out = counted.batches(6)
    for step, batch in enumerate(out):
        generator = torch.Generator().manual_seed(step)
        batch["targets"][torch.rand(batch["targets"].shape, generator=generator) < 0.15 * step] = -100
    out[empty]["targets"][:] = -100
    return out


def larger(batches):
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def train_counted(schedule, loss, batches):
    """Losses of whole updates in PyTorch, norms and weights; the same of Piper, and the losses of its single steps."""
    graph = counted.captured(loss)
    model = copy.deepcopy(graph.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    norms = []
    for first in range(0, len(batches), 3):
        optimizer.zero_grad()
        loss(model, larger(batches[first:first + 3])).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf).item())
        optimizer.step()
    with piper.Trainer(graph, schedule, optimizer=piper.SGD(lr=0.1, momentum=0.9), accumulate=3) as trainer:
        results = [trainer.step(batch) for batch in batches]
        plain.assert_equal(([result.gradient_norm for result in results[2::3]], trainer.state_dict()), (norms, model.state_dict()), 1e-12)
    return graph, results


@pytest.mark.parametrize("schedule", counted.SCHEDULES)
def test_counted_tokens_are_those_of_all_steps(schedule):
    batches = with_ignored_labels()
    graph, results = train_counted(counted.SCHEDULES[schedule], small.loss, batches)
    assert results[4].loss == 0.0
    for first in range(3):  # before the first update; a step's loss is that of its own batch
        assert results[first].loss == pytest.approx(small.loss(graph.module, batches[first]).item(), rel=1e-12)


@pytest.mark.parametrize("loss", [loss for loss in counted.LOSSES if loss is not counted.of_two_counts], ids=lambda loss: loss.__name__)
def test_of_every_loss_that_counts(loss):
    train_counted(counted.SCHEDULES["1f1b, zero 2"], loss, with_ignored_labels())


def test_steps_that_count_alike_need_no_factor():
    """So a loss of several counts, or with a part that is not counted, is summed up as it is."""
    batch = counted.batches(1)[0]
    train_counted(counted.SCHEDULES["1f1b, zero 2"], counted.of_two_counts, [batch] * 3)


def test_metrics_may_count_otherwise():
    def loss(model, batch):
        first = (batch["tokens"] > 4).double()
        piper.metric("share", (model(batch["tokens"]).argmax(-1) * first).sum() / first.sum())
        return small.loss(model, batch)

    batches = with_ignored_labels()
    graph, results = train_counted(counted.SCHEDULES["1f1b, zero 2"], loss, batches)
    first = (batches[0]["tokens"] > 4).double()
    theirs = (graph.module(batches[0]["tokens"]).argmax(-1) * first).sum() / first.sum()
    assert results[0].metrics == pytest.approx({"share": theirs.item()}, rel=1e-12)


def with_a_part_that_is_not_counted(model, batch):
    return small.loss(model, batch) + 1e-3 * model(batch["tokens"]).pow(2).mean()


@pytest.mark.parametrize("loss, reason", [(counted.of_two_counts, "the loss divides by several counts"),
                                          (with_a_part_that_is_not_counted, "a part of the loss is not divided by what is counted")])
def test_refuses_what_no_factor_makes_right(loss, reason):
    first, second = counted.batches(2)
    with piper.Trainer(counted.captured(loss), accumulate=2) as trainer:
        trainer.step(first)
        with pytest.raises(piper.ScheduleError, match=reason) as caught:
            trainer.step(second)
        assert caught.value.code == "E105" and trainer.steps == 1
        trainer.step(first)  # goes on with a batch that fits
        assert trainer.optimizer_state_dict()["updates"] == 1


def test_is_saved_after_updates_only(tmp_path):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, accumulate=2) as trainer:
        trainer.step(BATCHES[0])
        with pytest.raises(piper.CheckpointError, match="not the last of 2"):
            trainer.save(tmp_path)
        trainer.step(BATCHES[1])
        trainer.save(tmp_path, wait=True)
        expected = [trainer.step(batch).loss for batch in BATCHES[2:]], trainer.state_dict()
    with piper.Trainer(graph, accumulate=2) as trainer:
        trainer.resume(tmp_path)
        plain.assert_equal(([trainer.step(batch).loss for batch in BATCHES[2:]], trainer.state_dict()), expected, 1e-12)


def test_a_step_that_is_not_finite_takes_its_update_with_it():
    model = updates.stack()
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, accumulate=2, on_nan="skip") as trainer:
        broken = {**model.state_dict(), "head.bias": torch.full_like(model.head.bias, math.inf)}
        trainer.load_state_dict(broken)
        assert [trainer.step(batch).skipped for batch in BATCHES[:2]] == [False, True]
        trainer.load_state_dict(model.state_dict())
        assert [trainer.step(batch).skipped for batch in BATCHES[2:4]] == [False, False]


def test_after_a_step_that_is_not_finite_the_update_begins_anew():
    model = updates.stack()
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, accumulate=2) as trainer, piper.Trainer(graph, accumulate=2) as undisturbed:
        trainer.load_state_dict({**model.state_dict(), "head.bias": torch.full_like(model.head.bias, math.inf)})
        trainer.step(BATCHES[0])
        with pytest.raises(piper.RunError) as caught:
            trainer.step(BATCHES[1])
        assert caught.value.code == "E803" and trainer.steps == trainer.samples == 0
        trainer.load_state_dict(model.state_dict())
        for batch in BATCHES[:4]:
            assert trainer.step(batch).loss == undisturbed.step(batch).loss
        plain.assert_equal(([], trainer.state_dict()), ([], undisturbed.state_dict()), 1e-15)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2"])
def test_refuses(wrong):
    graph = piper.capture(updates.stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Trainer(graph, accumulate=wrong)
    assert caught.value.code == "E105"
