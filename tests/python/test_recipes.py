"""The recipes of examples/recipes in their small form: they check themselves."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parent.parent.parent / "examples/recipes"
pytestmark = pytest.mark.skipif(not os.environ.get("PIPER_PROGRAM"), reason="PIPER_PROGRAM does not say where the program is")


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "recipe"))
def test_recipe(recipe, tmp_path):
    if recipe == "lora":
        pytest.importorskip("peft")
    done = subprocess.run([sys.executable, RECIPES / f"{recipe}.py", "--small", "--out", tmp_path / "run"], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss " in done.stdout and "in transformers: " in done.stdout, "each opens what it has exported"


SCHEDULES = {
    "dualpipev": "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4, shape=v)\nuse dualpipev(stages=stage, microbatches=mb)\n",
    "tp 2": "mesh(tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nshard({layer=*}, along=tp)\n",
}


@pytest.mark.parametrize("schedule", [pytest.param(name, marks=pytest.mark.long) for name in SCHEDULES])
def test_from_text_to_a_model_under_any_schedule(schedule, tmp_path):
    """With a model and a text that are given."""
    sys.path.insert(0, str(RECIPES))
    from finetune import make_pretrained
    from recipe import train_tokenizer

    (tmp_path / "text").mkdir()
    for number in range(3):
        (tmp_path / f"text/{number}.txt").write_text("One fish, two fish, red fish, blue fish. " * 200)
    make_pretrained(tmp_path / "model", train_tokenizer(sorted(tmp_path.glob("text/*")), 300, tmp_path / "model"), dict(hidden=32, layers=4))
    (tmp_path / "schedule.piper").write_text(SCHEDULES[schedule])
    done = subprocess.run([sys.executable, RECIPES / "text_to_model.py", "--small", "--out", tmp_path / "run", "--model", tmp_path / "model",
                           "--text", tmp_path / "text", "--schedule", tmp_path / "schedule.piper"], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held out: loss" in done.stdout and "a step: predicted" in done.stdout and "2 devices" in done.stdout
