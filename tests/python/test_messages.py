"""What a user reads: the reason, in Python's words, and a way out that works."""
import logging
import re
import warnings

import pytest
import torch
import torch.nn.functional as F

import piper
import plain
import small
from conftest import ROOT

pytestmark = pytest.mark.quick


def capture(model=None, loss=small.loss, batch=None):
    return piper.capture(small.Stack() if model is None else model, batch or small.batch(), loss=loss)


def test_helps_are_in_pythons_words():
    """Every text of a layer that Python stands on, with options of the program or sections of its configurations."""
    about_files = ("model/", "base/text/", "trace/", "train/config.cc", "train/data/", "cost/what_if.cc")  # which Python reads too
    found = []
    for path in sorted((ROOT / "src").rglob("*.cc")):
        inside = str(path.relative_to(ROOT / "src"))
        if inside.startswith(("tools/", "python/")) or inside.startswith(about_files) and inside != "model/analytic/step_overrides.cc":
            continue
        text = re.sub(r'"\s*\n\s*"', "", path.read_text())  # literals in several pieces
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            if re.search(r"(^|\s)--[a-z]|\[(step|run|optimizer)\]", literal):
                said = re.sub(r"\{\d?\}", "8", literal.replace('\\"', '"'))
                found.append(said)
                assert not re.search(r"(^|\s)--[a-z]|\[(step|run|optimizer)\]", piper._piper.in_python(said)), (inside, said)
    assert len(found) > 8  # otherwise the search itself is wrong


def test_batch_that_does_not_divide():
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(capture(), "devices(1)\nsplit(batch, parts=3, as=mb)\nplace({}, devices=[0])\n")
    assert caught.value.code == "E213"
    assert caught.value.help == ("use other parts, or another batch",
                                 "a batch that is a multiple of 3 divides: batch=9 in piper.capture or piper.load_model")
    graph = piper.capture(small.Stack(), small.batch(), loss=small.loss, batch=9)
    piper.compile(graph, "devices(1)\nsplit(batch, parts=3, as=mb)\nplace({}, devices=[0])\n")


@pytest.mark.parametrize("batch", [0, -1, 2.5, "8", True])
def test_batch_that_is_no_number_of_samples(batch):
    with pytest.raises(piper.ScheduleError, match="batch is") as caught:
        piper.capture(small.Stack(), small.batch(), loss=small.loss, batch=batch)
    assert caught.value.code == "E105"


@pytest.mark.parametrize("schedule, code", [(piper.schedules.one_f_one_b(ranks=2, microbatches=2), "E209"),
                                            ("devices(1)\nplace({layer=*}, devices=[0])\n", "E202")])
def test_model_without_annotations(schedule, code):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(capture(), schedule)
    assert caught.value.code == code and "no scopes" in caught.value.message + " ".join(caught.value.help)
    assert 'piper.annotate_modules(model, {"layer": "layers.*"})' in " ".join(caught.value.help)


@pytest.mark.parametrize("timeline", ["one_f_one_b", "zb_h1", "dualpipev"])
def test_frozen_first_stage(timeline):
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    for part in (model.embedding, model.layers[0]):
        part.requires_grad_(False)
    batches = [small.batch(seed=seed) for seed in range(3)]
    graph = capture(model)
    schedule = getattr(piper.schedules, timeline)(ranks=2, microbatches=4)
    ours = plain.train_piper(graph, schedule, batches)
    plain.assert_equal(ours, plain.train(model, batches, 4, small.loss), 1e-5)


def test_order_of_a_backward_that_is_not_there():
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    model.embedding.requires_grad_(False)
    model.layers[0].requires_grad_(False)
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(capture(model), "devices(1)\nplace({}, devices=[0])\norder({layer=0, pass=B}, {layer=1, pass=B})\n")
    assert caught.value.code == "E203" and "nothing in what is selected is trained" in " ".join(caught.value.help)


def test_compiled_modules_are_captured_as_they_are_written():
    batches = [small.batch(seed=seed) for seed in range(2)]
    torch.manual_seed(3)
    written = small.Stack()
    expected = capture(written).operators()
    torch.manual_seed(3)
    inside = small.Stack()
    inside.layers[1] = torch.compile(inside.layers[1])
    assert capture(inside).operators().count("\n") == expected.count("\n")
    whole = torch.compile(written)
    schedule = piper.Schedule().devices(1).split(2).place({}, devices=[0])
    ours = plain.train_piper(capture(whole), schedule, batches)
    assert ours[1].keys() == whole.state_dict().keys()  # so that it can be loaded back
    plain.assert_equal((ours[0], {name.removeprefix("_orig_mod."): value for name, value in ours[1].items()}),
                       plain.train(written, batches, 2, small.loss), 1e-5)


def test_a_failing_operator_is_said_once(caplog, capfd):
    with pytest.raises(piper.CaptureError) as caught:
        capture(loss=lambda model, batch: F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten().float()))
    assert caught.value.code == "E605"
    assert not caplog.records and capfd.readouterr().err == ""
    assert not logging.getLogger("torch._subclasses.fake_tensor").disabled


# Losses that depend on how the batch is cut

def logits(model, batch):
    return model(batch["tokens"]).flatten(0, 1)


def by_the_longest(model, batch):
    """A number of the batch that is no sum."""
    return F.cross_entropy(logits(model, batch), batch["targets"].flatten(), reduction="sum") / batch["targets"].max()


def perplexity(model, batch):
    kept = (batch["targets"].flatten() > 0).float()
    return ((F.cross_entropy(logits(model, batch), batch["targets"].flatten(), reduction="none") * kept).sum() / kept.sum()).exp()


def learned_weights(model, batch):
    return F.cross_entropy(logits(model, batch), batch["targets"].flatten(), weight=model.head.bias.detach().exp())


@pytest.mark.parametrize("loss, operator", [(by_the_longest, "aten::div"), (perplexity, "aten::div"), (learned_weights, "aten::nll_loss_forward")],
                         ids=lambda value: getattr(value, "__name__", ""))
def test_a_division_by_what_is_not_known_is_said(loss, operator):
    with pytest.warns(piper.CaptureWarning, match="loss_weight=") as said:
        capture(loss=loss)
    assert len(said) == 1 and operator in str(said[0].message)


def contrastive(model, batch):
    """As CLIP's: every sample is told from all others."""
    left, right = model(batch["tokens"]).mean(1), model(batch["targets"]).mean(1)
    return F.cross_entropy(left @ right.t(), torch.arange(left.shape[0]))


def test_samples_that_are_compared_with_each_other_are_said():
    with pytest.warns(piper.CaptureWarning, match="every sample to every other") as said:
        capture(loss=contrastive)
    assert len(said) == 1 and "aten::mm" in str(said[0].message)


@pytest.mark.parametrize("weight, message", [(3, "loss_weight is 3"), (lambda batch: 3, "does not return one number"),
                                             (lambda batch: batch["targets"].sum(1), "does not return one number"),
                                             (lambda batch: batch["targets"].max(), "not computed from sums")], ids=repr)
def test_a_loss_weight_that_counts_nothing_is_refused(weight, message):
    with pytest.raises(piper.CaptureError, match=message) as caught:
        piper.capture(small.Stack(), small.batch(), loss=small.loss, loss_weight=weight)
    assert caught.value.code == "E605" and "loss_weight=lambda" in str(caught.value)


def per_sample(model, batch):
    """Every sample divides by its own count."""
    kept = (batch["targets"] > 0).float()
    each = F.cross_entropy(logits(model, batch), batch["targets"].flatten(), reduction="none").view_as(kept)
    return ((each * kept).sum(1) / kept.sum(1).clamp(min=1)).mean()


def masked(model, batch):
    kept = (batch["targets"].flatten() > 0).float()
    return (F.cross_entropy(logits(model, batch), batch["targets"].flatten(), reduction="none") * kept).sum() / kept.sum()


def normalised(model, batch):
    """By a number that depends on weights: no count."""
    out = logits(model, batch)
    return F.cross_entropy(out / out.std(), batch["targets"].flatten())


def summed(model, batch):
    return F.cross_entropy(logits(model, batch), batch["targets"].flatten(), reduction="sum") / batch["targets"].numel()


@pytest.mark.parametrize("loss", [small.loss, masked, per_sample, normalised, summed], ids=lambda loss: loss.__name__)
def test_means_over_samples_or_tokens_are_not(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        capture(loss=loss)


# Schedules

def test_cut_takes_the_words_of_the_text_form_too():
    texts = [piper.Schedule().mesh(tp=2).place({}, mesh={}).shard({}, along="tp", sequence=on, vocabulary=off).text()
             for on, off in ((True, False), ("on", "off"))]
    assert texts[0] == texts[1] and "sequence=on" in texts[0] and "vocabulary" not in texts[0]
    for wrong, message in (({"vocabulary": "yes"}, "vocabulary is 'yes'"), ({"sequence": "yes"}, "sequence must be one of off, on, gather")):
        with pytest.raises(piper.ScheduleError, match=message) as caught:
            piper.Schedule().mesh(tp=2).shard({}, along="tp", **wrong)
        assert caught.value.code == "E105"


@pytest.mark.parametrize("given", [dict(zero=3), dict(bucket="1MB"), dict(experts="experts")], ids=str)
def test_what_is_about_replicas_is_refused_without(given):
    with pytest.raises(piper.ScheduleError, match="replicas") as caught:
        piper.schedules.one_f_one_b(ranks=2, microbatches=2, **given)
    assert caught.value.code == "E104"
    piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, **given)
