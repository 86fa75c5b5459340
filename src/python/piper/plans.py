"""Plans: a schedule compiled for a model, proved, with its exact memory; simulated steps."""
from __future__ import annotations

import os
import sys
from typing import Optional, Sequence, Union

from . import _piper
from .capturing import Model, evaluated
from .errors import Error, check_is, check_word, path_of
from .optimizers import AdamW, check_optimizer
from .schedule import Schedule


def clusters() -> list[str]:
    """Names of the shipped clusters; others are files (docs/cluster.md)."""
    return _piper.clusters()


def compile(model: Model, schedule: Union[Schedule, str], cluster: Union[str, os.PathLike, None] = None, *,
            costs: Union[str, os.PathLike, None] = None, optimizer=None, measure: Optional[bool] = None, kernels: str = "eager",
            kernel_cache: Union[str, os.PathLike, None] = None, evaluation: bool = False) -> "Plan":
    """Applies the schedule to the model and proves the result: no deadlock, no race, no use after free. Raises an error if it does not work.

    `cluster`: a name or a file: the costs that decide the order of operations, and the memory that `check` compares with.
    `costs`: measured times of computations, a file of `piper profile`. `optimizer`: its state is part of the memory; default `AdamW()`.
    `measure`: run every distinct operator once on zeros to measure its workspace; default: yes, unless the model is
    on the meta device. `kernels`: "inductor" compiles the chunks and measures the result; `kernel_cache`: the folder that keeps it.
    `evaluation`: the plan of `Trainer.evaluate`: the same schedule without backward and updates, of the module in evaluation mode.
    """
    check_is("the model", model, Model, "what piper.capture or piper.load_model gave")
    check_word("kernels", kernels, ("eager", "inductor"))
    schedule = schedule_of(schedule)
    if measure is None:
        measure = model.module is None or not any(value.is_meta for value in model.module.parameters())
    if evaluation:
        model = evaluated(model)
    optimizer = check_optimizer(optimizer) if optimizer is not None else AdamW()
    described = with_usual_copies(optimizer.describe(), model)
    matrices = optimizer.matrices(model.module) if model.module is not None else []
    text = lambda what, value: "" if value is None else path_of(what, value)
    compiler = _piper.KernelStore(sys.executable, text("kernel_cache", kernel_cache)) if kernels == "inductor" else None
    try:
        handle = _piper.Plan.compile(model._handle, schedule._schedule(), text("cluster", cluster), text("costs", costs), described["kind"],
                                     described["gradients"], described["master"], described["moments"], matrices, optimizer.ema is not None,
                                     measure, compiler, evaluation)
    except Error as error:
        problem = model._frontend.failure_behind(error) if model._frontend else error
        raise problem from problem.__cause__
    return Plan(handle, model)


def schedule_of(given) -> Schedule:
    """A schedule, or its text."""
    check_is("the schedule", given, (Schedule, str), "a piper.Schedule, or its text")
    return Schedule(given) if isinstance(given, str) else given


def with_usual_copies(described: dict, model: Model) -> dict:
    """Mixed precision is the usual way to train bfloat16 weights: gradients and the optimizer's copy of the weights are float32."""
    if model._frontend is None or model._frontend.weights != "bfloat16":
        return described
    pure = described["master"] == "bfloat16"
    return {**described, "master": described["master"] or "float32", "gradients": described["gradients"] or ("bfloat16" if pure else "float32")}


class Plan:
    """The programs of all devices for one step, proved to be sound."""

    def __init__(self, handle: "_piper.Plan", model: Model):
        self._handle = handle
        self.model = model

    @property
    def devices(self) -> int:
        return self._handle.devices

    @property
    def hash(self) -> str:
        """Equal plans have equal hashes."""
        return self._handle.hash

    def check(self) -> str:
        """Reports what was proved; raises a PlanError (E405) if a device of the cluster has too little memory."""
        return self._handle.check()

    def memory(self) -> "Table":
        """The peak of every kind of device, to the byte, by category."""
        return Table(self._handle.memory(), self._handle.memory_table())

    def simulate(self, cluster: Union[str, os.PathLike, None] = None) -> "Simulation":
        """Simulates a step: time, bubbles, traffic. `cluster`: a name or a file; default: the one it was compiled for."""
        return Simulation(self._handle.simulate("" if cluster is None else path_of("cluster", cluster)), self.model.name)

    def timeline(self, cluster: Union[str, os.PathLike, None] = None) -> "Page":
        """The timeline page of a simulated step; shown in a notebook."""
        return self.simulate(cluster).page()

    def explain(self, node: str) -> str:
        """Why a node exists, what made it, what it waits for. `node`: a name, or a filter such as "{layer=3, pass=F, mb=0}"."""
        return self._handle.explain(node)

    def schedule(self) -> Schedule:
        """The schedule with its timelines written out as orders."""
        return Schedule()._take(self._handle.schedule())

    def order(self) -> str:
        """`0F0 0F1 (1F0;0B0)`: the passes of every kind of device."""
        return self._handle.timeline()

    def grid(self, columns: int = 100) -> str:
        """The same as a picture for the terminal."""
        return self._handle.grid(columns)

    def text(self, device: Optional[int] = None) -> str:
        """The plan itself, of one device or of all (docs/plan.md)."""
        return self._handle.text(device)

    def dag(self) -> str:
        """The training DAG behind it (docs/dag.md)."""
        return self._handle.dag()

    def __repr__(self) -> str:
        return f"<piper.Plan {self.hash} of {self.model.name} on {self.devices} devices>"


class Simulation:
    """A simulated step: `seconds`, `tokens_per_second`, `mfu`, `bubble`, `exposed` (communication that nothing hides), `peak` bytes."""

    def __init__(self, handle: "_piper.Simulation", label: str):
        self._handle = handle
        self._label = label

    def __getattr__(self, name: str):
        if name in ("seconds", "tokens_per_second", "mfu", "bubble", "exposed", "peak", "devices"):
            return getattr(self._handle, name)
        raise AttributeError(name)

    def page(self) -> "Page":
        return Page(self._handle.page(self._label))

    def trace(self) -> str:
        """Chrome's trace events, for Perfetto, `piper view` and `piper trace diff`."""
        return self._handle.trace()

    def __str__(self) -> str:
        return self._handle.text().rstrip("\n")

    def __repr__(self) -> str:
        return f"<piper.Simulation: {self.seconds:.6g} s>"


class Table:
    """Rows of numbers: a list of dictionaries that prints as a table; `frame()` is a pandas.DataFrame."""

    def __init__(self, rows: Sequence[dict], text: str):
        self.rows = list(rows)
        self._text = text

    def frame(self):
        import pandas

        return pandas.DataFrame(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


class Page:
    """The timeline page: one HTML file that needs nothing else. Shown in a notebook; `save` writes it."""

    def __init__(self, html: str):
        self.html = html

    def save(self, path: Union[str, os.PathLike]) -> None:
        with open(path, "w") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        import html

        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 600px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"<piper.Page of {len(self.html)} bytes: save it, or show it in a notebook>"


def compare(model: Model, schedules: dict[str, Union[Schedule, str]], cluster: Union[str, os.PathLike]) -> Table:
    """Schedules side by side on a cluster, the fastest first; those that are refused say why.

        print(piper.compare(graph, {"1F1B": one, "DualPipeV": two}, "h100"))
    """
    check_is("schedules", schedules, dict, 'a dictionary of names and schedules: {"1F1B": one}')
    rows = []
    for name, schedule in schedules.items():
        try:
            plan = compile(model, schedule, cluster, measure=False)
            plan.check()
            step = plan.simulate()
            rows.append({"schedule": name, "seconds": step.seconds, "tokens_per_second": step.tokens_per_second, "bubble": step.bubble,
                         "exposed": step.exposed, "peak": step.peak, "refused": ""})
        except Error as error:
            rows.append({"schedule": name, "seconds": float("inf"), "refused": f"{error.code}: {error.message}"})
    rows.sort(key=lambda row: row["seconds"])
    width = max(len(row["schedule"]) for row in rows)
    lines = [f"{'schedule':{width}}  milliseconds   bubble  exposed       peak"]
    for row in rows:
        if row["refused"]:
            lines.append(f"{row['schedule']:{width}}  {row['refused']}")
        else:
            lines.append(f"{row['schedule']:{width}}  {row['seconds'] * 1e3:12.3f}  {row['bubble']:6.1%}  {row['exposed']:6.1%}  "
                         f"{row['peak'] / 2**20:6.1f} MiB")
    return Table(rows, "\n".join(lines))
