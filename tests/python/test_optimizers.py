"""Numbers that make no sense are refused where they are given, in Piper's words."""
import math

import pytest
import torch

import piper
import small

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("given", [
    dict(lr=-1e-3), dict(lr=math.nan), dict(lr=math.inf), dict(lr="1e-3"), dict(lr=None), dict(lr=True), dict(betas=0.9), dict(betas=(0.9,)),
    dict(betas=(1.0, 0.9)), dict(betas=(0.9, -0.1)), dict(betas=("0.9", 0.9)), dict(eps=0.0), dict(eps=-1e-8), dict(eps=math.nan),
    dict(weight_decay=-0.1), dict(weight_decay=math.inf), dict(gradients=32)], ids=str)
def test_adamw_refuses(given):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.AdamW(**given)
    assert caught.value.code == "E105" and caught.value.help


@pytest.mark.parametrize("given", [dict(lr=-1.0), dict(momentum=-0.1), dict(momentum=1.0), dict(momentum=math.nan), dict(weight_decay=-1)],
                         ids=str)
def test_sgd_refuses(given):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.SGD(**given)
    assert caught.value.code == "E105"


def test_a_refused_change_changes_nothing():
    optimizer = piper.AdamW(lr=0.5)
    optimizer.lr = 0  # a warm-up may begin there
    with pytest.raises(piper.ScheduleError, match="-2"):
        optimizer.lr = -2
    with pytest.raises(piper.ScheduleError, match="has no rate"):
        optimizer.rate = 1
    assert optimizer.lr == 0 and optimizer == piper.AdamW(lr=0.0)


def test_a_dtype_may_be_pytorchs():
    given = piper.AdamW(gradients=torch.float32, master="float32", moments=torch.bfloat16)
    assert given.describe() == {"kind": "adamw", "gradients": "float32", "master": "float32", "moments": "bfloat16"}


def test_an_optimizer_of_pytorch_is_refused_with_ours_in_its_place():
    graph = piper.capture(small.Stack(), small.batch(), loss=small.loss)
    theirs = torch.optim.SGD(small.Stack().parameters(), lr=0.5, momentum=0.9)
    for call in (lambda: piper.Trainer(graph, optimizer=theirs), lambda: piper.compile(graph, "devices(1)\nplace({}, devices=[0])\n",
                                                                                      optimizer=theirs)):
        with pytest.raises(piper.ScheduleError, match="torch.optim.sgd.SGD") as caught:
            call()
        assert "piper.SGD(lr=0.5, momentum=0.9, weight_decay=0)" in caught.value.help[0]
    with pytest.raises(piper.ScheduleError, match="the class torch.optim.adamw.AdamW"):
        piper.Trainer(graph, optimizer=torch.optim.AdamW)
    with piper.Trainer(graph) as trainer, pytest.raises(piper.ScheduleError, match="not one of piper's"):
        trainer.optimizer = theirs


@pytest.mark.parametrize("given", [dict(clip=0.0), dict(clip=-1.0), dict(clip=math.nan), dict(clip=math.inf), dict(clip="1"), dict(seed=-1),
                                   dict(seed=0.5), dict(threads=0), dict(timeout=0), dict(timeout=math.nan), dict(timeout="10")], ids=str)
def test_trainer_refuses(given):
    graph = piper.capture(small.Stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Trainer(graph, **given)
    assert caught.value.code == "E105"
