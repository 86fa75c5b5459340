"""What a user is told, in the form of the program's other messages."""


class Refusal(Exception):
    """An error with its code, where it is, the text there, and a way out."""

    def __init__(self, code, place, message, help="", excerpt=""):
        super().__init__(code, place, message, help, excerpt)  # all of it: it comes from other processes
        self.code, self.place, self.message, self.help, self.excerpt = code, place, message, help, excerpt

    def __str__(self):
        lines = [f"{self.place + ': ' if self.place else ''}error[{self.code}]: {self.message}"]
        if self.excerpt:
            lines.append("  " + (self.excerpt if len(self.excerpt) <= 100 else self.excerpt[:99] + "…"))
        if self.help:
            lines.append("help: " + self.help)
        return "\n".join(lines)


def needed(module, what):
    """A module that may not be installed."""
    import importlib
    import sys

    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise Refusal("E705", "", f"{what} needs the Python package {module.partition('.')[0]}, which {sys.executable} does not have: {problem}",
                      f"{sys.executable} -m pip install {module.partition('.')[0]}; PIPER_PYTHON names another interpreter")
