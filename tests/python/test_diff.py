"""trainer.diff: the next step against one device, and against PyTorch."""
import copy

import pytest
import torch

import piper
import small

PIPELINE = """mesh(pp=2, dp=2)
split(batch, parts=2, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=dp, zero=1)
use 1f1b(stages=stage, microbatches=mb)
"""


def stack(dtype=torch.float64):
    model = small.Stack(4).to(dtype)
    piper.annotate_modules(model, {"layer": "layers.*"})
    return model


def trainer_of(model, schedule=PIPELINE, **options):
    return piper.Trainer(model, schedule, example_batch=small.batch(), loss=small.loss, **options)


@pytest.mark.parametrize("optimizer", [piper.AdamW(lr=1e-2), piper.SGD(lr=1e-2), piper.SGD(lr=1e-2, momentum=0.9)], ids=repr)
@pytest.mark.parametrize("clip", [None, 0.1])
def test_equal_at_every_step(optimizer, clip):
    model = stack()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with trainer_of(model, optimizer=copy.copy(optimizer), clip=clip) as trainer:
        for seed in range(2):
            before = trainer.state_dict()
            found = trainer.diff(model, small.batch(seed=seed))
            assert found.equal, found
            assert not found.not_compared and not found.plan["not_compared"]
            # four layers in four slices, the loss, and 27 parameters before and after
            assert found.compared == 4 * 4 + 1 + 2 * 27
            assert "equal to one device" in str(found) and "equal to PyTorch" in str(found)
            assert trainer.steps == seed
            for name, value in trainer.state_dict().items():
                assert torch.equal(value, before[name]), name
            for name, value in model.state_dict().items():
                assert torch.equal(value, own[name]), name
            assert all(parameter.grad is None for parameter in model.parameters())
            trainer.step(small.batch(seed=seed))


def test_float32():
    model = stack(torch.float32)
    with trainer_of(model) as trainer:
        found = trainer.diff(model, small.batch())
        assert found.equal, found


def test_names_the_first_module_that_differs():
    model = stack()
    with trainer_of(model) as trainer:
        other = copy.deepcopy(model)
        usual = other.layers[2].forward
        other.layers[2].forward = lambda x: usual(x) * 1.001
        found = trainer.diff(other, small.batch())
    assert not found.equal and found.plan["equal"]
    assert "which layer.2 returns, samples from 0 differs" in found.first
    assert "0.000999 of the norm, where 1e-12 is allowed" in str(found)


def test_names_a_gradient():
    model = stack()
    with trainer_of(model) as trainer:
        other = copy.deepcopy(model)
        other.head.weight.register_hook(lambda gradient: 2 * gradient)
        found = trainer.diff(other, small.batch())
    assert found.first is not None and found.first.startswith("the gradient of head.weight differs")


def test_random_numbers_are_not_compared_with_pytorch():
    model = stack()
    model.layers[1].up = torch.nn.Sequential(model.layers[1].up, torch.nn.Dropout(0.5))
    with trainer_of(model) as trainer:
        found = trainer.diff(model, small.batch())
    assert found.equal and found.compared == 0
    assert "draws random numbers" in str(found)


def test_finds_what_is_not_finite():
    """The operator that makes it, on its device, in its microbatch; the trainer stays as it was."""
    model = stack()
    with trainer_of(model) as trainer:
        found = trainer.diff(None, small.batch(), find_nan=True)
        assert found.equal and found.compared == 0 and str(found).startswith("finite: ")
        good = trainer.state_dict()
        trainer.load_state_dict({**good, "layers.2.down.weight": good["layers.2.down.weight"] * 1e200, "layers.2.up.weight": good["layers.2.up.weight"] * 1e200})
        found = trainer.diff(model, small.batch(), find_nan=True)
        assert not found.equal and found.first is None
        first = found.plan["first"]
        assert found.plan["looked_for"] == "not finite" and (first["chunk"], first["pass"]) == ("layer.2", "F")
        assert first["operator"].startswith("aten::") and first["microbatch"] == "mb=0" and first["devices"] in ([2], [3])
        assert "is not finite" in str(found) and "PyTorch" not in str(found)
        trainer.load_state_dict(good)
        assert trainer.steps == 0 and trainer.diff(model, small.batch()).equal
        with pytest.raises(piper.ScheduleError, match="find_nan compares nothing"):
            trainer.diff(model, small.batch(), find_nan=True, tolerance=1e-3)
        with pytest.raises(piper.Error, match="the module"):
            trainer.diff(None, small.batch())
        with pytest.raises(piper.Error, match="find_nan"):
            trainer.diff(model, small.batch(), find_nan=1)


def test_another_module_is_refused():
    model = stack()
    with trainer_of(model) as trainer:
        with pytest.raises(piper.ScheduleError, match="other parameters"):
            trainer.diff(small.Stack(3).double(), small.batch())
        with pytest.raises(piper.Error, match="as in the example"):
            trainer.diff(model, {"tokens": small.batch()["tokens"]})
