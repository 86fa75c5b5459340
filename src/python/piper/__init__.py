"""Piper: pipeline, data, expert parallelism and ZeRO for PyTorch models, as lines of a schedule that is proved before it runs.

    import piper, torch

    piper.annotate_modules(model, {"layer": "layers.*"})            # regions that schedules speak about
    graph = piper.capture(model, example_batch, loss=my_loss)       # runs the model once, on fake tensors
    schedule = piper.schedules.dualpipev(ranks=2, microbatches=8)
    plan = piper.compile(graph, schedule)
    print(plan.check(), plan.memory(), plan.simulate("h100"), sep="\\n")
    with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=1e-3)) as trainer:
        for batch in batches:
            print(trainer.step(batch).loss)
        model.load_state_dict(trainer.state_dict())

docs/python.md has the rest.
"""
from . import _torch  # first: it says clearly if this is not the PyTorch that Piper was built for
from . import callbacks, schedules
from .annotation import annotate, annotate_modules
from .capturing import Model, capture, load_model
from .diffing import Diff
from .errors import CaptureError, CaptureWarning, CheckpointError, Error, PlanError, RunError, ScheduleError
from .fetching import FetchAhead
from .lr_schedulers import LRScheduler
from .metrics import metric
from .optimizers import SGD, Adafactor, AdamW, Lion, Muon, ParameterGroup, decay_matrices_only
from .plans import Plan, Simulation, clusters, compare, compile
from .samples import Samples, Source
from .schedule import Schedule, overlapped
from .searching import Search, search
from .training import Evaluation, Resumed, StepResult, Trainer
from ._piper import __version__

__all__ = [
    "Adafactor", "AdamW", "CaptureError", "CaptureWarning", "CheckpointError", "Diff", "Error", "Evaluation", "FetchAhead", "LRScheduler", "Lion",
    "Model", "Muon", "ParameterGroup", "Plan", "PlanError", "Resumed", "RunError", "SGD", "Samples", "Schedule", "ScheduleError", "Search",
    "Simulation", "Source", "StepResult", "Trainer", "annotate", "annotate_modules", "callbacks", "capture", "clusters", "compare", "compile",
    "decay_matrices_only", "load_model", "metric", "overlapped", "schedules", "search", "__version__",
]
