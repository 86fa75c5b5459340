"""piper.search: the same answer as the program's, for graphs that Python has."""
import json
import os
import subprocess

import piper
import pytest

HERE = os.path.dirname(__file__)
MODEL = os.path.join(HERE, "../../examples/moe.toml")
FOREVER = 1e6  # seconds: the answer does not depend on the machine


def test_search_is_that_of_the_program():
    found = piper.search(piper.load_model(MODEL), "h100", 8, fix=["mesh(tp=1)"], budget=FOREVER)
    run = subprocess.run([os.environ["PIPER_PROGRAM"], "search", MODEL, "--cluster", "h100", "--devices", "8", "--fix", "mesh(tp=1)",
                          "--budget", str(FOREVER), "--format", "json"], capture_output=True, text=True, check=True)
    assert found.numbers["best"] == json.loads(run.stdout)["best"]
    assert found.seconds == found.numbers["best"]["seconds"]
    plan = piper.compile(piper.load_model(MODEL), found.best, "h100")
    plan.check()
    assert plan.simulate().seconds == pytest.approx(found.seconds)


def test_search_for_what_does_not_fit():
    found = piper.search(piper.load_model(MODEL), "h100", 1, memory="1GB", fix=["mesh(tp=1)"], budget=FOREVER)
    assert found.best is None and found.seconds == float("inf")
    assert "nothing fits" in str(found)


def test_search_refuses():
    with pytest.raises(piper.Error, match="does not choose"):
        piper.search(piper.load_model(MODEL), "h100", 8, fix=["devices(8)"])
    with pytest.raises(piper.Error, match="no size"):
        piper.search(piper.load_model(MODEL), "h100", 8, memory="much")
