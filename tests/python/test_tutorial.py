"""The tutorial runs as it stands; the notebook has the same content."""
import subprocess
import sys

import pytest

from conftest import ROOT

SCRIPT = ROOT / "examples/python/tutorial.py"


def test_the_notebook_is_the_script():
    done = subprocess.run([sys.executable, ROOT / "scripts/make_notebook", "--check", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_script():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    first, last = (float(word) for word in done.stdout.split("loss ")[1].splitlines()[0].split(" -> "))
    assert last < first - 1 and "sound: 4 devices" in done.stdout and "error[E213]" in done.stdout
    after = float(done.stdout.split("plain PyTorch: ")[1])
    assert abs(after - last) < 0.5


@pytest.mark.long
def test_the_notebook_runs_cell_by_cell(tmp_path):
    """Without Jupyter: the cells in order, in one namespace, and what the last line of a cell shows."""
    import json

    names = {"__name__": "__main__"}
    shown = []
    for cell in json.loads(SCRIPT.with_suffix(".ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            exec(compile(source, "tutorial", "exec"), names)
            last = source.strip().splitlines()[-1]
            if last.isidentifier():
                shown.append(names[last])
    assert [type(value).__name__ for value in shown] == ["Page"] and "iframe" in shown[0]._repr_html_()
