"""transformers' Trainer with a schedule: a script changes by its import and one argument."""
from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
import os
import time
from typing import Callable, Iterator, Mapping, Optional, Sequence, Union

import torch
from safetensors.torch import save_model
from torch.utils.data import DataLoader, IterableDataset, RandomSampler
from transformers import (DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase, SequenceFeatureExtractor, TrainerCallback,
                          TrainingArguments, default_data_collator, get_scheduler)
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback, TrainerControl, TrainerState
from transformers.trainer_pt_utils import get_parameter_names, log_metrics, save_metrics, save_state
from transformers.trainer_utils import PredictionOutput, TrainOutput, speed_metrics

from .. import _piper
from ..callbacks import Callback
from ..errors import ScheduleError, check_is, refused
from ..joining import backend, join
from ..lr_schedulers import LRScheduler
from ..optimizers import SGD, AdamW, Muon, ParameterGroup, check_optimizer
from ..schedule import Schedule
from ..training import Evaluation, Resumed
from ..training import Trainer as PiperTrainer
from .evaluating import evaluation_mode, form, mean_loss, outputs_of, whole_batches

HONOURED = {
    "output_dir", "per_device_train_batch_size", "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs",
    "warmup_steps", "optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "gradient_accumulation_steps", "max_grad_norm",
    "logging_strategy", "logging_steps", "logging_first_step", "eval_strategy", "eval_steps", "eval_delay", "eval_on_start",
    "per_device_eval_batch_size", "prediction_loss_only", "save_strategy", "save_steps", "save_total_limit", "seed", "data_seed", "use_cpu",
    "dataloader_drop_last", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers", "dataloader_pin_memory",
    "remove_unused_columns", "do_train", "do_eval", "resume_from_checkpoint", "disable_tqdm", "log_level", "run_name"}
"""Arguments that have their effect, or none on what is computed. All others must have their default."""

OPTIONS = {name for name in inspect.signature(PiperTrainer).parameters} - {"model", "schedule", "optimizer", "callbacks"}
"""Of piper.Trainer."""

ELSEWHERE = {
    "seed": "TrainingArguments(seed=...)", "clip": "TrainingArguments(max_grad_norm=...)", "sharded": "every process reads whole batches",
    "accumulate": "TrainingArguments(gradient_accumulation_steps=...)", "example_batch": "it is the first one of train_dataset",
    "compute_loss_func": "loss=lambda model, batch: ..., which is captured with the model",
    "compute_metrics": "piper.metric(...) in the model's forward; or compute them of what trainer.predict(...) gives",
    "preprocess_logits_for_metrics": "compute metrics of what trainer.predict(...) gives", "model_init": "model=model_init()",
    "optimizers": "optimizer=piper.AdamW(...), and lr_scheduler_type of TrainingArguments",
    "optimizer_cls_and_kwargs": "optimizer=piper.AdamW(...)"}
"""What is said or done in another way."""

OPTIMIZERS = {"adamw_torch": AdamW, "adamw_torch_fused": AdamW, "sgd": SGD, "muon": Muon}


class Trainer:
    """As `transformers.Trainer`, under a schedule.

        from piper.integrations.transformers import Trainer
        trainer = Trainer(model=model, args=args, train_dataset=data, schedule=piper.schedules.one_f_one_b(ranks=2, microbatches=4))
        trainer.train()

    `per_device_train_batch_size` is the batch of one step, of all devices of the schedule together. Samples have equal shapes: `data_collator`
    pads or packs them to a fixed length. Samples come in the order of transformers' Trainer on one device, and what is logged is what it logs.
    `optimizer`: one of Piper's, instead of that of `args`. Further options are those of
    `piper.Trainer`. An argument that differs from its default and would have no effect is refused by name.

    `log_metrics`, `save_metrics` and `save_state` are those of transformers.
    """

    def __init__(self, model: torch.nn.Module, args: Optional[TrainingArguments] = None, data_collator: Optional[Callable] = None,
                 train_dataset=None, eval_dataset=None, processing_class=None, *, callbacks: Optional[Sequence] = None,
                 schedule: Union[Schedule, str, None] = None, optimizer=None, **options):
        check_is("model", model, torch.nn.Module, "a torch.nn.Module")
        self.model, self.args = model, args if args is not None else TrainingArguments("trainer_output")
        check_arguments(self.args)
        if _word(self.args.eval_strategy) != "no" and eval_dataset is None:
            raise refused(ScheduleError, "E105", f'eval_strategy="{_word(self.args.eval_strategy)}" of TrainingArguments, and no eval_dataset',
                          "Trainer(eval_dataset=...)")
        if optimizer is not None:
            check_optimizer(optimizer)
        check_is("schedule", schedule, (Schedule, str, type(None)), "a piper.Schedule, or its text")
        self.data_collator = data_collator or _usual_collator(processing_class)
        self.train_dataset, self.eval_dataset, self.processing_class = train_dataset, eval_dataset, processing_class
        self.schedule, self._optimizer, self._options = schedule, optimizer, check_options(options)
        self.state, self.control = TrainerState(), TrainerControl()
        self._logged = 0  # steps whose loss was logged
        self._ours: list[Callback] = []
        self.callback_handler = CallbackHandler([DefaultFlowCallback], model, processing_class, None, None)
        self._trainer: Optional[PiperTrainer] = None
        self._example: Optional[dict[str, torch.Tensor]] = None  # what the graph was captured with
        self._graph = None
        if isinstance(model, PreTrainedModel):
            from .transformers import annotate, use  # which has this class too

            use(model, experts=not any(getattr(part, "marks_scope", False) for part in model.modules()))  # or as they were chosen before
            annotate(model)
        for one in callbacks or ():
            self.add_callback(one)
        self.control = self.callback_handler.on_init_end(self.args, self.state, self.control)

    log_metrics, save_metrics, save_state = log_metrics, save_metrics, save_state

    def add_callback(self, callback) -> None:
        """One of transformers, or a class of them; or one of Piper, before `train`."""
        if not isinstance(callback, Callback):
            known = issubclass(callback, TrainerCallback) if isinstance(callback, type) else isinstance(callback, TrainerCallback)
            if not known:
                raise refused(ScheduleError, "E105", f"callbacks has {callback!r}", "a transformers.TrainerCallback, or a piper.callbacks.Callback")
            self.callback_handler.add_callback(callback)
        elif self._trainer is not None:
            raise refused(ScheduleError, "E105", f"{type(callback).__name__} is added while the run is on", "add callbacks of Piper before train()")
        else:
            self._ours.append(callback)

    def is_world_process_zero(self) -> bool:
        """Whether this is the process, of those that train together, that writes files. All of them call it."""
        join(backend(self._options.get("backend")), self._options.get("timeout", 10))
        return _piper.rank() == 0

    def train(self, resume_from_checkpoint: Union[str, bool, None] = None) -> TrainOutput:
        """Trains, and gives the model its new weights."""
        args, batches = self.args, self._batches(self.train_dataset, self.args.per_device_train_batch_size, "train_dataset", shuffle=True)
        accumulate = args.gradient_accumulation_steps
        per_epoch = len(batches) // accumulate
        if per_epoch == 0:
            raise refused(ScheduleError, "E105", f"an epoch has {len(batches)} batches, an update needs {accumulate}", "give more data")
        steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
        if len(batches) % accumulate and (steps > per_epoch or args.max_steps <= 0):
            raise refused(ScheduleError, "E105", f"gradient_accumulation_steps={accumulate}, and an epoch has {len(batches)} batches: its last update "
                          "would have fewer", "a number of batches that is a multiple, or max_steps within the first epoch")
        optimizer = self._optimizer if self._optimizer is not None else optimizer_of(args, self.model)
        warmup = math.ceil(steps * args.warmup_steps) if 0 < args.warmup_steps < 1 else int(args.warmup_steps)
        scheduler = LRScheduler(optimizer, lambda made: get_scheduler(
            args.lr_scheduler_type, made, warmup, steps, scheduler_specific_kwargs=args.lr_scheduler_kwargs or {}))
        self.state, self._logged = TrainerState(), 0  # as there, a run begins a new history
        self.callback_handler.train_dataloader = batches
        begin = time.time()
        with self._made(self._inputs(next(iter(batches))), optimizer, accumulate=accumulate, clip=args.max_grad_norm or None,
                        callbacks=self._ours) as trainer:
            self._trainer = trainer
            try:
                done = self._resume(trainer, scheduler, resume_from_checkpoint or args.resume_from_checkpoint)
                self._describe(steps, per_epoch)
                first = self.state.global_step
                self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
                if args.eval_on_start:
                    self.evaluate()
                losses: list[float] = []
                epoch, done = divmod(done, per_epoch * accumulate)
                last = math.inf if args.max_steps > 0 else math.ceil(args.num_train_epochs)
                while epoch < last and self.state.global_step < steps and not self.control.should_training_stop:
                    batches.sampler.generator.manual_seed((args.data_seed if args.data_seed is not None else args.seed) + epoch)
                    self._epoch(trainer, scheduler, batches, epoch, done, per_epoch, losses)
                    epoch, done = epoch + 1, 0
                self.model.load_state_dict(trainer.state_dict())
            finally:
                self._trainer = None
        mean, taken = sum(losses) / len(losses) if losses else 0.0, self.state.global_step - first
        metrics = speed_metrics("train", begin, num_samples=taken * accumulate * args.per_device_train_batch_size, num_steps=taken)
        metrics |= {"train_loss": mean, "epoch": self.state.epoch}
        self.log(metrics)
        self.control = self.callback_handler.on_train_end(args, self.state, self.control)
        return TrainOutput(self.state.global_step, mean, metrics)

    def evaluate(self, eval_dataset=None, ignore_keys: Optional[Sequence[str]] = None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """The mean loss with the weights of now: of every batch, weighted by its samples, as transformers' Trainer has it.

        The devices compute it, by the plan of `piper.Trainer.evaluate`. A batch of another size than those of steps is repeated until it is
        a whole number of those. One whose samples have other shapes than those of steps has no place in that plan: the module itself
        computes it, on one device, and a warning says so. Of a dictionary of datasets each is evaluated.
        """
        data = eval_dataset if eval_dataset is not None else self.eval_dataset
        if isinstance(data, dict):
            return {key: value for name, one in data.items() for key, value in self.evaluate(one, ignore_keys, f"{metric_key_prefix}_{name}").items()}
        loader = self._batches(data, self.args.per_device_eval_batch_size, "eval_dataset", shuffle=False)
        if len(loader) == 0:
            raise refused(ScheduleError, "E105", "eval_dataset has no batch", "give at least one sample; with dataloader_drop_last, a whole batch")
        begin, self.callback_handler.eval_dataloader = time.time(), loader
        with self._evaluating(loader) as trainer:
            loss, samples, batches = mean_loss(trainer, self._example, (self._inputs(batch) for batch in loader), self._loss_of_module)
        if self._trainer is not None:
            self._trainer._tell(Evaluation(loss, torch.tensor(loss).double().exp().item(), {}, batches, time.time() - begin), samples)
        out = {f"{metric_key_prefix}_loss": loss, **speed_metrics(metric_key_prefix, begin, num_samples=samples, num_steps=batches)}
        self.log(out)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, out)
        return out

    def predict(self, test_dataset, ignore_keys: Optional[Sequence[str]] = None, metric_key_prefix: str = "test") -> PredictionOutput:
        """What the module returns for each sample besides its loss, their labels, and the mean loss, as transformers' Trainer gives them.

        The module itself computes it with the weights of now, on one device: the devices of a schedule keep no outputs.
        """
        loader = self._batches(test_dataset, self.args.per_device_eval_batch_size, "test_dataset", shuffle=False)
        begin = time.time()
        with self._module_of_now() as module:
            predictions, labels, loss = outputs_of(module, map(self._inputs, loader), ignore_keys, self.args.prediction_loss_only)
        metrics = {} if loss is None else {f"{metric_key_prefix}_loss": loss}
        metrics |= speed_metrics(metric_key_prefix, begin, num_samples=len(test_dataset), num_steps=len(loader))
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, metrics)
        return PredictionOutput(predictions, labels, metrics)

    def _made(self, example: dict[str, torch.Tensor], optimizer, **more) -> PiperTrainer:
        """A trainer with the weights of the module as they are. The module is captured once."""
        if self._graph is None or form(example) != form(self._example):
            self._graph, self._example = None, example
        made = PiperTrainer(self._graph or self.model, self.schedule, example_batch=example, optimizer=optimizer, seed=self.args.seed, **more,
                            **self._options)
        self._graph = made.model
        return made

    @contextlib.contextmanager
    def _evaluating(self, loader: DataLoader) -> Iterator[PiperTrainer]:
        """The trainer of the run; before and after it, one that keeps nothing for updates."""
        if self._trainer is not None:
            yield self._trainer
            return
        example = self._example
        if example is None:
            example = whole_batches(self._inputs(next(iter(loader))), self.args.per_device_train_batch_size)[0]
        with self._made(example, SGD(lr=0.0)) as trainer:
            yield trainer

    def _loss_of_module(self, batch: Mapping) -> float:
        """With the weights of now."""
        loss = self._options.get("loss") or (lambda model, given: model(**given).loss)
        with self._module_of_now() as module, evaluation_mode(module):
            return loss(module, batch).item()

    @contextlib.contextmanager
    def _module_of_now(self) -> Iterator[torch.nn.Module]:
        """The module, during a run with the weights of the devices."""
        if self._trainer is None:
            yield self.model
            return
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self._trainer.state_dict())
        try:
            yield self.model
        finally:
            self.model.load_state_dict(own)

    def save_model(self, output_dir: Optional[str] = None) -> None:
        """The model with the weights of now, for `from_pretrained`; with it `processing_class`, or the tokenizer of the data collator, and the
        arguments. In a job of several processes all call it, and rank 0 writes."""
        folder = output_dir or self.args.output_dir
        with self._module_of_now() as module:
            if not self.is_world_process_zero():
                return
            os.makedirs(folder, exist_ok=True)
            if callable(getattr(module, "save_pretrained", None)):
                module.save_pretrained(folder)
            else:
                save_model(module, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        tokenizer = self.processing_class if self.processing_class is not None else getattr(self.data_collator, "tokenizer", None)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        torch.save(self.args, os.path.join(folder, "training_args.bin"))

    def log(self, logs: dict) -> None:
        if self.state.epoch is not None:
            logs["epoch"] = self.state.epoch
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, dict(logs))

    def _describe(self, steps: int, per_epoch: int) -> None:
        args, state = self.args, self.state
        state.max_steps, state.num_train_epochs = steps, math.ceil(steps / per_epoch)
        state.epoch = state.epoch or 0.0
        state.is_world_process_zero = state.is_local_process_zero = self.is_world_process_zero()
        state.train_batch_size = args.per_device_train_batch_size
        state.compute_steps(args, steps)

    def _resume(self, trainer: PiperTrainer, scheduler: LRScheduler, wanted: Union[str, bool, None]) -> int:
        """Batches that are done, of all epochs together."""
        if not wanted:
            return 0
        folder = self.args.output_dir if wanted is True else wanted
        resumed = trainer.resume(folder)
        if resumed is None:
            raise refused(ScheduleError, "E105", f"there is no checkpoint in {folder!r}", "train() without resume_from_checkpoint")
        self.state = _state_of(resumed, self.args.gradient_accumulation_steps)
        for _ in range(self.state.global_step):
            scheduler.step()
        size, accumulate = self.args.per_device_train_batch_size, self.args.gradient_accumulation_steps
        if resumed.samples != resumed.step * size and (self.args.max_steps <= 0 or resumed.samples % (size * accumulate)):
            raise refused(ScheduleError, "E105", f"{resumed.folder} was reached with other batches: {resumed.samples} samples in {resumed.step} "
                          f"steps, and per_device_train_batch_size is {size}",
                          "resume with the batch that the run had; or with max_steps, and a batch (gradient_accumulation_steps times that of a step) "
                          "of which the number of samples is a multiple")
        return resumed.samples // size

    def _epoch(self, trainer, scheduler, batches, epoch: int, first: int, per_epoch: int, losses) -> None:
        """`first`: the batch to begin with."""
        args, handler, accumulate = self.args, self.callback_handler, self.args.gradient_accumulation_steps
        self.control = handler.on_epoch_begin(args, self.state, self.control)
        total, norm, rate = 0.0, math.nan, scheduler.optimizer.lr
        for index, batch in enumerate(batches):
            if index < first:
                continue
            if (index >= per_epoch * accumulate or self.state.global_step >= self.state.max_steps or self.control.should_training_stop
                    or self.control.should_epoch_stop):
                break
            if index % accumulate == 0:
                self.control = handler.on_step_begin(args, self.state, self.control)
                total = 0.0
            rate = scheduler.optimizer.lr
            result = trainer.step(self._inputs(batch))
            norm = result.gradient_norm
            total += result.loss / accumulate
            if (index + 1) % accumulate:
                self.control = handler.on_substep_end(args, self.state, self.control)
                continue
            scheduler.step()
            losses.append(total)
            self.state.global_step += 1
            self.state.epoch = epoch + (index + 1) / (per_epoch * accumulate)
            self.control = handler.on_step_end(args, self.state, self.control)
            self._after_step(trainer, losses, norm, rate)
        self.control = handler.on_epoch_end(args, self.state, self.control)
        self._after_step(trainer, losses, norm, rate)

    def _after_step(self, trainer, losses: Sequence[float], norm: float, rate: float) -> None:
        """What the flow of the callbacks asks for. The loss that is logged is the mean of the steps since it was logged last."""
        since = losses[self._logged:]
        if self.control.should_log and since:
            self._logged = len(losses)
            self.log({"loss": sum(since) / len(since), "grad_norm": norm, "learning_rate": rate})
        if self.control.should_evaluate:
            self.evaluate()
            self.control.should_evaluate = False
        if self.control.should_save:
            trainer.save(self.args.output_dir, keep=self.args.save_total_limit, wait=True, extra={"trainer_state": _text_of(self.state)})
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)
            self.control.should_save = False

    def _inputs(self, batch: Mapping) -> dict[str, torch.Tensor]:
        """What the module takes, if unused columns are removed."""
        known = inspect.signature(self.model.forward).parameters
        if not self.args.remove_unused_columns or any(one.kind is one.VAR_KEYWORD and name == "inputs" for name, one in known.items()):
            return dict(batch)
        return {name: value for name, value in batch.items() if name in known}

    def _batches(self, data, size: int, what: str, shuffle: bool) -> DataLoader:
        if data is None:
            raise refused(ScheduleError, "E105", f"there is no {what}", f"Trainer({what}=...)")
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            raise refused(ScheduleError, "E105", f"{what} has no length: its order could not be resumed", "a dataset with len() and items by number")
        if shuffle and len(data) % size and not self.args.dataloader_drop_last:
            raise refused(ScheduleError, "E105", f"{len(data)} samples are no whole number of batches of {size}: shapes are part of a plan",
                          "dataloader_drop_last=True, or another per_device_train_batch_size")
        workers = {} if self.args.dataloader_num_workers == 0 else {"prefetch_factor": self.args.dataloader_prefetch_factor,
                                                                     "persistent_workers": self.args.dataloader_persistent_workers}
        order = {"sampler": RandomSampler(data, generator=torch.Generator())} if shuffle else {}
        return DataLoader(data, size, drop_last=shuffle or self.args.dataloader_drop_last, collate_fn=self.data_collator, **order,
                          num_workers=self.args.dataloader_num_workers, **workers)


def check_arguments(args: TrainingArguments) -> None:
    """Every argument that is not honoured has its default."""
    if not isinstance(args, TrainingArguments):
        raise refused(ScheduleError, "E105", f"args is {type(args).__name__}", "transformers.TrainingArguments(output_dir=...)")
    for name, value in (("save_strategy", "best"), ("lr_scheduler_type", "reduce_lr_on_plateau"), ("lr_scheduler_type", "greedy")):
        if _word(getattr(args, name)) == value:
            raise refused(ScheduleError, "E105", f"{name}={value!r} of TrainingArguments cannot be honoured",
                          "another one: no metric decides about rates and checkpoints of a run")
    usual = TrainingArguments(output_dir=args.output_dir, use_cpu=args.use_cpu)
    for field in dataclasses.fields(TrainingArguments):
        given, default = getattr(args, field.name), getattr(usual, field.name)
        if field.name not in HONOURED and given != default:
            raise refused(ScheduleError, "E105", f"{field.name}={given!r} of TrainingArguments cannot be honoured",
                          f"leave it out ({default!r}); parallelism, recomputation and precision are matters of the schedule and the model")
    if _word(args.optim) not in OPTIMIZERS and args.optim != usual.optim:
        raise refused(ScheduleError, "E105", f"optim={args.optim!r} cannot be honoured", "one of " + ", ".join(OPTIMIZERS) + ", or Trainer(optimizer=...)")


def check_options(options: Mapping) -> dict:
    """Those for piper.Trainer. Arguments of transformers' Trainer may be there if they say nothing."""
    out = {}
    for name, value in options.items():
        if name in ELSEWHERE:
            if value is not None and value != (None, None):
                raise refused(ScheduleError, "E105", f"{name} of Trainer cannot be honoured", ELSEWHERE[name])
        elif name in OPTIONS:
            out[name] = value
        else:
            raise refused(ScheduleError, "E105", f"Trainer has no argument {name}",
                          "those of transformers' Trainer, schedule, optimizer, and of piper.Trainer " + ", ".join(sorted(OPTIONS - ELSEWHERE.keys())))
    return out


def _word(choice) -> str:
    """Of an argument that may be one of transformers' enumerations."""
    return str(getattr(choice, "value", choice))


def _usual_collator(processing_class) -> Callable:
    """As transformers chooses it."""
    pads = isinstance(processing_class, (PreTrainedTokenizerBase, SequenceFeatureExtractor))
    return DataCollatorWithPadding(processing_class) if pads else default_data_collator


def _text_of(state: TrainerState) -> str:
    return json.dumps(dataclasses.asdict(state))


def _state_of(resumed: Resumed, accumulate: int) -> TrainerState:
    """As it was saved; a checkpoint of piper.Trainer has none."""
    if "trainer_state" in resumed.extra:
        return TrainerState(**json.loads(resumed.extra["trainer_state"]))
    return TrainerState(global_step=resumed.step // accumulate)


def optimizer_of(args: TrainingArguments, model: torch.nn.Module) -> Union[AdamW, SGD, Muon]:
    """As transformers makes it: no weight decay of biases and norms."""
    patterns = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decayed = set(get_parameter_names(model, [torch.nn.LayerNorm], patterns))
    groups = tuple(ParameterGroup(name, weight_decay=0.0) for name, value in model.named_parameters()
                   if value.requires_grad and name not in decayed) if args.weight_decay else ()
    kind = OPTIMIZERS.get(_word(args.optim), AdamW)
    common = dict(lr=args.learning_rate, weight_decay=args.weight_decay, groups=groups)
    return kind(**common) if kind is SGD else kind(**common, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
