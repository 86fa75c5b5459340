"""Learning rates by the schedulers of PyTorch."""
from __future__ import annotations

from typing import Callable

import torch

from .errors import ScheduleError, check_is, described, refused
from .optimizers import _Optimizer, check_optimizer


class LRScheduler:
    """Any scheduler of torch.optim.lr_scheduler, for an optimizer of Piper. Call `step()` after every step of the trainer.

        optimizer = piper.AdamW(lr=3e-4)
        scheduler = piper.LRScheduler(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR, T_max=1000)
        with piper.Trainer(graph, schedule, optimizer=optimizer) as trainer:
            for batch in batches:
                trainer.step(batch)
                scheduler.step()

    `make`: a class of torch.optim.lr_scheduler, or a function that makes a scheduler for an optimizer of PyTorch; it is called with a dummy
    optimizer that has the same learning rate, and with the other arguments.
    """

    def __init__(self, optimizer: _Optimizer, make: Callable[..., torch.optim.lr_scheduler.LRScheduler], *arguments, **options):
        self.optimizer = check_optimizer(optimizer)
        self._theirs = torch.optim.SGD([torch.zeros(())], lr=optimizer.lr)
        self.scheduler = _made(make, self._theirs, arguments, options)
        self._set()

    def step(self, *arguments) -> None:
        """Advances to the next step. Arguments are those of the scheduler: `ReduceLROnPlateau` takes the loss."""
        self._theirs.step()  # without gradients: nothing; schedulers want to see it
        self.scheduler.step(*arguments)
        self._set()

    def state_dict(self) -> dict:
        return {"scheduler": self.scheduler.state_dict(), "lr": self.optimizer.lr}

    def load_state_dict(self, state: dict) -> None:
        check_is("the state", state, dict, "what state_dict() gave")
        if not {"scheduler", "lr"} <= state.keys():
            raise refused(ScheduleError, "E105", "the state is not one of a piper.LRScheduler", "load what its state_dict() gave")
        self.scheduler.load_state_dict(state["scheduler"])
        self._theirs.param_groups[0]["lr"] = state["lr"]
        self._set()

    def _set(self) -> None:
        self.optimizer.lr = float(self._theirs.param_groups[0]["lr"])


def _made(make, optimizer: torch.optim.Optimizer, arguments, options):
    """The scheduler; what it refuses is refused here."""
    if not callable(make):
        raise refused(ScheduleError, "E105", f"the scheduler is {described(make)}",
                      "a class of torch.optim.lr_scheduler: piper.LRScheduler(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR, T_max=1000)")
    try:
        out = make(optimizer, *arguments, **options)
    except (TypeError, ValueError) as problem:
        raise refused(ScheduleError, "E105", f"{getattr(make, '__name__', make)} cannot be made: {problem}",
                      "its arguments follow: piper.LRScheduler(optimizer, CLASS, T_max=1000)") from problem
    if not callable(getattr(out, "step", None)):
        raise refused(ScheduleError, "E105", f"{getattr(make, '__name__', make)} gives {described(out)}", "it must give a scheduler of PyTorch")
    return out
