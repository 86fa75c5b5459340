"""What callbacks are told. Weights & Biases and MLflow are stood in for by modules with the calls that are used of them."""
import json
import sys
import types

import pytest
import torch

import piper
import small


class Stack(small.Stack):
    def forward(self, tokens):
        out = super().forward(tokens)
        piper.metric("largest", out.abs().max())
        return out


def train(callbacks, steps=2, **options):
    graph = piper.capture(Stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, optimizer=piper.AdamW(lr=0.25), callbacks=callbacks, seed=3, **options) as trainer:
        return [trainer.step(small.batch(seed=step)) for step in range(steps)]


class Noted(piper.callbacks.Callback):
    def __init__(self):
        self.told = []

    def on_begin(self, trainer, run):
        self.told.append(("begin", run))

    def on_step(self, trainer, step, numbers):
        self.told.append((step, numbers))

    def on_end(self, trainer):
        self.told.append(("end", None))


def test_are_told_from_the_beginning_to_the_end():
    noted = Noted()
    results = train([noted])
    assert [what for what, _ in noted.told] == ["begin", 0, 1, "end"]
    run = noted.told[0][1]
    assert run["batch"] == 8 and run["sequence"] == 6 and run["devices"] == 1 and run["seed"] == 3
    assert run["parameters"] == sum(value.numel() for value in Stack().parameters())
    for (_, numbers), result in zip(noted.told[1:3], results, strict=True):
        assert numbers["loss"] == result.loss and numbers["gradient_norm"] == result.gradient_norm and numbers["learning_rate"] == 0.25
        assert numbers["tokens"] == 48 and numbers["tokens_per_second"] == pytest.approx(48 / result.seconds)
        assert numbers["metric.largest"] == result.metrics["largest"]
        assert not {"predicted_seconds", "mfu", "data_seconds"} & set(numbers), "nothing is known of these"


def test_hear_of_evaluations_and_of_memory(tmp_path):
    class Evaluated(Noted):
        def on_evaluate(self, trainer, steps, numbers):
            self.told.append((f"evaluation after {steps}", numbers))

    noted, path = Evaluated(), tmp_path / "m.jsonl"
    graph = piper.capture(Stack(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, callbacks=[noted, piper.callbacks.MetricsFile(path)]) as trainer:
        trainer.step(small.batch())
        found = trainer.evaluate([small.batch(seed=1), small.batch(seed=2)])
        trainer.load_state_dict({name: torch.full_like(value, torch.nan) for name, value in Stack().state_dict().items()})
        trainer.evaluate([small.batch()])
    assert [what for what, _ in noted.told] == ["begin", 0, "evaluation after 1", "evaluation after 1", "end"]
    assert 0 < noted.told[1][1]["peak_bytes"] <= noted.told[0][1]["planned_peak_bytes"]
    assert noted.told[2][1] == {"loss": found.loss, "perplexity": found.perplexity, "batches": 2, "tokens": 96, "seconds": found.seconds,
                                "metric.largest": found.metrics["largest"]}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[1]["peak_bytes"] == noted.told[1][1]["peak_bytes"] and lines[2] == {"evaluation": {"steps": 1, **noted.told[2][1]}}
    assert lines[3]["evaluation"]["loss"] is None, "JSON has no word for it"


def test_hear_of_the_prediction_and_of_waiting():
    noted = Noted()
    model = Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    schedule = piper.schedules.one_f_one_b(ranks=2, microbatches=2)
    with piper.Trainer(graph, schedule, cluster="laptop", callbacks=[noted]) as trainer:
        results = [*trainer.train(iter([small.batch()] * 2), steps=3), trainer.step(small.batch())]
        simulated = trainer.plan.simulate()
    run = noted.told[0][1]
    assert run["predicted_seconds"] == simulated.seconds > 0
    assert run["planned_peak_bytes"] == max(row["peak"] for row in trainer.plan.memory()) > 0
    assert len(results) == 3
    for (_, numbers), result in zip(noted.told[1:-1], results, strict=True):
        assert numbers["predicted_seconds"] == simulated.seconds
        assert numbers["mfu"] == pytest.approx(simulated.mfu * simulated.seconds / result.seconds)
    assert [numbers.get("data_seconds", -1) >= 0 for _, numbers in noted.told[1:-1]] == [True, True, False]


def test_hear_of_the_end_of_a_run_that_failed():
    noted = Noted()
    graph = piper.capture(Stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.RunError):
        with piper.Trainer(graph, callbacks=[noted]) as trainer:
            trainer.load_state_dict({name: torch.full_like(value, torch.nan) for name, value in Stack().state_dict().items()})
            trainer.step(small.batch())
    assert [what for what, _ in noted.told] == ["begin", "end"]


def test_a_metrics_file_grows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for _ in range(2):
        results = train([piper.callbacks.MetricsFile(path)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("step") for line in lines] == [None, 0, 1] * 2 and lines[0]["format"] == "piper-metrics" and lines[0]["version"] == 1
    assert lines[5]["loss"] == results[1].loss


def test_a_metrics_file_refuses(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("mine\n")
    for path in (other, tmp_path / "nowhere" / "m.jsonl"):
        with pytest.raises(piper.RunError) as caught:
            train([piper.callbacks.MetricsFile(path)])
        assert caught.value.code == "E108"
    assert other.read_text() == "mine\n"


def test_wandb(monkeypatch):
    calls = []
    run = types.SimpleNamespace(log=lambda numbers, step: calls.append((step, numbers.get("loss", numbers))), finish=lambda: calls.append("finish"))
    made = types.ModuleType("wandb")
    made.init = lambda **given: calls.append(given) or run
    monkeypatch.setitem(sys.modules, "wandb", made)
    given = piper.callbacks.WandB(project="p", mode="offline")
    results = train([given])
    given.on_evaluate(None, 2, {"loss": 1.5, "perplexity": 4.5, "seconds": 1.0, "metric.largest": 3.0})
    assert calls.pop() == (2, {"evaluation.loss": 1.5, "evaluation.perplexity": 4.5, "evaluation.metric.largest": 3.0})
    assert calls[0]["project"] == "p" and calls[0]["mode"] == "offline" and calls[0]["config"]["batch"] == 8
    assert calls[1:] == [(0, results[0].loss), (1, results[1].loss), "finish"]


def test_mlflow(monkeypatch):
    calls = []
    made = types.ModuleType("mlflow")
    made.start_run = lambda **given: calls.append(given)
    made.log_params = lambda given: calls.append(given["batch"])
    made.log_metrics = lambda given, step: calls.append((step, given.get("loss", given)))
    made.end_run = lambda: calls.append("end")
    monkeypatch.setitem(sys.modules, "mlflow", made)
    given = piper.callbacks.MLflow(run_name="r")
    results = train([given])
    given.on_evaluate(None, 2, {"loss": 1.5, "perplexity": 4.5, "seconds": 1.0})
    assert calls.pop() == (2, {"evaluation.loss": 1.5, "evaluation.perplexity": 4.5})
    assert calls == [{"run_name": "r"}, 8, (0, results[0].loss), (1, results[1].loss), "end"]


@pytest.mark.parametrize("made", [piper.callbacks.WandB, piper.callbacks.MLflow])
def test_a_package_that_is_missing_is_named(made, monkeypatch):
    package = made.__name__.lower()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(piper.ScheduleError, match=f"needs the package {package}"):
        train([made()])


@pytest.mark.parametrize("wrong", [print, [print], "metrics.jsonl", [piper.callbacks.MetricsFile]])
def test_refuses(wrong):
    graph = piper.capture(Stack(), small.batch(), loss=small.loss)
    with pytest.raises(piper.ScheduleError, match="callbacks is") as caught:
        piper.Trainer(graph, callbacks=wrong)
    assert caught.value.code == "E105"


# ---- the packages themselves, where they are installed


def test_wandb_itself_offline(tmp_path):
    wandb = pytest.importorskip("wandb")
    results = train([piper.callbacks.WandB(project="p", mode="offline", dir=str(tmp_path))], steps=3)
    assert wandb.run is None, "the run has ended"
    wandb.teardown()  # its process writes the end of the file after the run has ended
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    written = file.read_bytes()
    assert b"learning_rate" in written and b"metric.largest" in written
    for result in results:  # numbers stand there as JSON
        assert json.dumps(result.loss).encode() in written


def test_mlflow_itself_in_a_file(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    results = train([piper.callbacks.MLflow(run_name="r")], steps=3)
    assert mlflow.active_run() is None, "the run has ended"
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert run.info.status == "FINISHED" and run.data.params["batch"] == "8"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(entry.step, entry.value) for entry in history] == [(step, result.loss) for step, result in enumerate(results)]
    assert len(client.get_metric_history(run.info.run_id, "metric.largest")) == 3
