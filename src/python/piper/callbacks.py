"""Callbacks of a trainer: metrics for files and for systems that show runs."""
from __future__ import annotations

import json
import math
import os
from typing import Mapping, NamedTuple, Optional, Union

from .errors import RunError, ScheduleError, path_of, refused


class Callback:
    """Base of callbacks: `piper.Trainer(..., callbacks=[...])` calls them on rank 0 only. Override what you need; exceptions end the step's call."""

    def on_begin(self, trainer, run: Mapping) -> None:
        """Before the first step. `run`: model, parameters, devices, batch, sequence, plan_hash, seed; planned_peak_bytes, the memory of the
        fullest device; predicted_seconds of a step, None without the trainer's `cluster`."""

    def on_step(self, trainer, step: int, numbers: Mapping[str, float]) -> None:
        """After a step, counted from 0: loss, gradient_norm, learning_rate, seconds, tokens, tokens_per_second, skipped, peak_bytes (memory of the
        fullest device of this process, since the run began), and the metrics of the model, each as `metric.NAME`. With the trainer's `cluster`: predicted_seconds, and mfu, the operations of the model in relation to
        the peak of the devices. In `Trainer.train`: data_seconds, how long the step waited for its batch."""

    def on_evaluate(self, trainer, steps: int, numbers: Mapping[str, float]) -> None:
        """After an evaluation, `steps` having been taken before it: loss, perplexity, batches, tokens, seconds, and metrics as `metric.NAME`."""

    def on_end(self, trainer) -> None:
        """When the trainer is closed, also after a step that failed."""


class MetricsFile(Callback):
    """The same lines of JSON that `piper train` writes, for `piper plot`; earlier runs stay in the file."""

    def __init__(self, path: Union[str, os.PathLike]):
        self.path = path_of("the file of metrics", path)
        self._file = None

    def on_begin(self, trainer, run):
        try:
            earlier = open(self.path).readline() if os.path.exists(self.path) else ""
            if earlier and not earlier.startswith('{"format": "piper-metrics"'):
                raise refused(RunError, "E108", f"cannot write metrics {self.path!r}: there is something else in it", "name another file")
            self._file = open(self.path, "a")
        except OSError as problem:
            raise refused(RunError, "E108", f"cannot write metrics {self.path!r}: {problem.strerror}", "name a file in a folder that is there")
        self._write({"format": "piper-metrics", "version": 1, **run})

    def on_step(self, trainer, step, numbers):
        self._write({"step": step, **numbers})

    def on_evaluate(self, trainer, steps, numbers):
        self._write({"evaluation": _finite({"steps": steps, **numbers})})

    def on_end(self, trainer):
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping) -> None:
        self._file.write(json.dumps(_finite(line)) + "\n")
        self._file.flush()


class WandB(Callback):
    """Weights & Biases. Arguments are those of `wandb.init`, for example `project="mine", mode="offline"`."""

    def __init__(self, **init):
        self._init, self._run = init, None

    def on_begin(self, trainer, run):
        self._run = _imported("wandb", "WandB").init(config=dict(run), **self._init)

    def on_step(self, trainer, step, numbers):
        self._run.log(dict(numbers), step=step)

    def on_evaluate(self, trainer, steps, numbers):
        self._run.log(_of_evaluation(numbers), step=steps)

    def on_end(self, trainer):
        if self._run is not None:
            self._run.finish()


class MLflow(Callback):
    """MLflow. Arguments are those of `mlflow.start_run`; where runs are kept is MLflow's own setting (`MLFLOW_TRACKING_URI`)."""

    def __init__(self, **start_run):
        self._start, self._mlflow = start_run, None

    def on_begin(self, trainer, run):
        mlflow = _imported("mlflow", "MLflow")
        mlflow.start_run(**self._start)
        self._mlflow = mlflow
        mlflow.log_params(dict(run))

    def on_step(self, trainer, step, numbers):
        self._mlflow.log_metrics({name: float(value) for name, value in numbers.items()}, step=step)

    def on_evaluate(self, trainer, steps, numbers):
        self._mlflow.log_metrics({name: float(value) for name, value in _of_evaluation(numbers).items()}, step=steps)

    def on_end(self, trainer):
        if self._mlflow is not None:
            self._mlflow.end_run()


def check_callbacks(given) -> tuple[Callback, ...]:
    if isinstance(given, (tuple, list)) and all(isinstance(one, Callback) for one in given):
        return tuple(given)
    raise refused(ScheduleError, "E105", f"callbacks is {given!r}", "a list of piper.callbacks.Callback: callbacks=[piper.callbacks.MetricsFile(path)]")


class Prediction(NamedTuple):
    """Of a step, by the simulator."""

    seconds: float
    at_peak: float
    """That its operations would take, did all devices compute as fast as they can."""


def numbers_of(result, learning_rate: float, tokens: int, peak_bytes: int, prediction: Optional[Prediction] = None, waited: Optional[float] = None) -> dict:
    """Of a StepResult. `waited`: seconds, for its batch."""
    out = {"loss": result.loss, "gradient_norm": result.gradient_norm, "learning_rate": learning_rate, "seconds": result.seconds,
           "tokens": tokens, "tokens_per_second": tokens / result.seconds if result.seconds > 0 else 0.0, "skipped": result.skipped,
           "peak_bytes": peak_bytes}
    if prediction is not None:
        out["predicted_seconds"] = prediction.seconds
        out["mfu"] = prediction.at_peak / result.seconds if result.seconds > 0 else 0.0
    if waited is not None:
        out["data_seconds"] = waited
    return {**out, **{f"metric.{name}": value for name, value in result.metrics.items()}}


def evaluation_numbers(evaluation, tokens: int) -> dict:
    """Of an Evaluation."""
    return {"loss": evaluation.loss, "perplexity": evaluation.perplexity, "batches": evaluation.batches, "tokens": tokens,
            "seconds": evaluation.seconds, **{f"metric.{name}": value for name, value in evaluation.metrics.items()}}


def _of_evaluation(numbers: Mapping[str, float]) -> dict:
    """Beside those of steps: the names that `piper train` gives them in TensorBoard."""
    return {f"evaluation.{name}": value for name, value in numbers.items() if name in ("loss", "perplexity") or name.startswith("metric.")}


def _finite(line: Mapping) -> dict:
    """JSON has no word for numbers that are not finite."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in line.items()}


def _imported(package: str, callback: str):
    try:
        return __import__(package)
    except ImportError:
        raise refused(ScheduleError, "E105", f"{callback} needs the package {package}, which is not installed", f"pip install {package}") from None
