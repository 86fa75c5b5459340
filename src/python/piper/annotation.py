"""Regions of a model that schedules speak about: marked in `forward`, or from outside."""
from __future__ import annotations

import contextlib
import re
import sys
from typing import Mapping, Sequence, Union

import torch

from . import _piper
from .errors import CaptureError, ScheduleError, check_is, check_number

_NOTES = "_piper_scopes"  # on an annotated module: its scopes, outermost first


class annotate:
    """Marks a region of `forward`: the operators inside belong to the scope. Costs next to nothing outside of capture.

        def forward(self, x):
            with piper.annotate("layer"):
                return x + self.mlp(self.norm(x))

    Scopes nest. Instances of one name are numbered inside the enclosing instance, in order of execution: `{layer=3}`.
    With `experts=n` the region works on values [experts, capacity, ...], so that `shard` can divide it (docs/capture.md).
    """

    def __init__(self, name: str, *, experts: int = 0):
        _check_name(name)
        check_number("experts", experts, int, 0, 2**31 - 1)
        self._scope = _piper.Scope(name, experts)

    def __enter__(self) -> "annotate":
        self._scope.enter()
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None:
            _piper.Scope.note_failure()
        self._scope.leave()


def annotate_modules(model: torch.nn.Module, scopes: Mapping[str, Union[str, Sequence[str]]]) -> None:
    """Marks whole modules as scopes, from outside: name of the scope -> pattern (or patterns) of qualified module names.

        piper.annotate_modules(model, {"layer": "model.layers.*", "experts": "model.layers.*.mlp.experts"})

    `*` stands for one part of a name, `**` for any number. Nothing of the model changes: `capture` watches these modules
    while it runs them. A module whose `marks_scope` is true marks the region inside itself, under the name given here.
    Annotating again replaces what was there. A pattern that matches no module is refused.
    """
    check_is("the model", model, torch.nn.Module, "a torch.nn.Module")
    check_is("scopes", scopes, Mapping, 'a dictionary of names and patterns: {"layer": "layers.*"}')
    modules = dict(model.named_modules())
    found: dict[str, list[str]] = {}
    for scope, patterns in scopes.items():
        _check_name(scope)
        check_is(f"the pattern of {scope}", patterns, (str, Sequence), 'a text, or a list of texts, such as "layers.*"')
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            check_is(f"the pattern of {scope}", pattern, str, 'a text, such as "layers.*"')
            matching = [name for name in modules if _matches(name, pattern)]
            if not matching:
                raise _nothing_matches(pattern, list(modules))
            for name in matching:
                found.setdefault(name, []).append(scope)
    for module in modules.values():
        module.__dict__.pop(_NOTES, None)
    for name, names in found.items():
        modules[name].__dict__[_NOTES] = tuple(names)


@contextlib.contextmanager
def watched(model: torch.nn.Module):
    """Annotated modules announce themselves while it lasts; afterwards it is an error if one of them never ran."""
    handles, quiet = [], {}
    for name, module in model.named_modules():
        scopes = module.__dict__.get(_NOTES)
        if not scopes:
            continue
        quiet[module] = name
        handles += _watch(module, scopes, quiet)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for name in quiet.values():
        raise CaptureError(
            *_text("E203", f"annotate_modules: module {name} never ran, so its scope has no operators",
                   "its forward was not called, or called as module.forward(x) instead of module(x), or hooks are off there; mark the "
                   "region with piper.annotate in the code that runs"))


def _watch(module, scopes, quiet):
    inner = getattr(module, "marks_scope", False)  # it opens its scope itself, where the region begins
    stack = [] if inner else [_piper.Scope(scope, 0) for scope in scopes]
    handled = []  # what was being handled when the module was entered

    def enter(module, args):
        quiet.pop(module, None)
        handled.append(sys.exc_info()[1])
        for scope in stack:
            scope.enter()

    def leave(module, args, output):  # called after exceptions too
        if sys.exc_info()[1] is not handled.pop():
            _piper.Scope.note_failure()
        for scope in reversed(stack):
            scope.leave()

    return [module.register_forward_pre_hook(enter, prepend=True), module.register_forward_hook(leave, always_call=True)]


def scope_name(module: torch.nn.Module, default: str) -> str:
    """For modules that mark their scope themselves: the name that annotate_modules gave it."""
    return module.__dict__.get(_NOTES, (default,))[-1]


def _matches(name: str, pattern: str) -> bool:
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^.]*") for part in pattern.split(".")]
    return re.fullmatch(r"\.".join(parts), name) is not None


def _check_name(name: str) -> None:
    check_is("the name of a scope", name, str, 'a text, such as "layer"')
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in ("pass", "comm"):
        raise ScheduleError(*_text("E105", f'"{name}" cannot be the name of a scope',
                                   "letters, digits and _, not a digit first; pass and comm mean something else in filters"))


def _nothing_matches(pattern: str, names: list[str]) -> ScheduleError:
    import difflib

    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3)
    return ScheduleError(*_text("E203", f'annotate_modules: "{pattern}" matches no module',
                                "modules with similar names: " + ", ".join(near) if near else "model.named_modules() lists them"))


def _text(code: str, message: str, help: str):
    """What an Error is made of."""
    titles = {"E105": "argument of the wrong kind or value", "E203": "nothing selected"}
    return f"\npiper: error[{code}]: {message}\nhelp: {help}\n", code, titles[code], message, None, (), (help,)
