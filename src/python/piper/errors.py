"""What is refused, as exceptions that print like the `piper` program."""
from __future__ import annotations

import json
import math
import numbers
import os
from typing import NamedTuple, Optional


class Location(NamedTuple):
    """Where something was written."""

    file: str
    line: int
    column: int


class Note(NamedTuple):
    """The other half of a conflict."""

    message: str
    place: Optional[Location]


class Error(Exception):
    """One refusal: `code` ("E213", explained in docs/errors), `title`, `message`, `place`, `notes`, `help`.

    >>> try:
    ...     piper.Schedule("plaice({}, devices=[0])")
    ... except piper.Error as error:
    ...     print(error.code, error.place.line)
    E103 1
    """

    def __init__(self, text: str, code: str, title: str, message: str, place: Optional[Location] = None,
                 notes: tuple[Note, ...] = (), help: tuple[str, ...] = ()):
        super().__init__(text)
        self.code = code
        self.title = title
        self.message = message
        self.place = place
        self.notes = notes
        self.help = help

    def __str__(self) -> str:
        return self.args[0].rstrip("\n")

    def __reduce__(self):
        return type(self), (self.args[0], self.code, self.title, self.message, self.place, self.notes, self.help)


class ScheduleError(Error):
    """The schedule or another text cannot be read, or asks for something that cannot be (E1xx to E3xx)."""


class PlanError(Error):
    """The compiled plan is not sound, or does not fit in memory (E4xx)."""


class CaptureError(Error):
    """The model cannot be captured (E6xx)."""


class CaptureWarning(UserWarning):
    """The model is captured, but something of it is not as it may seem."""


class RunError(Error):
    """A run failed (E7xx, E8xx). The trainer is over."""


class CheckpointError(Error):
    """A checkpoint cannot be written or read, or is of another model (E9xx). The trainer can continue."""


_FAMILIES = {"1": ScheduleError, "2": ScheduleError, "3": ScheduleError, "4": PlanError, "6": CaptureError, "7": RunError,
             "8": RunError, "9": CheckpointError}


def _place(place) -> Optional[Location]:
    return Location(**place) if place else None


def _make(text: str, described: str) -> Error:
    """From the two forms of a diagnostic: for people, and JSON."""
    what = json.loads(described)
    notes = tuple(Note(note["message"], _place(note["place"])) for note in what["notes"])
    kind = _FAMILIES.get(what["code"][1], Error)
    return kind("\n" + text, what["code"], what["title"], what["message"], _place(what["place"]), notes, tuple(what["help"]))


_TITLES = {"E104": "unknown, missing or repeated argument", "E105": "argument of the wrong kind or value", "E108": "file cannot be read or written", "E203": "nothing selected", "E205": "unknown device",
           "E605": "model code failed", "E610": "hook on gradients", "E801": "an operation failed", "E805": "the processes of a job do not fit together",
           "E902": "damaged checkpoint", "E903": "checkpoint cannot be written"}


def check_word(what: str, given: str, words: tuple[str, ...]) -> None:
    """One of a few words."""
    if given not in words:
        raise refused(ScheduleError, "E105", f'{what} is "{given}"', "one of " + ", ".join(f'"{word}"' for word in words))


def check_number(what: str, given, kind: type, least: float = -math.inf, most: float = math.inf) -> None:
    """A whole number, or any; nothing that merely looks like one."""
    wanted = numbers.Integral if kind is int else numbers.Real
    limited = least != -math.inf
    if not isinstance(given, wanted) or isinstance(given, bool) or (limited and not least <= given <= most):
        limits = f" between {least} and {most}" if limited else ""
        raise refused(ScheduleError, "E105", f"{what} is {given!r}", f"it must be a {'whole ' if kind is int else ''}number{limits}")


def check_is(what: str, given, kinds, wanted: str) -> None:
    """An object of one of these classes; `wanted` says in words which."""
    if not isinstance(given, kinds):
        raise refused(ScheduleError, "E105", f"{what} is {described(given)}", f"it must be {wanted}")


def path_of(what: str, given) -> str:
    """The name of a file or a folder."""
    check_is(what, given, (str, os.PathLike), "a path: a text or a pathlib.Path")
    return os.fspath(given)


def described(given) -> str:
    """An object in an error message: small ones as they are, others by their class."""
    text = repr(given)
    if given is None or (isinstance(given, (bool, int, float, str)) and len(text) <= 60):
        return text
    kind = given if isinstance(given, type) else type(given)
    return f"{'the class' if given is kind else 'a'} {kind.__module__.removeprefix('builtins').lstrip('.')}.{kind.__qualname__}".replace(" .", " ")


def refused(kind: type, code: str, message: str, help: str) -> Error:
    """One that the package itself has found."""
    return kind(f"\npiper: error[{code}]: {message}\nhelp: {help}\n", code, _TITLES[code], message, None, (), (help,))
