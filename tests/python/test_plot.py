"""`piper plot`: curves of runs as one page."""
import html
import json
import os
import re
import subprocess

HEAD = {"format": "piper-metrics", "version": 1, "model": "a <small> one", "parameters": 12, "devices": 2, "plan_hash": "0123456789abcdef"}


def plot(folder, *files, to="page.html"):
    return subprocess.run([os.environ["PIPER_PROGRAM"], "plot", *files, "-o", to], cwd=folder, capture_output=True, text=True)


def write(path, *runs):
    with open(path, "w") as out:
        for steps in runs:
            out.write(json.dumps(HEAD) + "\n")
            for step, numbers in enumerate(steps):
                out.write(json.dumps({"step": step, **numbers}) + "\n")


def charts(folder, page="page.html"):
    """By name: for every curve the label and the points, in pixels."""
    text = (folder / page).read_text()
    out = {}
    for name, body in re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</figure>", text, re.S):
        out[html.unescape(name)] = [
            (html.unescape(label), [tuple(map(float, point.split())) for point in re.split("[ML]", path)[1:]])
            for path, label in re.findall(r'<path[^>]* d="(.*?)"><title>(.*?)</title>', body)]
    return out


def test_curves_of_several_runs(tmp_path):
    write(tmp_path / "a.jsonl", [{"loss": 4.0, "mfu": None}, {"loss": 2.0, "mfu": None}, {"loss": 1.0, "mfu": None}])
    write(tmp_path / "b.jsonl", [{"loss": 3.0}], [{"loss": 3.0, "metric.accuracy": 0.5}, {"loss": 2.5, "metric.accuracy": 0.75}])
    done = plot(tmp_path, "a.jsonl", "b.jsonl")
    assert done.returncode == 0, done.stderr
    found = charts(tmp_path)
    assert list(found) == ["loss", "metric.accuracy"]  # nothing is known of mfu
    assert [label for label, _ in found["loss"]] == ["a.jsonl", "b.jsonl", "b.jsonl, run 2"]
    first = found["loss"][0][1]
    assert len(first) == 3 and first[0][0] < first[1][0] < first[2][0]
    assert first[2][1] - first[1][1] == (first[1][1] - first[0][1]) / 2  # 4, 2, 1: down is more
    text = (tmp_path / "page.html").read_text()
    assert "a &lt;small&gt; one" in text and "<small>" not in text and "plan 0123456789abcdef" in text
    assert "http" not in text and "<script" not in text


def test_evaluations_have_curves_of_their_own(tmp_path):
    write(tmp_path / "a.jsonl", [{"loss": 4.0}, {"loss": 2.0}])
    with open(tmp_path / "a.jsonl", "a") as out:
        for steps, loss in ((2, 3.0), (4, 2.5)):
            out.write(json.dumps({"evaluation": {"steps": steps, "loss": loss, "perplexity": 9.0, "batches": 1, "tokens": 8, "seconds": 0.5,
                                                 "metric.aux_loss": 1.0}}) + "\n")
    done = plot(tmp_path, "a.jsonl")
    assert done.returncode == 0, done.stderr
    found = charts(tmp_path)
    assert list(found) == ["loss", "evaluation.loss", "evaluation.perplexity", "evaluation.metric.aux_loss"]
    assert len(found["evaluation.loss"][0][1]) == 2


def test_a_long_run_is_a_small_page(tmp_path):
    write(tmp_path / "long.jsonl", [{"loss": float(step % 7)} for step in range(20_001)])
    assert plot(tmp_path, "long.jsonl").returncode == 0
    (_, points), = charts(tmp_path)["loss"]
    assert 900 <= len(points) <= 1000


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    write(tmp_path / "now.jsonl", [{"loss": 2.0}, {"loss": 1.0}])
    with open(tmp_path / "now.jsonl", "a") as out:
        out.write('{"step": 2, "lo')
    assert plot(tmp_path, "now.jsonl").returncode == 0
    assert len(charts(tmp_path)["loss"][0][1]) == 2


def test_refuses(tmp_path):
    (tmp_path / "text.jsonl").write_text("no metrics\n")
    (tmp_path / "empty.jsonl").write_text("")
    write(tmp_path / "bad.jsonl", [{"loss": 2.0}])
    with open(tmp_path / "bad.jsonl", "a") as out:
        out.write("[1]\n{}\n")
    for name, code in (("text.jsonl", "E106"), ("empty.jsonl", "E106"), ("bad.jsonl", "E106"), ("missing.jsonl", "E108")):
        done = plot(tmp_path, name)
        assert done.returncode == 1 and code in done.stderr, (name, done.stderr)
    write(tmp_path / "good.jsonl", [{"loss": 2.0}])
    assert plot(tmp_path, "good.jsonl", to="no/such/folder.html").returncode == 3
