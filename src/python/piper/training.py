"""Training: a captured model, a schedule and an optimizer, one batch at a time."""
from __future__ import annotations

import atexit
import functools
import itertools
import math
import os
import time
import warnings
import weakref
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

import torch

from . import _piper
from .callbacks import Callback, Prediction, check_callbacks, evaluation_numbers, numbers_of
from .capturing import Batch, Loss, Model, capture, use_gpu
from .diffing import Diff, diff as _diff
from .errors import (CaptureError, CheckpointError, RunError, ScheduleError, check_is, check_number, check_word, described, path_of,
                     refused as _refused)
from .fetching import FetchAhead
from .joining import backend as _backend, join
from .optimizers import SGD, Adafactor, AdamW, Lion, Muon, check_groups, check_optimizer
from .plans import Page, Plan, compile
from .schedule import Schedule


class StepResult(NamedTuple):
    """The result of a step."""

    loss: float
    """The mean over the batch."""
    microbatches: list[float]
    """The loss of every microbatch; their mean is the loss. If the loss counts tokens, all are divided by the count of the batch."""
    gradient_norm: float
    """Of all gradients, before clipping. With `accumulate`: nan in steps that do not update weights."""
    skipped: bool
    """Whether loss or gradients were not finite, so that nothing was updated."""
    seconds: float
    """From the start of the devices until the last has ended."""
    metrics: dict[str, float]
    """Values of `piper.metric`, and other scalars that the model or the loss returned: means over the batch. Of mixtures divided among devices
    further_rows: the part of all rows for experts that went in further rounds."""

    def __float__(self) -> float:
        return self.loss


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    loss: float
    """The mean over all batches together; if the loss counts tokens, over all tokens that count."""
    perplexity: float
    """e to the loss."""
    metrics: dict[str, float]
    """Those of `StepResult.metrics`, as means over all batches together."""
    batches: int
    """Their number."""
    seconds: float
    """Time that the devices took."""

    def __float__(self) -> float:
        return self.loss


class Resumed(NamedTuple):
    """Where a run resumes."""

    folder: str
    """The checkpoint."""
    step: int
    """Steps done."""
    samples: int
    """Samples consumed by them, of all replicas together: the position in the data, whatever the number of replicas."""
    extra: dict[str, str]
    """The texts that `save` was given."""


_KEPT = {"exp_avg": "moment1", "momentum_buffer": "moment1", "exp_avg_sq": "moment2"}
"""What entries of a state are in C++, where that has another name."""

_result = tuple.__new__  # of StepResult, without another call of Python


class Trainer:
    """Trains a model under a schedule, on devices of this process, or of several. No Python runs inside a step.

        with piper.Trainer(graph, schedule, optimizer=piper.AdamW(lr=1e-3), devices=4) as trainer:
            for batch in batches:
                loss = trainer.step(batch).loss
            model.load_state_dict(trainer.state_dict())

    - `model`: a captured model, or a module (then with `example_batch` and `loss`, as for `capture`). Its weights are copied to the devices
      once; the module itself does not change until you load the trainer's state back.
    - `schedule`: default: one device. `devices`: the number of devices that the schedule must have. `cluster`: for predictions of the step.
    - `optimizer`, `seed`. `clip`: the maximum norm of all gradients together; `clip_value`: the maximum absolute value of a gradient, applied
      after that. `on_nan`: "stop" at a step whose loss or gradients are not finite, or "skip" it. `accumulate`: the number of steps that make
      one update, with the mean of their gradients: a larger batch on the same plan.
    - `on`: "cuda": all devices share the GPU that PyTorch uses now, or, with several processes, each has one of its own; "cpu": they are
      threads. Default: what the model was captured for. `graphs`: on a GPU, "chunk" or "step" makes CUDA graphs. `deterministic`: on a GPU,
      the same bits in every run (torch.use_deterministic_algorithms, for the whole process).
    - `kernels`: "inductor": chunks are compiled by PyTorch's Inductor, once, and kept in `kernel_cache` (default: ~/.cache/piper/kernels);
      "eager": they run as recorded operators.
    - `threads`: of every device inside one operator; this is PyTorch's own setting of the process (torch.set_num_threads).
    - `callbacks`: objects that are called with the result of every step, see `piper.callbacks`.
    - `timeout`: seconds that an operation may take beyond ten times its longest time so far (30 times `timeout` if it has never ended); then
      the step fails.
    - `backend`: "local": the devices are in this process; "mpi": they are divided among the processes that `mpirun` started; "tcp": among
      those of `torchrun`. Default: as this process was started. All processes call the trainer's methods in the same order, each with the
      whole batch; weights are those of rank 0. `sharded`: each passes only its part of the batch; parts are equal, in the order of the ranks.
    """

    def __init__(self, model: Union[Model, torch.nn.Module], schedule: Union[Schedule, str, None] = None, *,
                 optimizer: Union[AdamW, SGD, Lion, Muon, Adafactor, None] = None, devices: Optional[int] = None,
                 example_batch: Optional[Batch] = None,
                 loss: Optional[Loss] = None, cluster: Optional[str] = None, seed: int = 0, clip: Optional[float] = None,
                 clip_value: Optional[float] = None, on_nan: str = "stop", accumulate: int = 1, callbacks: Sequence[Callback] = (), threads: int = 1, timeout: float = 10,
                 backend: Optional[str] = None, on: Optional[str] = None, graphs: str = "none", deterministic: bool = False,
                 kernels: str = "eager", kernel_cache: Union[str, os.PathLike, None] = None, sharded: bool = False):
        check_word("on_nan", on_nan, ("stop", "skip"))
        check_word("graphs", graphs, ("none", "chunk", "step"))
        check_number("seed", seed, int, 0, 2**63 - 1)
        check_number("threads", threads, int, 1, 1024)
        check_number("accumulate", accumulate, int, 1, 1_000_000)
        check_number("timeout", timeout, float, 0.1, 1e6)
        for what, given in (("clip", clip), ("clip_value", clip_value)):
            if given is not None:
                check_number(what, given, float)
        check_is("sharded", sharded, bool, "True or False")
        self._optimizer = check_optimizer(optimizer) if optimizer is not None else AdamW()
        self._callbacks = check_callbacks(callbacks)
        self.on = _place(model, on)
        if self.on == "cpu" and (graphs != "none" or deterministic):
            raise _refused(ScheduleError, "E105", "graphs and deterministic are for GPUs", 'on="cuda", or leave them out')
        where = _backend(backend)
        join(where, timeout)
        gpu = None
        if self.on == "cuda":  # before the model is captured and measured there
            gpu = use_gpu(deterministic=deterministic, graphs=graphs, together=where != "local", timeout=timeout)
        model = _captured(model, example_batch, loss, self.on)
        check_groups(self.optimizer, [name for name, _ in model.module.named_parameters()])
        values = _values(model.module)
        self.model = model
        _piper.set_threads(threads)
        schedule = schedule if schedule is not None else "devices(1)\nplace({}, devices=[0])\n"
        self._compile = functools.partial(compile, model, schedule, cluster, optimizer=self.optimizer, kernels=kernels,
                                          kernel_cache=kernel_cache)
        self.plan: Plan = self._compile()
        self._evaluation_plan: Optional[Plan] = None
        self._failed: Optional[_piper.Trainer] = None  # after a step that failed: what can still be read
        self._torn: Optional[_piper.Trainer] = None  # after a resumption that failed half-way: what can be set anew
        if devices is not None:
            check_number("devices", devices, int, 1, 2**24)
        if devices is not None and devices != self.plan.devices:
            raise _refused(ScheduleError, "E205", f"the schedule is for {self.plan.devices} devices, the trainer for {devices}",
                           "leave `devices` out, or change the mesh of the schedule")
        self.clip, self.clip_value, self.sharded, self.accumulate = clip, clip_value, bool(sharded), accumulate
        self._kind = self.optimizer._numbers()[0]
        self._names, self._flatten = model._frontend.names, model._frontend.flatten
        self._handle: Optional[_piper.Trainer] = _piper.Trainer(self.plan._handle, values, seed, clip, clip_value, on_nan == "skip",
                                                                accumulate, timeout, where != "local", gpu)
        _open.add(self)
        if _piper.rank() != 0:
            self._callbacks = ()
        self._tokens = model.batch * model._frontend.sequence
        self._waited: Optional[float] = None  # seconds, for the batch of the next step
        self._prediction: Optional[Prediction] = None
        if self._callbacks and cluster is not None:
            simulated = self.plan.simulate()
            self._prediction = Prediction(simulated.seconds, simulated.mfu * simulated.seconds)
        for callback in self._callbacks:
            callback.on_begin(self, self._description(seed))
        if turns := self._handle.one_at_a_time():
            warnings.warn(f"piper: the devices of this process take turns with depthwise convolutions ({', '.join(turns)}): on this kind of "
                          "machine PyTorch cannot run them on several threads at a time; processes with one device each can", stacklevel=2)

    def step(self, batch: Batch) -> StepResult:
        """One step on a whole batch, which must look like the example.

        Raises a RunError if it fails. After a step that is not finite (E803) the trainer continues with the state before it; with
        `accumulate` the steps of that update are taken again, so `steps` is that of the first of them. After any other
        failure it takes no more steps; its weights, those after the last whole step, can be read, saved and evaluated, unless the
        failure came while they were being updated, or the trainer is one of several processes.
        """
        handle = self._handle or self._running()
        try:
            result = _result(StepResult, handle.step(batch, self._names, self._flatten, self._optimizer._numbers(), self.sharded))
        except RunError as error:
            if error.code != "E803":
                self._give_up(handle)
            raise
        if self._callbacks:
            numbers = numbers_of(result, self._optimizer.lr, self._tokens, handle.peak_bytes, self._prediction, self._waited)
            self._waited = None
            for callback in self._callbacks:
                callback.on_step(self, handle.steps - 1, numbers)
        return result

    def _description(self, seed: int) -> dict:
        """Of the run, for callbacks."""
        return {"model": self.model.name, "schedule": None, "plan_hash": self.plan.hash,
                "parameters": sum(value.numel() for value in self.model.module.parameters()), "devices": self.plan.devices,
                "batch": self.model.batch, "sequence": self.model._frontend.sequence, "seed": seed,
                "planned_peak_bytes": max(row["peak"] for row in self.plan.memory()),
                "predicted_seconds": None if self._prediction is None else self._prediction.seconds}

    def train(self, batches: Iterable[Batch], *, steps: Optional[int] = None, ahead: int = 2) -> Iterator[StepResult]:
        """A step on each batch of an iterable, such as a DataLoader; batches are fetched on a thread while steps run.

            for result in trainer.train(loader, steps=1000):
                print(result.loss)

        Ends after `steps` steps, or with the batches. `ahead`: the number of batches fetched in advance. The loop's body runs before the next step.
        To save the position of a loader that has a `state_dict`, use `piper.FetchAhead` yourself.
        """
        check_number("ahead", ahead, int, 1, 1_000_000)
        if steps is not None:
            check_number("steps", steps, int, 0, 10**15)
        with FetchAhead(batches, ahead=ahead) as fetched:
            for _ in range(steps) if steps is not None else itertools.count():
                begin = time.perf_counter()
                try:
                    batch = next(fetched)
                except StopIteration:
                    return
                self._waited = time.perf_counter() - begin
                yield self.step(batch)

    def evaluate(self, batches: Iterable[Batch]) -> Evaluation:
        """Loss, perplexity and metrics of batches that look like those of steps, with the weights as they are: all batches together.

            print(trainer.evaluate(held_out).perplexity)

        The devices run the forward passes of the schedule, in a plan of their own (`evaluation_plan`), with the module in evaluation mode:
        without dropout, with the running statistics of norms. Training is not affected: the next step is the same with and
        without an evaluation before it. If the loss counts tokens, all batches are kept until their tokens are counted.
        """
        out = self._evaluated(batches)
        self._tell(out, out.batches * self.model.batch)
        return out

    def _tell(self, evaluation: Evaluation, samples: int) -> None:
        """Callbacks, of an evaluation of so many samples."""
        for callback in self._callbacks:
            callback.on_evaluate(self, self._readable().steps, evaluation_numbers(evaluation, samples * self.model._frontend.sequence))

    def _evaluated(self, batches: Iterable[Batch]) -> Evaluation:
        handle = self._readable()
        if isinstance(batches, (Mapping, torch.Tensor, str)) or not hasattr(batches, "__iter__"):
            raise _refused(ScheduleError, "E105", f"batches is {described(batches)}", "an iterable of batches; of one: trainer.evaluate([batch])")
        try:
            handle.prepare_evaluation(self.evaluation_plan._handle, _values(self.model.module))
            handle.begin_evaluation()
            done = 0
            for together in [list(batches)] if self.model._handle.counts else ([batch] for batch in batches):
                handle.evaluate(together, self._names, self._flatten)
                done += len(together)
            if done == 0:
                raise _refused(ScheduleError, "E105", "there are no batches to evaluate", "give at least one")
            return Evaluation(*handle.end_evaluation())
        except RunError:
            if not handle.readable:
                self.close()
            raise

    @property
    def evaluation_plan(self) -> Plan:
        """The plan that `evaluate` runs, to see its memory and order. Compiled when it is first used."""
        if self._evaluation_plan is None:
            self._evaluation_plan = self._compile(evaluation=True)
        return self._evaluation_plan

    def diff(self, module: Optional[torch.nn.Module], batch: Batch, *, tolerance: Optional[float] = None, find_nan: bool = False) -> Diff:
        """Where the next step, on this batch, would compute something wrong. Neither the trainer nor the module changes.

        The step is compared operation by operation with one device that runs the same slices, and that with PyTorch: `module` with the
        trainer's weights, slice by slice: what annotated modules return, the loss, gradients, weights after the update.
        `tolerance`: relative to the norm; default: 1e-12 of float64, 1e-5 of float32, 2e-2 of bfloat16.
        `find_nan`: compare nothing; find the first number that is not finite, and the operator that made it. `module` may then be None.

            print(trainer.diff(model, batch))
        """
        return _diff(self, module, batch, tolerance, find_nan)

    @property
    def optimizer(self) -> Union[AdamW, SGD, Lion, Muon, Adafactor]:
        """Its settings may be changed between steps, and it may be replaced by another of the same kind."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Union[AdamW, SGD, Lion, Muon, Adafactor]) -> None:
        given, own = check_optimizer(optimizer).describe(), self._optimizer.describe()
        for what in ("gradients", "master", "moments"):
            if given[what] != own[what]:
                raise _refused(ScheduleError, "E105",
                               f"{what} of the optimizer are {given[what] or 'as usual'}, the plan is for {own[what] or 'the usual ones'}",
                               "make a new trainer: memory depends on it")
        self._optimizer = optimizer

    @property
    def steps(self) -> int:
        """Number of steps taken so far."""
        return self._readable().steps

    @property
    def samples(self) -> int:
        """Number of samples that they consumed: the position in the data. It counts on after `resume`, also with another size of batches."""
        return self._readable().samples

    @property
    def rank(self) -> int:
        """The rank of this process among `processes`; 0 if it is alone."""
        return _piper.rank()

    @property
    def processes(self) -> int:
        """Number of processes that run the job together."""
        return _piper.processes()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights and buffers as they are now, with the names and shapes of the module's own `state_dict()`: copies on the CPU."""
        handle, out, own = self._readable(), {}, _canonical(self.model.module)
        for name, value in self.model.module.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                out[name] = value
                continue
            trained = handle.kept(own.get(id(value), name), "weight")
            if trained is None:
                trained = handle.buffer(own.get(id(value), name), value)
            out[name] = value.detach().to("cpu", copy=True) if trained is None else trained.reshape(value.shape)
        return out

    def optimizer_state_dict(self) -> dict:
        """The optimizer's state, with the names and shapes of the module's parameters, independent of the schedule: copies.

            {"steps": 100, "samples": 800, "updates": 100, "kind": "adamw", "state": {"head.weight": {"exp_avg": ..., "exp_avg_sq": ...}, ...}}

        It has `exp_avg` and `exp_avg_sq` of AdamW, `momentum_buffer` of SGD with momentum and of Muon, `exp_avg_sq_row` and `exp_avg_sq_col`
        of Adafactor (`exp_avg_sq` of its vectors), `ema`, `master` where the optimizer keeps its own copy of the
        weights. With `state_dict()` it is all that a run needs to resume, also under another schedule.
        """
        handle, state = self._readable(), {}
        for name, value in self.model.module.named_parameters():
            kept = {what: handle.kept(name, what) for what in ("moment1", "moment2", "master", "ema")}
            entries = {self._entry(what, kept["moment2"] is not None): one for what, one in kept.items() if one is not None}
            if (whole := handle.kept(name, "whole")) is not None:
                entries |= _by_name(whole, value.shape)
            if entries:
                state[name] = entries
        return {"steps": handle.steps, "samples": handle.samples, "updates": handle.updates, "kind": self._kind, "state": state}

    def load_optimizer_state_dict(self, state: Mapping) -> None:
        """Loads what `optimizer_state_dict` returned. Call it after `load_state_dict`, which resets the optimizer."""
        check_is("the state", state, Mapping, "what optimizer_state_dict() gave")
        if not {"kind", "state", "steps", "updates"} <= state.keys() or not isinstance(state["state"], Mapping):
            raise _refused(ScheduleError, "E105", "the state is not that of an optimizer of Piper", "load what optimizer_state_dict() gave")
        for count in ("steps", "updates"):
            check_number(f"{count} of the state", state[count], int, 0, 2**40)
        samples = state.get("samples", state["steps"] * self.model.batch)  # older ones have none
        check_number("samples of the state", samples, int, 0, 2**62)
        own = self.optimizer_state_dict()
        if state["kind"] != self._kind:
            raise _refused(ScheduleError, "E105", f"the state is one of {state['kind']}, the optimizer is {self._kind}",
                           "make the trainer with the optimizer that the state comes from")
        for name, entries in own["state"].items():
            for entry, value in entries.items():
                entries_given = state["state"].get(name, {})
                given = entries_given.get(entry) if isinstance(entries_given, Mapping) else None
                if given is not None:
                    check_is(f"{entry} of {name}", given, torch.Tensor, "a tensor")
                if given is None or given.shape != value.shape:
                    what = "is missing" if given is None else f"has shape {list(given.shape)}, not {list(value.shape)}"
                    raise _refused(ScheduleError, "E105", f"{entry} of {name} {what}", "load the state of the same model and optimizer")
        handle = self._running()
        for name, entries in own["state"].items():
            given = {entry: state["state"][name][entry].detach() for entry in entries}
            if self._kind == "adafactor":
                handle.set_kept(name, "whole", torch.cat([given.pop(entry).reshape(-1) for entry in entries if entry.startswith("exp_avg_sq")]))
            for entry, value in given.items():
                handle.set_kept(name, _KEPT.get(entry, entry), value)
        handle.set_progress(state["steps"], samples, state["updates"])

    def _entry(self, kept: str, two_moments: bool) -> str:
        """The name in a state of what C++ calls so."""
        if kept == "moment1":
            return "exp_avg" if two_moments or self._kind == "lion" else "momentum_buffer"
        return "exp_avg_sq" if kept == "moment2" else kept

    def ema_state_dict(self) -> dict[str, torch.Tensor]:
        """As `state_dict`, with the exponential moving average of the weights that the optimizer's `ema` keeps: for `model.load_state_dict(...)`, to
        evaluate or export it."""
        if self._optimizer.ema is None:
            raise _refused(ScheduleError, "E105", "no exponential moving average of the weights is kept", "piper.AdamW(ema=0.999)")
        handle, out, own = self._running(), self.state_dict(), _canonical(self.model.module)
        for name, value in self.model.module.state_dict(keep_vars=True).items():
            mean = handle.kept(own[id(value)], "ema") if isinstance(value, torch.Tensor) and id(value) in own else None
            if mean is not None:
                out[name] = mean.to(value.dtype).reshape(value.shape)
        return out

    def save(self, folder: Union[str, os.PathLike], *, keep: Optional[int] = None, keep_every: Optional[int] = None,
             extra: Optional[Mapping[str, str]] = None, shard_size: int = 5_000_000_000, wait: bool = False) -> str:
        """Saves the run in a new folder `folder/step-00001000`, and returns its path. It is written while training continues, and a failure is a
        warning. With `wait`, it is written when the call returns, and a failure is a CheckpointError.

        The folder is a model folder of Hugging Face: `AutoModel.from_pretrained(path)` loads the weights of a module of transformers. It does not
        depend on the schedule: any trainer of the same model can resume from it. `keep`: only this many of the newest stay, and those whose step
        is a multiple of `keep_every`. `extra`: texts that `resume` returns. In several processes all call it, with a folder that all can
        reach.
        """
        for what, given in (("keep", keep), ("keep_every", keep_every), ("shard_size", shard_size)):
            if given is not None:
                check_number(what, given, int, 1, 2**60)
        folder = path_of("the folder of checkpoints", folder)
        check_is("extra", extra, (Mapping, type(None)), "a dictionary of texts")
        for name, text in (extra or {}).items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise _refused(ScheduleError, "E105", f"extra has {described(text)} as {name}", 'texts by name: extra={"epoch": "2"}')
        handle, rate = self._readable(), float(self._optimizer._numbers()[1])
        if handle.steps % self.accumulate:
            raise _refused(CheckpointError, "E903", f"step {handle.steps} is not the last of {self.accumulate} that make an update",
                           "gradients are not saved: save after a step that updates the weights")
        path = handle.save(folder, keep or 0, keep_every or 0, self._save_form(shard_size), rate, dict(extra or {}))
        _warn_of(handle.failed_saves(False))  # before this one
        for problem in handle.failed_saves(True) if wait else ():
            raise _refused(CheckpointError, "E903", problem, "older checkpoints stay as they are; the run can continue")
        return path

    def resume(self, folder: Union[str, os.PathLike]) -> Optional[Resumed]:
        """Resumes from a checkpoint, or from the newest sound one in `folder`. Returns None, and changes nothing, if there is none.

            done = trainer.resume("checkpoints")
            for batch in itertools.islice(batches, done.step if done else 0, None): ...

        Weights, buffers, the optimizer's state, the counts of samples and of steps, from which dropout draws, become those of the checkpoint.
        Damaged ones are skipped with a warning. Raises a CheckpointError for a checkpoint of another model (E904), of a run with another seed or
        in the middle of an update (E905), or if `folder` is a damaged one (E902). If damage is found when some weights are replaced
        already, the trainer refuses everything but another `resume`, or `load_state_dict`.
        """
        folder = path_of("the folder of checkpoints", folder)
        handle = self._torn or self._running()
        try:
            found = handle.resume(folder, self._save_form(5_000_000_000))
        except CheckpointError:
            if handle.half_restored:
                self._handle, self._torn = None, handle
            raise
        if found is None:
            return None
        self._handle, self._torn = handle, None
        path, step, samples, extra, left_out = found
        for problem in left_out:
            warnings.warn(f"piper: a checkpoint is damaged and left out: {problem}", RuntimeWarning, stacklevel=2)
        return Resumed(path, step, samples, extra)

    def _save_form(self, shard_size: int) -> tuple:
        """Names in the graph and in files, values that no step uses, further files."""
        module = self.model.module
        own = set(_canonical(module).values())
        names, constants = [], {}
        for name, value in module.state_dict(keep_vars=True).items():
            if isinstance(value, torch.Tensor) and name in own:  # of tied weights one
                names.append((name, name))
                constants[name] = value.detach()
        return names, constants, _texts(module), shard_size

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Sets weights and buffers, and resets the optimizer. `state` has the names of `module.state_dict()`; tied weights may occur once."""
        check_is("the state", state, Mapping, "what state_dict() gave, of the trainer or of the module")
        values, missing = _values(self.model.module), []
        names = _aliases(self.model.module)
        for name, value in values.items():
            given = next((state[alias] for alias in names[name] if alias in state), None)
            if given is None:
                if names[name] & set(self.model.module.state_dict()):
                    missing.append(name)
                continue
            check_is(name, given, torch.Tensor, "a tensor")
            if given.shape != value.shape:
                raise _refused(ScheduleError, "E105", f"{name} has shape {list(given.shape)}, the model's is {list(value.shape)}",
                               "load the state of the same model")
            values[name] = given.detach()
        if missing:
            raise _refused(ScheduleError, "E105", f"the state has no {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}",
                           "load the state of the same model")
        handle = self._torn or self._running()
        handle.set_parameters(values)
        self._handle, self._torn = handle, None

    def table(self) -> str:
        """How each device spent the last step, and its planned and measured memory."""
        return self._running().table()

    def timeline(self) -> Page:
        """The timeline page of the last steps, as measured."""
        return Page(self._running().page(self.model.name))

    def trace(self) -> str:
        """The same as Chrome's trace events."""
        return self._running().trace()

    def close(self) -> None:
        """Ends the threads of the devices and frees their memory. Done at the end of `with`, and at exit."""
        handle = self._handle or self._failed or self._torn
        self._handle = self._failed = self._torn = None
        if handle is not None:
            _warn_of(handle.failed_saves(True))
            handle.close()  # a traceback may hold it for long
            for callback in self._callbacks:
                callback.on_end(self)
        _open.discard(self)

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _give_up(self, handle: "_piper.Trainer") -> None:
        """No more steps; what can be read stays."""
        if handle.readable:
            self._handle, self._failed = None, handle
        else:
            self.close()

    def _running(self) -> "_piper.Trainer":
        if self._torn is not None:
            raise _refused(CheckpointError, "E902", "some weights are those of a checkpoint that was found damaged while it was read",
                           "resume from a sound one, or set all with load_state_dict")
        if self._handle is None:
            raise _refused(RunError, "E801", "this trainer is over: it was closed, or a step failed", "make a new one")
        return self._handle

    def _readable(self) -> "_piper.Trainer":
        return self._failed or self._running()


_open: "weakref.WeakSet[Trainer]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads end before the interpreter does, and the processes leave each other."""
    for trainer in list(_open):
        trainer.close()
    _piper.leave_processes()


def _place(model: Union[Model, torch.nn.Module], on: Optional[str]) -> str:
    """What computes: as it is wanted, or as the model was captured for."""
    if on is not None:
        check_word("on", on, ("cpu", "cuda"))
    check_is("the model", model, (Model, torch.nn.Module), "what piper.capture gave, or a torch.nn.Module")
    if isinstance(model, torch.nn.Module):
        return on or "cpu"
    if on not in (None, model.on):
        raise _refused(ScheduleError, "E105", f'on is "{on}", but the model was captured for "{model.on}"',
                       f'piper.capture(..., on="{on}"): PyTorch chooses other operators there')
    return model.on


def _captured(model: Union[Model, torch.nn.Module], example_batch: Optional[Batch], loss: Optional[Loss], on: str) -> Model:
    """A model with code and values."""
    if isinstance(model, torch.nn.Module):
        if example_batch is None:
            raise _refused(CaptureError, "E605", "a module is captured first, and that needs an example of a batch",
                           "piper.Trainer(model, schedule, example_batch=batch, loss=...), or piper.Trainer(piper.capture(...), schedule)")
        model = capture(model, example_batch, loss, on=on)
    if model.module is None:
        raise _refused(CaptureError, "E605", f"{model.name} has no code to run: it was read from a file",
                       "capture a torch.nn.Module: piper.capture(model, example_batch, loss=...)")
    on_meta = [name for name, value in _values(model.module).items() if value.is_meta]
    if on_meta:
        raise _refused(CaptureError, "E605", f"{len(on_meta)} of the model's tensors are on the meta device and have no values: "
                       f"{', '.join(on_meta[:3])}", "give it weights first: model.to_empty(device=\"cpu\"), then initialise or load them")
    return model


def _warn_of(failed_saves: list[str]) -> None:
    for problem in failed_saves:
        warnings.warn(f"piper: a checkpoint was not written: {problem}", RuntimeWarning, stacklevel=3)


def _texts(module: torch.nn.Module) -> dict[str, str]:
    """The configurations with which transformers makes the module again."""
    out = {}
    for attribute, file in (("config", "config.json"), ("generation_config", "generation_config.json")):
        config = getattr(module, attribute, None)
        if callable(getattr(config, "to_json_string", None)):
            out[file] = config.to_json_string()
    return out


def _values(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers under the names that the graph has for them."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def _by_name(whole: torch.Tensor, shape: Sequence[int]) -> dict[str, torch.Tensor]:
    """What Adafactor keeps for a parameter: of a vector all squares, else the means of rows, and behind them those of columns."""
    if len(shape) < 2:
        return {"exp_avg_sq": whole.reshape(shape)}
    rows = math.prod(shape[:-1])
    return {"exp_avg_sq_row": whole[:rows].reshape(shape[:-1]), "exp_avg_sq_col": whole[rows:].reshape(*shape[:-2], shape[-1])}


def _canonical(module: torch.nn.Module) -> dict[int, str]:
    """From tensors to those names: tied weights have one."""
    return {id(value): name for name, value in (*module.named_parameters(), *module.named_buffers())}


def _aliases(module: torch.nn.Module) -> dict[str, set[str]]:
    """By that name: all names under which the tensor stands in a state_dict."""
    own = _canonical(module)
    out: dict[str, set[str]] = {name: {name} for name in own.values()}
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) in own:
            out[own[id(value)]].add(name)
    return out
