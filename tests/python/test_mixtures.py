"""Mixtures of experts of transformers with labels that are left out: the loss of the tokens is that of the whole batch, the balance of the
experts that of each slice, under every kind of schedule."""
import copy

import pytest
import torch

import piper

pytest.importorskip("transformers")
import language_models  # noqa: E402
import plain  # noqa: E402
import schedules  # noqa: E402
import test_transformers  # noqa: E402

pp = piper.schedules
EXPERTS = schedules.experts()
SCHEDULES = {
    "1f1b, zero 2": (pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2), 4),
    "dualpipev": (pp.dualpipev(ranks=2, microbatches=4), 4),
    "tp 2": (piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp"), 2),
    "experts, zero 3": EXPERTS["experts, zero 3"],
    "1f1b, experts, zero 1": EXPERTS["1f1b, experts, zero 1"],
    "ep 2, tp 2": (piper.Schedule().mesh(ep=2, tp=2).split(2).place({}, mesh={}).replicate({}, along="ep", zero=1)
                   .shard({"experts": "*"}, along="ep").shard({"layer": "*"}, along="tp"), 4),
}
WITHIN = 1e-10  # norms of transformers are in float32, so that less is said of the last digits


def batches(count=2):
    """Samples with different numbers of labels, and some with none."""
    out = []
    for seed, batch in enumerate(language_models.batches(count)):
        labels = batch["labels"].clone()
        generator = torch.Generator().manual_seed(seed)
        labels[torch.rand(labels.shape, generator=generator) < 0.4] = -100
        labels[0:2] = -100
        labels[5, 2:] = -100
        out.append({"input_ids": batch["input_ids"], "labels": labels})
    return out


def next_words(scores, batch, reduction="mean"):
    """In the type of the model: transformers' own is computed in float32."""
    return torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction=reduction)


def tokens(model, batch):
    return next_words(model(input_ids=batch["input_ids"], use_cache=False).logits, batch)


def balanced(model, batch):
    out = model(input_ids=batch["input_ids"], use_cache=False, output_router_logits=True)
    return {"loss": next_words(out.logits, batch) + 0.02 * out.aux_loss, "aux_loss": out.aux_loss}


def plainly(model, batch, slices, balance):
    """The loss of a batch and the balance of its experts, with their gradients."""
    counted = (batch["labels"][:, 1:] != -100).sum()
    losses, balances = 0.0, 0.0
    for part in plain.slices_of(batch, slices):
        out = model(input_ids=part["input_ids"], use_cache=False, output_router_logits=balance)
        value = next_words(out.logits, part, "sum") / counted
        if balance:
            value = value + 0.02 * out.aux_loss / slices
            balances += out.aux_loss.item() / slices
        value.backward()
        losses += value.item()
    return losses, balances


@pytest.mark.parametrize("balance", [pytest.param(False, marks=pytest.mark.long), True], ids=["tokens", "balance"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equals_plain_pytorch(schedule, balance):
    written, slices = SCHEDULES[schedule]
    model = test_transformers.build("mixtral", torch.float64)
    theirs = copy.deepcopy(model)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5, momentum=0.9)
    expected = []
    for batch in batches():
        optimizer.zero_grad()
        expected.append(plainly(theirs, batch, slices, balance))
        optimizer.step()
    graph = language_models.capture(model, batches(1)[0], loss=balanced if balance else tokens)
    with piper.Trainer(graph, written, optimizer=piper.SGD(lr=0.5, momentum=0.9)) as trainer:
        results = [trainer.step(batch) for batch in batches()]
        plain.assert_equal(([result.loss for result in results], trainer.state_dict()),
                           ([loss for loss, _ in expected], theirs.state_dict()), WITHIN)
    for result, (_, of_experts) in zip(results, expected, strict=True):
        assert result.metrics == (pytest.approx({"aux_loss": of_experts}, rel=WITHIN) if balance else {})
