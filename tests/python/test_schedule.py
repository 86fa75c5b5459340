"""Schedules from Python: the verbs, the text, JSON, CSV, the library."""
import inspect
import keyword

import pytest

import piper
from conftest import ROOT
from piper import _piper

pytestmark = pytest.mark.quick

ALL_VERBS = """mesh(pp=2, dp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=4, shape=v)
replicate({}, along=dp, zero=3, bucket=1MB, release=pass)
shard({experts=*}, along=dp, stream=tokens)
recompute({layer=[0, 2..3]})
order({stage=0, mb=0, pass=F}, [{stage=0, mb=1, pass=F}, {stage=0, mb=0, pass=B}])
prefetch({comm=gather}, distance=2)
"""


def test_verbs_print_the_text_that_the_program_prints():
    built = (piper.Schedule().mesh(pp=2, dp=2).split(4).place({}, along="pp", stages=4, shape="v")
             .replicate({}, along="dp", zero=3, bucket="1MB", release="pass").shard({"experts": "*"}, along="dp", stream="tokens")
             .recompute({"layer": [0, range(2, 4)]})
             .order({"stage": 0, "mb": 0, "pass": "F"},
                    piper.overlapped({"stage": 0, "mb": 1, "pass": "F"}, {"stage": 0, "mb": 0, "pass": "B"}))
             .prefetch({"comm": "gather"}, distance=2))
    assert str(built) == ALL_VERBS
    assert piper.Schedule(ALL_VERBS) == built and len(built.text().splitlines()) == 8


ANNOTATIONS = {"whole": "Optional[int]", "decimal": "Union[float, str, None]", "whole or word": "Union[int, str, None]", "name": "Optional[str]", "bytes": "Union[int, str, None]",
               "wholes": "Optional[Sequence[int]]", "choice": "Optional[str]", "flag": "Optional[bool]", "flag or word": "Union[bool, str, None]", "seeds": "Optional[str]",
               "devices": "Optional[Devices]", "mesh": "Optional[Filter]", "along": "Union[str, Sequence[str], None]"}


def keywords(rows):
    """The arguments of a directive as its method declares them."""
    for row in rows:
        if row["kind"] == "where":
            yield from (f"{name}: {ANNOTATIONS[name]} = None" for name in row["name"].split())
        elif row["named"]:
            name = row["name"] + "_" * keyword.iskeyword(row["name"])
            annotation = ANNOTATIONS[row["kind"]]
            yield f"{name}: " + (annotation.removeprefix("Optional[")[:-1] if row["required"] else f"{annotation} = None")


@pytest.mark.parametrize("verb", _piper.directives())
def test_methods_have_the_arguments_of_the_language(verb):
    rows = _piper.directives()[verb]
    method = getattr(piper.Schedule, verb)
    parameters = [p for name, p in inspect.signature(method).parameters.items() if name not in ("self", "what", "timeline")]
    declared = [f"{p.name}: {p.annotation}" + ("" if p.default is p.empty else f" = {p.default}") for p in parameters]
    if any(row["named"] for row in rows):
        assert declared == list(keywords(rows))
    for row in rows:
        assert not row["named"] or row["meaning"] in method.__doc__


def test_arguments_of_every_kind():
    built = (piper.Schedule().split(2, "micro batch").place({}, along="pp", stages=3, at=[1, 4], as_="part", transfers="nv link")
             .replicate({}, devices=[0, 1], zero=2, bucket=1000).shard({}, along=["a", "b"], parameters="*.wo: 1", sequence=True, regather=False)
             .shard({"experts": "*"}, along="ep", buffer=1.25)
             .prefetch({"comm": "gather"}, distance="all").use("list", memory_limit=3, backward="whole").use('file("zb.csv")', stages="part"))
    assert str(built) == """split(batch, parts=2, as="micro batch")
place({}, along=pp, stages=3, at=[1, 4], as=part, transfers="nv link")
replicate({}, devices=[0, 1], zero=2, bucket=1KB)
shard({}, along=[a, b], parameters="*.wo: 1", sequence=on)
shard({experts=*}, along=ep, buffer=1.25)
prefetch({comm=gather}, distance=all)
use list(stages=stage, microbatches=mb, memory_limit=3, backward=whole)
use file(zb.csv, stages=part, microbatches=mb)
"""


def test_devices_by_list():
    built = piper.Schedule().devices(4).place({"layer": 0}, devices=[0, 1]).replicate({"layer": 0}, devices=[[0, 1], [2, 3]])
    assert "devices=[0..1] | [2..3]" in built.text() or "devices=[0, 1] | [2, 3]" in built.text()
    assert piper.Schedule(built.text()) == built


def test_examples_are_read_and_printed():
    for path in sorted((ROOT / "examples").glob("*.piper")):
        schedule = piper.Schedule.load(path)
        assert piper.Schedule(schedule.text()) == schedule


def test_a_mistake_is_found_where_it_is_made():
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Schedule().place({}, devices=[0], shape="w")
    assert caught.value.code == "E105" and caught.value.place.line == 1 and "^" in str(caught.value)
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Schedule("mesh(pp=2)\nplaice({})\n", name="step.piper")
    assert caught.value.code == "E103" and caught.value.place == ("step.piper", 2, 1)
    assert any("place" in text for text in caught.value.help)


def test_json_there_and_back():
    schedule = piper.Schedule("devices(2)\nsplit(batch, parts=2, as=MB)\nplace({PP=0}, devices=[0])\nplace({PP=1}, devices=[1])\n")
    assert piper.Schedule.from_json(schedule.json()) == schedule
    with pytest.raises(piper.ScheduleError) as caught:
        piper.Schedule("mesh(pp=2)\n").json()
    assert caught.value.code == "E107"


def test_csv_there_and_back():
    csv = piper.schedules.timeline("zb-h1", ranks=2, microbatches=4).csv(False)
    assert piper.Schedule.from_csv(csv).csv() == csv


def test_the_library():
    assert {"gpipe", "1f1b", "zb-h1", "dualpipev"} <= set(piper.schedules.names())
    one = piper.schedules.dualpipev(ranks=4, microbatches=8, replicas=2, zero=1, experts="experts")
    assert str(one) == ("mesh(pp=4, dp=2)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=8, shape=v)\n"
                        "replicate({}, along=dp, zero=1)\nshard({experts=*}, along=dp)\nuse dualpipev(stages=stage, microbatches=mb)\n")
    assert "dualpipev" in dir(piper.schedules) and "DualPipeV" in piper.schedules.dualpipev.__doc__
    with pytest.raises(piper.ScheduleError) as caught:
        piper.schedules.one_f_one_b(ranks=0, microbatches=4)
    assert caught.value.code == "E314"
    with pytest.raises(AttributeError, match="dualpipev"):
        piper.schedules.dualpipe_w
