"""Runs of configurations: optimizers, groups and clipping as [optimizer] says, the same under a schedule; metrics and events."""
import json
import math
import os
import random
import re
import subprocess

import pytest

from test_samples import write_folder

CONFIG = """
[model]
name = "small"
arch = "llama3"
hidden = 32
layers = 2
heads = 4
ffn = 64
vocab = 64
[step]
batch = {batch}
sequence = 16
weights = "float64"
gradients = "float64"
{step}
[run]
steps = 4
metrics = "metrics.jsonl"
tensorboard = "events"
{run}
[optimizer]
{optimizer}
"""
SCHEDULE = """
mesh(pp=2, dp=2)
split(batch, parts=2, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=dp, zero=2)
use 1f1b(stages=stage, microbatches=mb)
"""
CLIP = "clip = 0.2\n"
GROUPS = """
[[optimizer.groups]]
pattern = "*.norm*"
weight_decay = 0
lr_factor = 0.5
[[optimizer.groups]]
pattern = "embed.*"
lr_factor = 3
"""
RUNS = {
    "adamw": ("", "learning_rate = 0.01\n"),
    "lion": ('optimizer = "lion"', "learning_rate = 0.003\n"),
    "nesterov": ('optimizer = "momentum"', "learning_rate = 0.1\nnesterov = true\n"),
    "muon": ('optimizer = "muon"', 'learning_rate = 0.01\nadjust_lr = "match_rms_adamw"\nadamw_lr_factor = 2\n'),
    "adafactor": ('optimizer = "adafactor"', "learning_rate = 0.02\n"),
    "adafactor in groups": ('optimizer = "adafactor"\nema = true', "min_rms = 0.2\nclip_threshold = 1.5\nbeta2_decay = -0.6\neps = 1e-4\n" + GROUPS),
    "bfloat16 moments": ('moments = "bfloat16"', "learning_rate = 0.01\n"),
    "clip_value": ('optimizer = "sgd"', "learning_rate = 0.5\nclip_value = 0.001\n"),
    "ema": ("ema = true", "learning_rate = 0.01\nema_decay = 0.9\n"),
    "groups": ("", "learning_rate = 0.01\n" + GROUPS),
    "muon in groups": ('optimizer = "muon"\nema = true', "learning_rate = 0.01\n" + GROUPS),
}


def attempt(folder, step, optimizer, *options, run="", batch=8):
    (folder / "run.toml").write_text(CONFIG.format(step=step, optimizer=optimizer, run=run, batch=batch))
    (folder / "schedule.piper").write_text(SCHEDULE)
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    return subprocess.run([os.environ["PIPER_PROGRAM"], "train", "run.toml", *options], cwd=folder, capture_output=True, text=True)


def run(folder, *arguments, **more):
    done = attempt(folder, *arguments, **more)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return lines[0], lines[1:], done


def losses(steps):
    return [step["loss"] for step in steps]


@pytest.mark.parametrize("kind", RUNS)
def test_a_schedule_computes_what_one_device_computes(kind, tmp_path):
    _, one, _ = run(tmp_path, *RUNS[kind])
    _, scheduled, _ = run(tmp_path, *RUNS[kind], "--schedule", "schedule.piper")
    assert losses(scheduled) == pytest.approx(losses(one), rel=1e-11)


def test_every_setting_counts(tmp_path):
    """No two of the runs above are the same, but for what only adds a mean."""
    seen = {kind: tuple(losses(run(tmp_path, *RUNS[kind])[1])) for kind in RUNS}
    assert seen["ema"] == seen["adamw"]
    assert len(set(seen.values())) == len(seen) - 1


def test_a_group_with_no_rate_does_not_move(tmp_path):
    frozen = 'learning_rate = 0.5\n[[optimizer.groups]]\npattern = "*"\nlr_factor = 0\n'
    for step in ("", 'optimizer = "muon"'):
        assert losses(run(tmp_path, step, frozen)[1]) == losses(run(tmp_path, step, "learning_rate = 1e-300\nweight_decay = 0\n")[1])


@pytest.mark.parametrize("kind", ["muon in groups", "adafactor in groups", "bfloat16 moments"])
def test_a_run_goes_on_under_a_schedule(kind, tmp_path):
    step, optimizer = RUNS[kind]
    _, whole, _ = run(tmp_path, step, optimizer)
    saves = 'checkpoints = "saved"\ncheckpoint_every = 2\n'
    run(tmp_path, step, optimizer, "--steps", "2", run=saves)
    _, rest, _ = run(tmp_path, step, optimizer, "--schedule", "schedule.piper", "--resume", run=saves)
    assert [line["step"] for line in rest] == [2, 3]
    assert losses(rest) == pytest.approx(losses(whole)[2:], rel=1e-11)


def test_prediction_memory_and_events(tmp_path):
    head, steps, done = run(tmp_path, *RUNS["adamw"], "--cluster", "h100")
    assert head["predicted_seconds"] > 0 and head["data"] == "synthetic tokens"
    for step in steps:
        assert step["predicted_seconds"] == head["predicted_seconds"] and step["data_seconds"] >= 0
        assert 0 < step["mfu"] < 1 and step["peak_bytes"] > 0
    assert "by prediction" in done.stdout and head["plan_hash"] in done.stdout
    last = re.sub(r"\d+(\.\d+)?", "N", done.stdout.splitlines()[-1])
    assert re.fullmatch(r"a step takes N (us|ms|s) \(median\), N (ns|us|ms|s) by prediction: N % longer than predicted", last), last
    head, steps, done = run(tmp_path, *RUNS["adamw"])
    assert head["predicted_seconds"] is None and steps[0]["mfu"] is None and "by prediction" not in done.stdout
    files = [path.read_bytes() for path in (tmp_path / "events").iterdir()]
    assert len(files) == 2 and all(b"brain.Event:2" in file and file.count(b"gradient_norm") == 4 for file in files)


def test_a_mean_that_is_not_kept_has_no_decay(tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG.format(step="", optimizer="ema_decay = 0.9", run="", batch=8))
    done = subprocess.run([os.environ["PIPER_PROGRAM"], "train", "run.toml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "E111" in done.stderr and "ema = true" in done.stderr


def larger(losses, count):
    """Of the batches that so many steps are together."""
    return [sum(losses[first:first + count]) / count for first in range(0, len(losses), count)]


@pytest.mark.parametrize("kind", ["adamw", "nesterov", "muon in groups", "adafactor"])
def test_several_steps_make_the_update_of_a_larger_batch(kind, tmp_path):
    step, optimizer = RUNS[kind]
    _, whole, _ = run(tmp_path, step, CLIP + optimizer)
    small = step + "\naccumulate = 2", CLIP + optimizer
    _, parts, _ = run(tmp_path, *small, "--steps", "8", batch=4)
    assert larger(losses(parts), 2) == pytest.approx(losses(whole), rel=1e-11)
    assert [part["gradient_norm"] is None for part in parts] == [True, False] * 4
    assert [part["gradient_norm"] for part in parts[1::2]] == pytest.approx([line["gradient_norm"] for line in whole], rel=1e-11)
    _, scheduled, _ = run(tmp_path, *small, "--steps", "8", "--schedule", "schedule.piper", batch=4)
    assert losses(scheduled) == pytest.approx(losses(parts), rel=1e-11)


@pytest.mark.parametrize("options", [(), ("--schedule", "schedule.piper")], ids=["one device", "1f1b, zero 2"])
def test_tokens_of_all_steps_of_an_update_are_counted(options, tmp_path):
    generator = random.Random(1)
    documents = [[generator.randrange(1, 64) for _ in range(generator.randrange(2, 20))] for _ in range(60)]
    write_folder(tmp_path / "data", documents, [int(generator.random() < 0.4) for _ in range(sum(map(len, documents)))])
    data = 'learning_rate = 0.5\n[data]\nkind = "tokens"\npaths = "data"\npacking = "none"\nloss = "completions"\n'
    _, whole, _ = run(tmp_path, 'optimizer = "sgd"', data, *options)
    _, parts, _ = run(tmp_path, 'optimizer = "sgd"\naccumulate = 2', data, "--steps", "8", *options, batch=4)
    assert larger(losses(parts), 2) == pytest.approx(losses(whole), rel=1e-11)
    assert [part["gradient_norm"] for part in parts[1::2]] == pytest.approx([line["gradient_norm"] for line in whole], rel=1e-11)


def test_what_a_mixture_says_besides_its_loss(tmp_path):
    """The balance of its experts: in metrics, progress and events, of steps and of evaluations."""
    def train(*options):
        text = CONFIG.format(step="", optimizer="learning_rate = 0.01", batch=8, run="[evaluation]\nevery = 2\nbatches = 2\n")
        (tmp_path / "run.toml").write_text(text.replace('arch = "llama3"', 'arch = "mixtral"\nkv_heads = 2\nexperts = 4\ntop_k = 2\ncapacity_factor = 2.0')
                                           .replace("ffn = 64", "moe_ffn = 32"))
        (tmp_path / "schedule.piper").write_text(SCHEDULE)
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
        done = subprocess.run([os.environ["PIPER_PROGRAM"], "train", "run.toml", *options], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()][1:]
        assert re.search(r"step 4/4  loss \d+\.\d+  norm .* aux_loss \d+\.\d+", done.stderr) and ", aux_loss " in done.stderr
        steps, found = [line for line in lines if "step" in line], [line["evaluation"] for line in lines if "evaluation" in line]
        assert len(steps) == 4 and len(found) == 2
        return [line["metric.aux_loss"] for line in steps] + [line["metric.aux_loss"] for line in found] + losses(steps)

    turns = "devices(1)\nsplit(batch, parts=4, as=mb)\nplace({}, devices=[0])\n"
    (tmp_path / "turns.piper").write_text(turns)
    one = train("--schedule", "turns.piper")
    assert all(balance > 0 for balance in one[:6])
    assert train("--schedule", "schedule.piper") == pytest.approx(one, rel=1e-11)
    events = b"".join(path.read_bytes() for path in (tmp_path / "events").iterdir())
    assert events.count(b"evaluation.metric.aux_loss") == 4 and events.count(b"metric.aux_loss") == 12
    assert events.count(b"evaluation.perplexity") == 4
    page = subprocess.run([os.environ["PIPER_PROGRAM"], "plot", "metrics.jsonl", "-o", "-"], cwd=tmp_path, capture_output=True, text=True)
    assert page.returncode == 0 and all(f"<figcaption>{name}</figcaption>" in page.stdout for name in ("metric.aux_loss", "evaluation.metric.aux_loss"))


def test_the_load_of_experts(tmp_path):
    """Shares of all choices of the batch, whoever made them; how unequal the worst layer is; and what did not fit into the first round."""
    text = CONFIG.format(step="", optimizer="learning_rate = 0.01", batch=8, run="")
    (tmp_path / "run.toml").write_text(text.replace('arch = "llama3"', 'arch = "mixtral"\nexperts = 4\ntop_k = 2\ndropless = true\nexpert_load = true')
                                       .replace("ffn = 64", "moe_ffn = 32"))
    (tmp_path / "turns.piper").write_text("devices(1)\nsplit(batch, parts=8, as=mb)\nplace({}, devices=[0])\n")
    (tmp_path / "divided.piper").write_text("mesh(pp=2, ep=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=ep)\n"
                                            "shard({experts=*}, along=ep, buffer=0.5)\nuse 1f1b(stages=stage, microbatches=mb)\n")

    def train(schedule):
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
        done = subprocess.run([os.environ["PIPER_PROGRAM"], "train", "run.toml", "--schedule", schedule], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()][1:]

    turns, divided = train("turns.piper"), train("divided.piper")
    for alone, line in zip(turns, divided, strict=True):
        layers = line["expert_load"]
        assert [len(layer) for layer in layers] == [4, 4] and alone["expert_load"] == [pytest.approx(layer) for layer in layers]
        assert all(sum(layer) == pytest.approx(1) and all(256 * share == pytest.approx(round(256 * share)) for share in layer) for layer in layers)
        assert line["metric.expert_load_max"] == pytest.approx(max(4 * max(layer) for layer in layers)) and line["metric.expert_load_max"] > 1
        entropies = [-sum(share * math.log(share, 4) for share in layer if share > 0) for layer in layers]
        assert line["metric.expert_load_entropy"] == pytest.approx(min(entropies)) and line["metric.expert_load_entropy"] < 1
        assert "metric.further_rows" not in alone and 0.5 <= line["metric.further_rows"] < 1
    simulated = subprocess.run([os.environ["PIPER_PROGRAM"], "simulate", "run.toml", "divided.piper", "--routing", "trace:metrics.jsonl", "--format", "json"],
                               cwd=tmp_path, capture_output=True, text=True)
    busiest = [2 * max(layer[0] + layer[1], layer[2] + layer[3]) for line in divided for layer in line["expert_load"]]
    assert json.loads(simulated.stdout)["routing"]["busiest_load"] == pytest.approx(sum(busiest) / len(busiest))


def test_a_checkpoint_waits_for_the_update(tmp_path):
    step, optimizer = RUNS["adamw"]
    saves = 'checkpoints = "saved"\ncheckpoint_every = 3\n'
    _, whole, _ = run(tmp_path, step + "\naccumulate = 2", optimizer, "--steps", "8", run=saves)
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["step-00000004", "step-00000006", "step-00000008"]
    _, rest, _ = run(tmp_path, step + "\naccumulate = 2", optimizer, "--steps", "8", "--resume=saved/step-00000004", run=saves)
    assert losses(rest) == pytest.approx(losses(whole)[4:], rel=1e-11)
    done = attempt(tmp_path, step + "\naccumulate = 4", optimizer, "--steps", "8", "--resume=saved/step-00000006", run=saves)
    assert done.returncode != 0 and "E905" in done.stderr and "4 steps make an update" in done.stderr


def test_steps_that_make_no_whole_update_are_refused(tmp_path):
    done = attempt(tmp_path, "accumulate = 3", "learning_rate = 0.01")
    assert done.returncode == 1 and "E111" in done.stderr and "accumulate = 3, but the run has 4 steps" in done.stderr
    done = attempt(tmp_path, "accumulate = 2", "learning_rate = 0.01", "--steps", "5")
    assert done.returncode == 1 and "E105" in done.stderr and "--steps 5" in done.stderr


@pytest.mark.parametrize("shape", ["cosine", "linear", "wsd", "inverse_root"])
def test_a_rate_by_tokens_is_one_by_steps(shape, tmp_path):
    def rates(unit, of_a_step, *options, **more):
        rate = f'\n[lr_schedule]\nshape = "{shape}"\nunit = "{unit}"\nwarmup = {2 * of_a_step}\ntotal = {4 * of_a_step}\n'
        _, steps, _ = run(tmp_path, "", "learning_rate = 0.01" + rate, *options, **more)
        return [line["learning_rate"] for line in steps]

    by_steps = rates("steps", 1)
    assert rates("tokens", 8 * 16) == pytest.approx(by_steps, rel=1e-15)
    assert rates("tokens", 8 * 16, "--steps", "8", batch=4)[1::2][0:1] == pytest.approx(by_steps[0:1])  # half the tokens in each


FROZEN = """learning_rate = 0.01
[[optimizer.groups]]
pattern = "layer.0.*"
frozen = true
[[optimizer.groups]]
pattern = "embed*"
frozen = true
"""


def test_frozen_parameters_stay_and_keep_nothing(tmp_path):
    still = FROZEN.replace("frozen = true", "lr_factor = 0")
    assert losses(run(tmp_path, "", FROZEN)[1]) == losses(run(tmp_path, "", still)[1])
    _, scheduled, _ = run(tmp_path, "", FROZEN, "--schedule", "schedule.piper")
    assert losses(scheduled) == pytest.approx(losses(run(tmp_path, "", FROZEN)[1]), rel=1e-11)

    peaks = [run(tmp_path, "", optimizer)[1][-1]["peak_bytes"] for optimizer in (FROZEN, still)]
    assert peaks[0] + 24 * 10_000 < peaks[1]  # gradients and two moments of more than 10,000 numbers


def test_frozen_groups_that_mean_nothing(tmp_path):
    done = attempt(tmp_path, "", FROZEN.replace("frozen = true", "frozen = true\nlr_factor = 2"))
    assert done.returncode == 1 and "lr_factor means nothing for parameters that are not trained" in done.stderr
    done = attempt(tmp_path, "", FROZEN.replace("layer.0.*", "*"))
    assert done.returncode == 1 and "no parameter is left to train" in done.stderr


def test_decay_of_matrices_only(tmp_path):
    """The same as groups that say so one by one; a group may say otherwise."""
    own = '[[optimizer.groups]]\npattern = "layer.1.*"\nlr_factor = 0.5\n[[optimizer.groups]]\npattern = "head.*"\nweight_decay = 0.3\n'
    base = "learning_rate = 0.05\nweight_decay = 0.5\n"
    none = "".join(f'[[optimizer.groups]]\npattern = "{pattern}"\nweight_decay = 0\nlr_factor = {rate}\n'
                   for pattern, rate in (("layer.1.*norm*", 0.5), ("layer.0.*norm*", 1), ("embed*", 1)))
    short = losses(run(tmp_path, "", base + 'weight_decay_on = "matrices"\n' + own)[1])
    assert short == losses(run(tmp_path, "", base + none + own)[1])
    assert short != losses(run(tmp_path, "", base + own)[1])
