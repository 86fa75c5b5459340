"""From a torch.nn.Module to a graph that can be compiled and run."""
from __future__ import annotations

import contextlib
import copy
import linecache
import os
import traceback
import warnings
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import torch

from . import _piper, _torch
from .annotation import watched
from .errors import CaptureError, CaptureWarning, Error, check_is, check_number, check_word, described, path_of
from .hooks import check_hooks, recorded
from .metrics import collected

Batch = Union[Mapping[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]
Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
Weight = Callable[[Any], torch.Tensor]


class Model:
    """A model as the compiler sees it: chunks, the values between them, parameters. Made by `capture` and `load_model`."""

    def __init__(self, handle: "_piper.Model", module: Optional[torch.nn.Module] = None, frontend: Optional["_Frontend"] = None):
        self._handle = handle
        self.module = module
        self._frontend = frontend

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def batch(self) -> int:
        """Samples of one step."""
        return self._handle.batch

    @property
    def on(self) -> str:
        """What it was captured for: "cpu" or "cuda"."""
        return "cpu" if self._frontend is None else self._frontend.on

    @property
    def chunks(self) -> list[str]:
        """Maximal runs of operators of one scope, in order of execution: the units that schedules place and order."""
        return self._handle.chunks()

    @property
    def parameters(self) -> dict[str, tuple[str, tuple[int, ...], bool]]:
        """By name: dtype, shape, and whether it is trained."""
        return {name: (dtype, tuple(sizes), trained) for name, dtype, sizes, trained in self._handle.parameters()}

    @property
    def unshardable(self) -> list[str]:
        """Why regions of experts cannot be divided, as the program would print it; empty if all can."""
        return self._handle.unshardable()

    def text(self) -> str:
        """The text form, which `piper compile` and `load_model` read."""
        return self._handle.text()

    def operators(self) -> str:
        """Every recorded operator call of one slice, a line each."""
        return self._handle.operators()

    def inputs_of(self, batch: Batch) -> list[torch.Tensor]:
        """The tensors of a batch, in the order in which the graph takes them."""
        return self._frontend.flatten(batch)

    def __repr__(self) -> str:
        return f"<piper.Model {self.name}: {len(self.chunks)} chunks, batch {self.batch}>"


def load_model(spec: str, *, batch: Optional[int] = None, sequence: Optional[int] = None, tensor_parallel: bool = False,
               vocabulary: bool = False) -> Model:
    """Loads a model that can be compiled and simulated but not trained: "analytic:NAME", a configuration (.toml) or a text form.

    `batch`, `sequence`: samples of a step and tokens of a sample, if not those of the model. `tensor_parallel`: for a schedule with tensor
    parallelism, layers consist of smaller chunks; with `vocabulary`, embedding and head too.

        piper.load_model("analytic:qwen3-0.6b", batch=64, sequence=4096)
    """
    return Model(_piper.Model.load(path_of("the model", spec), batch, sequence, tensor_parallel, vocabulary))


def capture(model: torch.nn.Module, example_batch: Batch, loss: Optional[Loss] = None, *, batch: Optional[int] = None,
            name: Optional[str] = None, on: str = "cpu", loss_weight: Optional[Weight] = None, loss_block: Optional[int] = None,
            saved_activations: Optional[str] = None) -> Model:
    """Runs the model once, forward and backward, on fake tensors, and records every operator.

    `example_batch`: a dictionary, a sequence or one tensor; the first dimension of every tensor is the samples. Values do not matter.
    `loss`: a function of the model and a batch that returns the mean loss of the batch, a scalar. Without it the model is called with the batch
    (`model(**batch)` or `model(*batch)`), and its result is the loss, or has it as `.loss`, `["loss"]` or first item.
    `loss_weight`: a function of a batch that returns the count over which its loss is a mean, for example of tokens that are not padding. Not
    needed where the loss itself divides by such a count: `cross_entropy` with ignored labels, a sum divided by that of a mask.
    `loss_block`: tokens whose logits are computed at a time, if the loss is a cross entropy over a vocabulary; 0: all. Default: twice
    the hidden size, 1,024 at least, if the vocabulary has 32,768 tokens or more.
    `saved_activations`: what forward saves for backward: "recorded", as autograd does; "fewest", without what pointwise operators can
    recompute. Default: "fewest" with `kernels="inductor"`.
    `batch`: samples of one step, if not those of the example.
    `on`: where it will run, "cpu" or "cuda": operators are those that PyTorch chooses there. "cuda" needs a GPU (E807). The model and the
    example may be on any device.

    The model may be on the meta device; its weights are never copied. Gradients of all parameters that require one are captured.
    What the model computes may depend on shapes, not on values (E601).

        graph = piper.capture(model, {"input_ids": ids, "labels": ids})
        graph = piper.capture(model, (x, y), loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))
    """
    check_is("the model", model, torch.nn.Module, "a torch.nn.Module")
    if name is not None:
        check_is("name", name, str, "a text")
    if loss is not None and not callable(loss):
        raise _refused(f"loss is {described(loss)}", "it is a function of the model and a batch: loss=lambda model, batch: ...")
    if not isinstance(example_batch, (Mapping, Sequence, torch.Tensor)) or isinstance(example_batch, str):
        raise _refused(f"the example of a batch is {described(example_batch)}", "a dictionary of tensors, a sequence of tensors, or one tensor")
    check_word("on", on, ("cpu", "cuda"))
    if batch is not None:
        check_number("batch", batch, int, 1, 2**40)
    if saved_activations is not None:
        check_word("saved_activations", saved_activations, ("recorded", "fewest"))
    if loss_block is not None:
        check_number("loss_block", loss_block, int, 0, 2**31 - 1)
    if on == "cuda":
        use_gpu()
    check_hooks(model)
    if loss_weight is not None and not callable(loss_weight):
        raise _refused(f"loss_weight is {loss_weight!r}", _LOSS_WEIGHT)
    frontend = _Frontend(model, example_batch, loss, on, loss_weight)
    frontend.loss_block, frontend.saved_activations = loss_block, saved_activations
    handle = _record(frontend, name or type(model).__name__, batch or frontend.samples)
    if frontend.checkpointed:
        warnings.warn("piper: torch.utils.checkpoint in the model has no effect: the schedule decides what is computed again, with "
                      "recompute({layer=*})", CaptureWarning, stacklevel=2)
    if loss_weight is not None and not handle.counts:
        raise _refused("loss_weight is not computed from sums over the batch", _LOSS_WEIGHT)
    for op, scope in handle.uncounted()[:1]:
        warnings.warn(f"piper: the loss divides by a number of the slice ({op} in {scope}) of which it is not known what it counts, so it "
                      "depends on how the batch is cut: a step trains on the mean over the slices' losses; say what is counted with "
                      "loss_weight=", CaptureWarning, stacklevel=2)
    if mixed := handle.mixed_samples():
        warnings.warn(f"piper: the loss relates every sample to every other ({mixed[0]} in {mixed[1]}), here to those of its slice only, so "
                      "it depends on how the batch is cut; with one slice it is that of the batch", CaptureWarning, stacklevel=2)
    return Model(handle, model, frontend)


def evaluated(model: Model) -> Model:
    """The same model as it is evaluated: captured while its modules are in evaluation mode."""
    if model._frontend is None:
        return model
    frontend = copy.copy(model._frontend)
    frontend.evaluates = True
    return Model(_record(frontend, model.name, model.batch), model.module, frontend)


def _record(frontend: "_Frontend", name: str, batch: int) -> "_piper.Model":
    try:
        return _piper.Model.capture(frontend, name, frontend.parameters, frontend.buffers, frontend.originals, frontend.specs, batch,
                                    frontend.sequence, frontend.weights, frontend.device, frontend.declares_count,
                                    frontend.loss_block, frontend.saved_activations or "", frontend.evaluates)
    except Error as error:
        problem = frontend.failure_behind(error)
        raise problem from problem.__cause__


@contextlib.contextmanager
def _evaluation_mode(module: torch.nn.Module):
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def use_gpu(*, deterministic: bool = False, graphs: str = "none", together: bool = False, timeout: float = 10) -> "_piper.Gpu":
    """Of this process: the one that PyTorch uses now; among processes that train together, one that no other has. E807: there is none."""
    gpu = torch.cuda.current_device() if torch.cuda.is_available() else 0
    return _piper.Gpu.use(gpu, deterministic, graphs, together, timeout)


class _Frontend:
    """The Python side of recordings: what C++ calls to run the model."""

    def __init__(self, model: torch.nn.Module, example: Batch, loss: Optional[Loss], on: str, loss_weight: Optional[Weight] = None):
        self.on = on
        self.device = "cpu" if on == "cpu" else f"cuda:{torch.cuda.current_device()}"  # of fake tensors
        self.model = _WithLoss(model, loss, loss_weight)
        self.declares_count = loss_weight is not None
        self.evaluates = False  # modules are in evaluation mode while they run
        self._fake = _torch.fake_mode()
        self._example = example
        self._names = list(example) if isinstance(example, Mapping) else None  # otherwise a sequence, or one tensor
        self.names = tuple(self._names or ())
        tensors = self.flatten(example)
        names = [f"input{i}" for i in range(len(tensors))] if self._names is None else list(map(str, self._names))
        self.samples = tensors[0].shape[0]
        for name, tensor in zip(names, tensors):
            if tensor.dim() == 0 or tensor.shape[0] != self.samples:
                raise _refused(f"input {name} has shape {list(tensor.shape)}: the first dimension of every input is the samples, here "
                               f"{self.samples}")
        self.specs = [(name, _dtype(tensor), list(tensor.shape[1:])) for name, tensor in zip(names, tensors)]
        self.sequence = max((tensor.shape[1] for tensor in tensors if tensor.dim() == 2 and not tensor.is_floating_point()), default=1)
        self._fakes: dict[int, torch.Tensor] = {}  # by id of what they stand for
        self.parameters, self.buffers = self._faked(model.named_parameters()), self._faked(model.named_buffers())
        self.originals = [*model.named_parameters(), *model.named_buffers()]
        for (_, value), (_, original) in zip(self.parameters, model.named_parameters()):
            for hook in (original._backward_hooks or {}).values():
                value.register_hook(recorded(hook, self._fail))
        trained = [value for _, value in self.parameters if value.requires_grad]
        self.weights = _dtype(max(trained, key=torch.Tensor.numel)) if trained else "float32"
        self._failure: Optional[BaseException] = None
        self.checkpointed = False  # torch.utils.checkpoint was met

    def version(self) -> str:
        """What the code of the modules may depend on besides tensors: when it changes, the code runs again."""
        plain = (bool, int, float, str, type(None))

        def settings(of) -> list:
            return [(name, value) for name, value in vars(of).items() if isinstance(value, plain)]

        return repr([(name, settings(module), settings(module.config) if hasattr(getattr(module, "config", None), "__dict__") else None)
                     for name, module in self.model.named_modules()])

    def _faked(self, tensors) -> list[tuple[str, torch.Tensor]]:
        out = []
        for name, value in tensors:
            self._fakes[id(value)] = _torch.fake_like(self._fake, value, self.device)
            out.append((name, self._fakes[id(value)]))
        return out

    def flatten(self, batch: Batch) -> list[torch.Tensor]:
        """Called for every step, unless the batch is a plain dictionary with these names."""
        if self._names is not None:
            try:
                tensors = [batch[name] for name in self._names]
                whole = len(batch) == len(tensors)
            except (KeyError, TypeError, IndexError):
                whole = False
            if not whole:
                raise _refused(f"a batch is a dictionary with {', '.join(map(str, self._names))}, as in the example")
        elif isinstance(self._example, torch.Tensor):
            tensors = [batch]
        else:
            if not isinstance(batch, Sequence) or len(batch) != len(self._example):
                raise _refused(f"a batch is a sequence of {len(self._example)} tensors, as in the example")
            tensors = list(batch)
        for tensor in tensors or [None]:
            if not isinstance(tensor, torch.Tensor):
                raise _refused("a batch consists of tensors only",
                               "give what does not change from batch to batch to the model in `loss`: loss=lambda model, batch: "
                               "model(**batch, use_cache=False).loss")
        return tensors

    def _batch(self, tensors: list[torch.Tensor]):
        if self._names is not None:
            return dict(zip(self._names, tensors))
        return tensors[0] if isinstance(self._example, torch.Tensor) else tuple(tensors)

    def loss(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """Called while every operator is recorded."""
        self._failure = None
        try:
            mode = _evaluation_mode(self.model.model) if self.evaluates else contextlib.nullcontext()
            with mode, watched(self.model.model), _rebound(self.model, self._fakes), collected(self.model.metrics):
                return self.model(self._batch(tensors))
        except BaseException as failure:
            self._failure = failure
            raise

    def metrics(self) -> list[tuple[str, torch.Tensor]]:
        """Of the last call of `loss`."""
        return list(self.model.metrics.items())

    def mode(self):
        """In which everything is fake, forward and backward."""
        return _torch.recording(self._fake, self._note_checkpoint, lambda hook: recorded(hook, self._fail), _check_conversion)

    def _fail(self, failure: BaseException) -> BaseException:
        """Kept: backward makes another exception of it."""
        self._failure = failure
        return failure

    def _note_checkpoint(self) -> None:
        self.checkpointed = True

    def place(self, failure: BaseException):
        """The last line of somebody's own code: file, its text, first and last byte of the line."""
        ours = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)
        frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if not frame.filename.startswith(ours)]
        if not frames:
            return None
        file, line = frames[-1].filename, frames[-1].lineno
        lines = linecache.getlines(file)
        if not lines or line > len(lines):
            return None
        begin = sum(len(text.encode()) for text in lines[:line - 1])
        text = lines[line - 1]
        indent = len(text) - len(text.lstrip())
        return file, "".join(lines), begin + indent, begin + len(text.rstrip().encode())

    def failure_behind(self, error: Error) -> BaseException:
        """What to raise: our refusal, because of what the model's code threw; or that itself."""
        if isinstance(self._failure, Error) or (self._failure is not None and not isinstance(self._failure, Exception)):
            return self._failure
        error = _with_way_out(error)
        error.__cause__ = self._failure
        return error


# What depends on values, by a word of the line that asks for them.
_WAYS_OUT = {
    "layerdrop": "layers that are skipped at random: set `layerdrop` of the modules that have it to 0",
    "one_hot(": "say how many classes there are: one_hot(x, num_classes=n)",
    "expert": 'a loop over experts: model.set_experts_implementation("batched_mm"), or piper.integrations.transformers.use(model), before capture; '
              "experts that are modules of their own: sum(expert(x) * weights[:, i:i + 1] for i, expert in enumerate(experts))",
}


def _with_way_out(error: Error) -> Error:
    """The same, with what helps there and nowhere else."""
    if error.code != "E601" or error.place is None:
        return error
    line = linecache.getline(error.place.file, error.place.line)
    help = next((way for word, way in _WAYS_OUT.items() if word in line), None)
    if help is None:
        return error
    return type(error)(f"{error.args[0].rstrip()}\nhelp: {help}\n", error.code, error.title, error.message, error.place, error.notes,
                       (*error.help, help))


def _check_conversion(module: torch.nn.Module, convert: Callable, recurse: bool = True) -> torch.nn.Module:
    """In the place of module.to() and its kin: one that changes nothing does nothing; another would change parameters in the middle of a step."""
    for part_name, part in module.named_modules() if recurse else [("", module)]:
        for name, value in [*part._parameters.items(), *part._buffers.items()]:
            if value is None:
                continue
            with torch.no_grad():
                converted = convert(value)
            if converted is not value:
                raise _refused(f"the model's code converts a module while it runs: {'.'.join(filter(None, (part_name, name)))} of a "
                               f"{type(module).__name__}, {_text_of(value)} to {_text_of(converted)}",
                               "convert it before capture, as model.to(...) does, or run the model once before: then nothing is left to convert")
    return module


def _text_of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"


@contextlib.contextmanager
def _rebound(model: torch.nn.Module, fakes: dict[int, torch.Tensor]):
    """The model with its fake parameters and buffers. torch.func.functional_call forgets the real ones of a module with two names."""
    real = []
    try:
        for module in model.modules():
            for slots in (module._parameters, module._buffers):
                for name, value in slots.items():
                    if value is not None:
                        real.append((slots, name, value))
                        slots[name] = fakes[id(value)]
        yield
    finally:
        for slots, name, value in real:
            slots[name] = value


class _WithLoss(torch.nn.Module):
    """What computes the loss, with the model inside."""

    def __init__(self, model: torch.nn.Module, loss: Optional[Loss], weight: Optional[Weight] = None):
        super().__init__()
        self.model = model
        self._compute = loss
        self._weight = weight
        self.metrics: dict[str, torch.Tensor] = {}  # of the last call

    def forward(self, batch):
        if self._compute is not None:
            out = self._compute(self.model, batch)
        elif isinstance(batch, Mapping):
            out = self.model(**batch)
        else:
            out = self.model(batch) if isinstance(batch, torch.Tensor) else self.model(*batch)
        loss = _loss_in(out)
        if isinstance(out, Mapping):
            self.metrics.update({name: value for name, value in out.items()
                                 if name != "loss" and isinstance(value, torch.Tensor) and value.dim() == 0})
        return loss if self._weight is None else _divided(loss, self._weight(batch))


def _loss_in(out) -> torch.Tensor:
    if isinstance(out, torch.Tensor):
        return out
    found = getattr(out, "loss", None)
    if found is None and isinstance(out, Mapping):
        found = out.get("loss")
    if found is None and isinstance(out, (tuple, list)) and out:
        found = out[0]
    if not isinstance(found, torch.Tensor):
        raise _refused(f"the model returns {type(out).__name__}, in which there is no loss",
                       "give loss=lambda model, batch: ..., which returns the mean loss of the batch")
    return found


def _divided(loss: torch.Tensor, weight) -> torch.Tensor:
    """The same number, with the division last where capture finds it. A slice in which nothing counts has a loss of 0, not of 0 / 0."""
    if not isinstance(weight, torch.Tensor) or weight.dim() != 0:
        raise _refused("loss_weight does not return one number, as a tensor", _LOSS_WEIGHT)
    return torch.where(weight > 0, loss, 0.0) * weight / weight


_LOSS_WEIGHT = 'it is a function of a batch that counts: loss_weight=lambda batch: (batch["labels"] != -100).sum()'


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _refused(message: str, help: str = "the batches of all steps look like the example that the model was captured with") -> CaptureError:
    return CaptureError(f"\npiper: error[E605]: {message}\nhelp: {help}\n", "E605", "model code failed", message, None, (), (help,))
