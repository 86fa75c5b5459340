"""Losses that are means over counted tokens: those of the whole batch in plain PyTorch, however a schedule cuts it."""
import pytest
import torch
import torch.nn.functional as F

import piper
import plain
import small

pp = piper.schedules
SCHEDULES = {
    "one device in turn": piper.Schedule().devices(1).split(4).place({}, devices=[0]),
    "recompute": piper.Schedule().devices(1).split(2).place({}, devices=[0]).recompute({"layer": "*"}),
    "zero 3": piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=3),
    "1f1b, zero 2": pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2),
    "dualpipev": pp.dualpipev(ranks=2, microbatches=4),
    "tp 2": piper.Schedule().mesh(tp=2).split(4).place({}, mesh={}).shard(
        {}, along="tp", parameters="*.down.weight: 1"),
}


def each(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten(), reduction="none")


def kept(batch):
    return (batch["targets"].flatten() >= 0).double()


def masked(model, batch):
    return (each(model, batch) * kept(batch)).sum() / kept(batch).sum()


def masked_at_least_one(model, batch):
    return (each(model, batch) * kept(batch)).sum() / (batch["targets"] >= 0).sum().clamp_(min=1)


def reciprocal(model, batch):
    return (each(model, batch) * kept(batch)).sum() * kept(batch).sum().reciprocal()


def divided_first(model, batch):
    return (each(model, batch) * (kept(batch) / kept(batch).sum())).sum()


def mean_of_mask(model, batch):
    return (each(model, batch) * kept(batch)).mean() / (kept(batch).mean() + 1e-8)


def ignoring(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].clamp(min=0).flatten(), ignore_index=0)


def weighted(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten(), weight=torch.arange(1.0, 13.0).double())


def smoothed(model, batch):
    return F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten(), label_smoothing=0.1)


def in_two_dimensions(model, batch):
    return F.cross_entropy(model(batch["tokens"]).transpose(1, 2).unsqueeze(2), batch["targets"].unsqueeze(1))


def of_two_counts(model, batch):
    """Both with counts of their own, and something that is a mean over all."""
    logits = model(batch["tokens"])
    first = (batch["tokens"] > 4).double().flatten()
    z = (logits.logsumexp(-1).flatten() ** 2 * first).sum() / first.sum()
    return small.loss(model, batch) + 1e-2 * z + 1e-3 * logits.pow(2).mean()


LOSSES = (small.loss, masked, masked_at_least_one, reciprocal, divided_first, mean_of_mask, ignoring, weighted, smoothed, in_two_dimensions,
          of_two_counts)


def batches(count=2):
    """Samples with different numbers of labels, and some with none."""
    out = []
    for seed in range(count):
        batch = small.batch(seed=seed)
        generator = torch.Generator().manual_seed(seed)
        batch["targets"][torch.rand(batch["targets"].shape, generator=generator) < 0.4] = -100
        batch["targets"][0:2] = -100  # a whole slice
        batch["targets"][5, 1:] = -100
        out.append(batch)
    return out


def captured(loss, **options):
    torch.manual_seed(0)
    model = small.Stack(4, vocabulary=12).double()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=loss, **options)


def check(graph, schedule, loss):
    theirs = plain.train(graph.module, batches(), 1, loss)
    plain.assert_equal(plain.train_piper(graph, schedule, batches()), theirs, 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_is_that_of_the_batch(loss):
    check(captured(loss), SCHEDULES["1f1b, zero 2"], loss)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_under_every_schedule(schedule):
    check(captured(of_two_counts), SCHEDULES[schedule], of_two_counts)


def test_with_the_vocabulary_sharded():
    schedule = piper.Schedule().mesh(tp=2).split(4).place({}, mesh={}).shard({}, along="tp", parameters="head.weight: 0")
    check(captured(small.loss), schedule, small.loss)


@pytest.mark.parametrize("schedule", ["1f1b, zero 2", "dualpipev", "tp 2"])
def test_declared(schedule):
    """By a function of the batch, which counts where the loss does not show it."""
    def hidden(model, batch):
        loss = (each(model, batch) * kept(batch)).sum() / kept(batch).sum().square().sqrt()
        return torch.where(kept(batch).sum() > 0, loss, 0.0)

    with pytest.warns(piper.CaptureWarning, match="loss_weight="):
        captured(hidden)
    graph = captured(hidden, loss_weight=lambda batch: (batch["targets"] >= 0).sum())
    batch = batches(1)[0]
    batch["targets"][0] = 1  # no slice without labels: its own loss has no gradient
    batch["targets"][2:4, 0] = 2
    theirs = plain.train(graph.module, [batch], 1, hidden)
    plain.assert_equal(plain.train_piper(graph, SCHEDULES[schedule], [batch]), theirs, 1e-12)


def test_shares_of_microbatches():
    """Their mean is the loss; one without labels has none."""
    graph, batch = captured(small.loss), batches(1)[0]
    with piper.Trainer(graph, SCHEDULES["one device in turn"]) as trainer:
        result = trainer.step(batch)
    assert result.microbatches[0] == 0.0 and all(share > 0 for share in result.microbatches[1:])
    assert result.loss == pytest.approx(sum(result.microbatches) / 4, rel=1e-14)
    assert result.loss == pytest.approx(small.loss(graph.module, batch).item(), rel=1e-12)


def test_diff_compares_with_the_whole_batch():
    graph = captured(of_two_counts)
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"]) as trainer:
        found = trainer.diff(graph.module, batches(1)[0])
        assert found.equal, found


def test_nothing_is_counted_where_a_loss_is_a_plain_mean():
    graph = captured(lambda model, batch: (model(batch["tokens"]).mean(-1) - batch["targets"]).pow(2).mean())
    assert "loss.count" not in graph.text()
    assert "loss.count.0" in captured(small.loss).text()
