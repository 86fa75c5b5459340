"""Traces whose every number a test knows, and the pages that `piper view` makes of them."""
import os
import subprocess

import make_trace

PIPER = ARTEFACTS = FOLDER = None  # the program, where screenshots go, where files go; page_test.py says it
BLUE = [86, 180, 233]  # forward
GUTTER = 160  # pixels left of the time axis, as in web/layout.js


def piper(*arguments):
    return subprocess.run([PIPER, *arguments], capture_output=True, text=True)


def page_of(name, *traces):
    path = os.path.join(FOLDER, name + ".html")
    result = piper("view", *traces, "-o", path)
    assert result.returncode == 0, result.stderr
    return path


def trace_file(name, *arguments, change=None):
    """Writes a trace; the header and the events it has."""
    path = os.path.join(FOLDER, name + ".json")
    options = make_trace.options_of(arguments)
    header, events = make_trace.write(path, options)
    if change:
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(change(text))
    return path, header, events


def milliseconds(text):
    """12.35 ms, 600.0 µs -> seconds"""
    value, unit = text.split(" ")
    return float(value) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def bytes_text(count):
    """1536 -> 1.50 KiB, as the page writes it"""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count} B" if unit == "B" else f"{count:.{0 if count >= 100 else 1 if count >= 10 else 2}f} {unit}"
