"""After a step that failed: what can still be read, saved and evaluated, and that it is what was there before."""
import pytest
import torch

import piper
import small

pp = piper.schedules
SCHEDULES = {
    "one device": None,
    "1f1b, zero 2": pp.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2),
    "zero 3": piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=3),
    "dualpipev": pp.dualpipev(ranks=2, microbatches=4),
    "tp 2": piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp", parameters="*.down.weight: 1"),
}


def captured():
    torch.manual_seed(0)
    model = small.Stack(4).double()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=small.loss)


def wrong():
    """An operator fails: there is no such row of the embedding."""
    batch = small.batch()
    batch["tokens"][0, 0] = 1000
    return batch


def same(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_operator_that_fails(schedule, tmp_path):
    graph = captured()
    with piper.Trainer(graph, SCHEDULES[schedule]) as trainer:
        trainer.step(small.batch())
        weights, kept = trainer.state_dict(), trainer.optimizer_state_dict()
        with pytest.raises(piper.RunError) as caught:
            trainer.step(wrong())
        assert caught.value.code == "E801"
        same(trainer.state_dict(), weights)
        for name, entries in trainer.optimizer_state_dict()["state"].items():
            same(entries, kept["state"][name])
        found = trainer.evaluate([small.batch(seed=3)])
        assert trainer.steps == 1
        saved = trainer.save(tmp_path, wait=True)
        with pytest.raises(piper.RunError, match="is over"):
            trainer.step(small.batch())
    with piper.Trainer(graph, SCHEDULES[schedule]) as other:
        assert other.resume(tmp_path).folder == saved
        same(other.state_dict(), weights)
        assert other.evaluate([small.batch(seed=3)]) [:2] == found[:2]


def test_an_evaluation_that_fails():
    with piper.Trainer(captured(), SCHEDULES["1f1b, zero 2"]) as trainer:
        trainer.step(small.batch())
        weights = trainer.state_dict()
        with pytest.raises(piper.RunError) as caught:
            trainer.evaluate([wrong()])
        assert caught.value.code == "E801"
        same(trainer.state_dict(), weights)
        assert trainer.evaluate([small.batch()]).loss == trainer.step(small.batch()).loss  # the trainer goes on


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_that_is_not_finite(schedule):
    """It has changed nothing, so that the trainer can even go on."""
    graph = captured()
    with piper.Trainer(graph, SCHEDULES[schedule]) as trainer, piper.Trainer(graph, SCHEDULES[schedule]) as other:
        broken = {name: value.clone() for name, value in graph.module.state_dict().items()}
        broken["head.bias"][0] = float("nan")
        trainer.load_state_dict(broken)
        with pytest.raises(piper.RunError) as caught:
            trainer.step(small.batch())
        assert caught.value.code == "E803" and "step 0 is not finite" in caught.value.message
        ours = trainer.state_dict()
        assert all(torch.equal(ours[name].nan_to_num(), value.nan_to_num()) for name, value in broken.items())
        assert trainer.steps == 0 and torch.tensor(trainer.evaluate([small.batch()]).loss).isnan()
        trainer.load_state_dict(graph.module.state_dict())
        for seed in range(2):
            assert trainer.step(small.batch(seed=seed))[:3] == other.step(small.batch(seed=seed))[:3]
        same(trainer.state_dict(), other.state_dict())
