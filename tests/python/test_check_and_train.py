"""The program: what `check` calls sound for a configuration that can be trained, `train` accepts; what does not fit is refused before it runs."""
import os
import re
import subprocess

import pytest

PROGRAM = os.environ.get("PIPER_PROGRAM")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="PIPER_PROGRAM does not say where the program is")

REFERENCE = """
[model]
name = "x"
arch = "reference"
layers = 4
hidden = 16
heads = 4
vocab = 24
seq = 6
[step]
batch = 8
[data]
kind = "reference"
[run]
steps = 2
"""
EXPERTS = """
[model]
name = "x"
arch = "qwen3-moe"
layers = 2
hidden = 16
heads = 4
moe_ffn = 16
experts = 4
top_k = 1
kv_heads = 2
head_dim = 4
vocab = 24
capacity_factor = {factor}
[step]
batch = {batch}
sequence = 4
[data]
kind = "synthetic"
[run]
steps = 1
"""


def piper(folder, *words):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def both(folder, config, schedule):
    """Exit code and first error of `check` and of `train`."""
    (folder / "x.toml").write_text(config)
    (folder / "x.piper").write_text(schedule)
    out = []
    for words in (["check", "x.toml", "x.piper"], ["train", "x.toml", "--schedule", "x.piper"]):
        code, _, errors = piper(folder, *words)
        out.append((code, (re.findall(r"error\[.*", errors) or [""])[0]))
    return out


def losses(folder, schedule, *options):
    (folder / "x.toml").write_text(REFERENCE)
    (folder / "x.piper").write_text(schedule)
    code, output, errors = piper(folder, "train", "x.toml", "--schedule", "x.piper", *options)
    assert code == 0, errors
    return re.search(r"loss (\S+) -> (\S+)", output).groups()


def test_idle_devices(tmp_path):
    alone = losses(tmp_path, "devices(1)\nplace({}, devices=[0])\n")
    for devices, used, options in (2, 1, ()), (2, 0, ("--devices", "2")), (3, 1, ("--devices", "3")):
        assert losses(tmp_path, f"devices({devices})\nplace({{}}, devices=[{used}])\n", *options) == alone
        code, output, _ = piper(tmp_path, "check", "x.toml", "x.piper")
        assert code == 0 and f"note: {devices - 1} of {devices} devices have nothing to compute" in output


CUT = "mesh(tp=2)\nplace({}, mesh={})\nshard({layer=*}, along=tp%s)\n"


@pytest.mark.parametrize("schedule", [
    CUT % "", CUT % ', parameters="*.wo: 1"',
    "devices(2)\nplace({}, devices=[1])\n",
    "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nuse 1f1b(stages=stage, microbatches=mb)\n",
    "mesh(dp=2)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=3)\nrecompute({layer=*})\n",
])
def test_they_agree(tmp_path, schedule):
    checked, trained = both(tmp_path, REFERENCE, schedule)
    assert checked == trained


@pytest.mark.parametrize("batch, factor", [(2, 1.0), (8, 1.0), (8, 0.25)])
def test_they_agree_on_experts(tmp_path, batch, factor):
    schedule = "mesh(dp=2)\nplace({}, mesh={})\nreplicate({}, along=dp)\nshard({experts=*}, along=dp)\n"
    checked, trained = both(tmp_path, EXPERTS.format(batch=batch, factor=factor), schedule)
    assert checked == trained


ONE_KEY = REFERENCE.replace('"reference"\nlayers', '"llama3"\nkv_heads = 1\nffn = 32\nlayers')
MIXTURE = REFERENCE.replace('"reference"\nlayers', '"reference-moe"\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.25\nlayers')


@pytest.mark.parametrize("config, schedule, accepted", [
    (ONE_KEY, CUT % "", True), (MIXTURE, CUT % ', sequence=on, parameters="*.w_down: 1"', False)])
def test_they_agree_where_formulas_do_not(tmp_path, config, schedule, accepted):
    checked, trained = both(tmp_path, config, schedule)
    assert checked == trained and (checked[0] == 0) == accepted
    code, output, errors = piper(tmp_path, "compile", "--emit", "grid", "x.toml", "x.piper")
    assert (code == 0) != accepted, errors  # what goes by the formulas


def test_names_that_cut_finds_nowhere_are_refused(tmp_path):
    for parameters, named in ("nosuch: 1", "nosuch"), ("*.wo: 9", "wo"):
        checked, trained = both(tmp_path, REFERENCE, CUT % f', parameters="{parameters}"')
        assert checked == trained and checked[0] == 1 and named in checked[1]


def test_more_memory_than_any_machine_has(tmp_path):
    config = REFERENCE.replace("hidden = 16", f"hidden = {1 << 20}").replace("layers = 4", "layers = 64")
    (tmp_path / "x.toml").write_text(config)
    code, _, errors = piper(tmp_path, "train", "x.toml")
    assert code == 1 and "error[E405]: the devices of this process need" in errors and " left" in errors, errors
    assert "frame #" not in errors
