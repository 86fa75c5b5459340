"""Tests of the Python package. From the build tree: PYTHONPATH=build/release/python pytest tests/python"""
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # devices are threads; operators have one each
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with many parameters, `make test` takes every third; the others are thorough. Those marked `quick` are all taken."""
    cases = {}
    for item in items:
        cases.setdefault((item.path, item.originalname), []).append(item)
    for of_one in cases.values():
        if len(of_one) > 3 and not of_one[0].get_closest_marker("quick"):
            for item in (item for number, item in enumerate(of_one) if number % 3):
                item.add_marker("thorough")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden():
    """Compares a text with a file under tests/golden/python; PIPER_UPDATE_GOLDEN=1 writes it."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests/golden/python" / name
        text = text.strip("\n") + "\n"
        if os.environ.get("PIPER_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: PIPER_UPDATE_GOLDEN=1 writes it"
        assert text == path.read_text()

    return compare
