"""Numbers that a model says about every step, against plain PyTorch on the whole batch."""
import pytest
import torch
import torch.nn.functional as F

import piper
import small
from test_counted_losses import SCHEDULES, batches


def kept(batch):
    return (batch["targets"] >= 0).double()


def loss(model, batch):
    """Two named losses of different weights, and an accuracy over counted tokens."""
    logits = model(batch["tokens"])
    ce = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    z = logits.logsumexp(-1).pow(2).mean()
    right = (logits.argmax(-1) == batch["targets"]).double() * kept(batch)
    piper.metric("accuracy", right.sum() / kept(batch).sum())
    return {"loss": ce + 1e-2 * z, "ce": ce, "z": z, "logits": logits}


def captured(of=loss, model=None):
    torch.manual_seed(0)
    model = small.Stack(4, vocabulary=12).double() if model is None else model
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=of)


def expected(model, batch):
    out = loss(model, batch)
    right = (out["logits"].argmax(-1) == batch["targets"]).double() * kept(batch)
    return {"ce": out["ce"].item(), "z": out["z"].item(), "accuracy": (right.sum() / kept(batch).sum()).item()}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_are_means_over_the_batch(schedule):
    graph, batch = captured(), batches(1)[0]
    with piper.Trainer(graph, SCHEDULES[schedule]) as trainer:
        result = trainer.step(batch)
    theirs = expected(graph.module, batch)
    assert result.metrics.keys() == theirs.keys()
    assert result.metrics == pytest.approx(theirs, rel=1e-12)
    assert result.loss == pytest.approx(theirs["ce"] + 1e-2 * theirs["z"], rel=1e-12)


def test_do_not_change_the_training():
    def silent(model, batch):
        return loss(model, batch)["loss"]

    weights = []
    for of in (loss, silent):
        with piper.Trainer(captured(of), SCHEDULES["1f1b, zero 2"]) as trainer:
            for batch in batches(2):
                trainer.step(batch)
            weights.append(trainer.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_a_model_that_says_nothing_has_none():
    with piper.Trainer(captured(small.loss)) as trainer:
        assert trainer.step(small.batch()).metrics == {}


class Telling(small.Stack):
    def forward(self, tokens):
        out = super().forward(tokens)
        piper.metric("largest", out.detach().abs().amax(dim=(1, 2)).mean())
        return out


def test_said_in_forward():
    model = Telling(4).double()
    graph = captured(small.loss, model)
    with piper.Trainer(graph, SCHEDULES["dualpipev"]) as trainer:
        result = trainer.step(small.batch())
    largest = small.Stack.forward(model, small.batch()["tokens"]).abs().amax(dim=(1, 2)).mean().item()
    assert result.metrics == pytest.approx({"largest": largest}, rel=1e-12)
    model(small.batch()["tokens"])  # outside of capture nothing happens


def test_diff_looks_at_them_too():
    graph = captured()
    with piper.Trainer(graph, SCHEDULES["1f1b, zero 2"]) as trainer:
        found = trainer.diff(graph.module, small.batch())
        assert found.equal, found


def test_balance_loss_of_transformers():
    """`output_router_logits`: the loss of the tokens is that of the batch, the balance of the experts that of each slice."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32, output_router_logits=True, router_aux_loss_coef=0.02))
    model.set_experts_implementation("batched_mm")
    ids = torch.randint(0, 64, (4, 8))
    labels = ids.clone()
    labels[0, :5] = -100
    graph = piper.capture(model, {"input_ids": ids, "labels": labels})
    with piper.Trainer(graph, piper.Schedule().devices(1).split(2).place({}, devices=[0])) as trainer:
        result = trainer.step({"input_ids": ids, "labels": labels})
    with torch.no_grad():
        whole = model(input_ids=ids, labels=labels)
        balance = sum(model(input_ids=part, labels=part).aux_loss.item() for part in ids.chunk(2)) / 2
    assert result.metrics == pytest.approx({"aux_loss": balance}, rel=1e-5)
    assert result.loss == pytest.approx(whole.loss.item() - 0.02 * whole.aux_loss.item() + 0.02 * balance, rel=1e-5)


@pytest.mark.parametrize("name, value, message", [("x", torch.zeros(3), "not one number"), ("x", 1.0, "not one number"), (3, torch.zeros(()), "name"),
                                                  ("twice", torch.zeros(()), "said twice")])
def test_refuses(name, value, message):
    def saying(model, batch):
        piper.metric("twice", torch.zeros(()))
        piper.metric(name, value)
        return small.loss(model, batch)

    with pytest.raises(piper.CaptureError, match=message) as caught:
        captured(saying)
    assert caught.value.code == "E605"
