"""What is refused, as exceptions that print like the `piper` program."""
from __future__ import annotations

import json
from typing import NamedTuple, Optional


class Place(NamedTuple):
    """Where something was written."""

    file: str
    line: int
    column: int


class Note(NamedTuple):
    """The other half of a conflict."""

    message: str
    place: Optional[Place]


class Error(Exception):
    """One refusal: `code` ("E213", explained in docs/errors), `title`, `message`, `place`, `notes`, `help`.

    >>> try:
    ...     piper.Schedule("plaice({}, devices=[0])")
    ... except piper.Error as error:
    ...     print(error.code, error.place.line)
    E103 1
    """

    def __init__(self, text: str, code: str, title: str, message: str, place: Optional[Place] = None,
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


class RunError(Error):
    """A run failed (E7xx, E8xx). The trainer is over."""


_FAMILIES = {"1": ScheduleError, "2": ScheduleError, "3": ScheduleError, "4": PlanError, "6": CaptureError, "7": RunError,
             "8": RunError}


def _place(place) -> Optional[Place]:
    return Place(**place) if place else None


def _make(text: str, described: str) -> Error:
    """From the two forms of a diagnostic: for people, and JSON."""
    what = json.loads(described)
    notes = tuple(Note(note["message"], _place(note["place"])) for note in what["notes"])
    kind = _FAMILIES.get(what["code"][1], Error)
    return kind("\n" + text, what["code"], what["title"], what["message"], _place(what["place"]), notes, tuple(what["help"]))


_TITLES = {"E105": "argument of the wrong kind or value", "E205": "unknown device", "E605": "model code failed",
           "E801": "an operation failed", "E805": "the processes of a job do not fit together"}


def check_word(what: str, given: str, words: tuple[str, ...]) -> None:
    """One of a few words."""
    if given not in words:
        raise refused(ScheduleError, "E105", f'{what} is "{given}"', "one of " + ", ".join(f'"{word}"' for word in words))


def check_number(what: str, given: float, least: float, most: float, kind: type = float) -> None:
    """A number in a range; `kind`: int, where it must be whole."""
    numbers = (int, float) if kind is float else (int,)
    if isinstance(given, bool) or not isinstance(given, numbers) or not least <= given <= most:
        raise refused(ScheduleError, "E105", f"{what} is {given!r}", f"a {'whole ' if kind is int else ''}number from {least} to {most}")


def refused(kind: type, code: str, message: str, help: str) -> Error:
    """One that the package itself has found."""
    return kind(f"\npiper: error[{code}]: {message}\nhelp: {help}\n", code, _TITLES[code], message, None, (), (help,))
