"""Tests marked `@thorough` are run by `make test-thorough`, with PIPER_THOROUGH=1 in the environment; `make test` has run the others before."""
import os
import unittest


def thorough(test):
    test.thorough = True
    return test


class Loader(unittest.TestLoader):
    """Loads the ones or the others; with PIPER_LONG=1 all."""

    def getTestCaseNames(self, case):
        names = super().getTestCaseNames(case)
        if os.environ.get("PIPER_LONG"):
            return names
        wanted = bool(os.environ.get("PIPER_THOROUGH"))
        return [name for name in names if getattr(getattr(case, name), "thorough", False) == wanted]
