"""Plans from Python: proved, explained, simulated; the same as the program's."""
import os
import shutil
import subprocess

import pytest
import torch

import piper
import small
from conftest import ROOT


@pytest.fixture(scope="module")
def graph():
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=small.loss)


@pytest.fixture(scope="module")
def plan(graph):
    return piper.compile(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=4), "h100")


def test_plan(plan):
    assert plan.devices == 2 and len(plan.hash) == 16
    assert plan.check().startswith("sound: 2 devices")
    assert "device 0" in plan.text(0) or plan.text(0)
    assert plan.order().splitlines()[0].startswith("[0]") or "0F0" in plan.order()
    assert plan.explain("{layer=0, pass=F, mb=0}")
    assert "order(" in plan.schedule().text()
    with pytest.raises(piper.ScheduleError) as caught:
        plan.text(7)
    assert caught.value.code == "E205"


def test_memory(plan):
    memory = plan.memory()
    assert len(memory) == 2 and memory[0]["devices"] == [0]
    row = memory[0]
    assert row["peak"] == sum(row[name] for name in ("weights", "gradients", "optimizer", "activations", "communication", "temporaries"))
    assert "peak" in str(memory)
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(memory.frame(), pandas.DataFrame)


def test_simulation(plan):
    step = plan.simulate()
    assert step.seconds > 0 and 0 <= step.bubble < 1 and step.tokens_per_second == pytest.approx(8 * 6 / step.seconds)
    assert '"traceEvents"' in step.trace()
    page = plan.timeline()
    assert page.html.startswith("<!") and "iframe" in page._repr_html_()


def test_too_little_memory(graph, tmp_path):
    tiny = tmp_path / "tiny.toml"
    text = (ROOT / "clusters").glob("*.toml")
    source = sorted(text)[0].read_text()
    import re

    tiny.write_text(re.sub(r'memory = "[^"]*"', 'memory = "1KB"', source))
    plan = piper.compile(graph, "devices(1)\nplace({}, devices=[0])\n", tiny)
    with pytest.raises(piper.PlanError) as caught:
        plan.check()
    assert caught.value.code == "E405"


def test_what_cannot_be_is_refused(graph):
    with pytest.raises(piper.ScheduleError) as caught:
        piper.compile(graph, "devices(1)\nsplit(batch, parts=3, as=mb)\nplace({}, devices=[0])\n")
    assert caught.value.code == "E213" and caught.value.place.line == 2


def test_compare(graph):
    table = piper.compare(graph, {
        "one": piper.schedules.one_f_one_b(ranks=2, microbatches=4),
        "bubbles": piper.schedules.gpipe(ranks=2, microbatches=2),
        "wrong": "devices(1)\nsplit(batch, parts=3, as=mb)\nplace({}, devices=[0])\n",
    }, "h100")
    assert [row["schedule"] for row in table][-1] == "wrong" and "E213" in str(table)


def test_analytic_models_are_cut():
    model = piper.load_model("analytic:qwen3-0.6b", batch=4, sequence=128, tensor_parallel=True)
    schedule = piper.Schedule().mesh(tp=4).place({}, mesh={}).shard({"layer": "*"}, along="tp", sequence=True, regather=True)
    assert "shard({layer=*}, along=tp, sequence=on, regather=on)" in str(schedule)
    assert "reduce_scatter.layer.0.mlp.down.out" in piper.compile(model, schedule).explain("layer.0.mlp.F")


def test_analytic_models():
    model = piper.load_model("analytic:qwen3-0.6b", batch=4, sequence=128)
    assert model.batch == 4
    plan = piper.compile(model, piper.schedules.one_f_one_b(ranks=2, microbatches=2))
    assert plan.devices == 2
    with pytest.raises(piper.CaptureError, match="no code to run"):
        piper.Trainer(model)


def test_text_of_a_captured_model_is_read_by_the_program(graph, plan, tmp_path):
    program = os.environ.get("PIPER_PROGRAM") or shutil.which("piper")
    if program is None:
        pytest.skip("the program is not here: PIPER_PROGRAM says where it is")
    (tmp_path / "small.model").write_text(graph.text())
    plan_schedule = tmp_path / "step.piper"
    piper.schedules.one_f_one_b(ranks=2, microbatches=4).save(plan_schedule)
    done = subprocess.run([program, "check", tmp_path / "small.model", plan_schedule], capture_output=True, text=True)
    assert done.returncode == 0 and "sound: 2 devices" in done.stdout
