"""The page of `piper view` in a real browser: what is shown is what the trace says.

    python3 page_test.py PIPER ARTEFACTS [unittest arguments]     screenshots go to ARTEFACTS
"""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import pages
from comparing_test import Comparing  # noqa: F401
from drawing_test import Drawing  # noqa: F401
from memory_test import MemoryOfLanes  # noqa: F401
from moving_test import Moving  # noqa: F401
from overview_test import Overview  # noqa: F401
from operation_test import Operation  # noqa: F401
from program_test import Program  # noqa: F401
from range_test import Range  # noqa: F401
from safety_test import Safety  # noqa: F401
from sharing_test import Sharing  # noqa: F401
from simulated_test import Simulated  # noqa: F401

if __name__ == "__main__":
    pages.PIPER, pages.ARTEFACTS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    no_browser = browser.missing()
    os.makedirs(pages.ARTEFACTS, exist_ok=True)
    with tempfile.TemporaryDirectory() as pages.FOLDER:
        chosen = ["Program"] if no_browser else sys.argv[3:]
        passed = unittest.main(argv=[sys.argv[0], *chosen], exit=False).result.wasSuccessful()
    if passed:
        browser.require()
    sys.exit(not passed)
