"""Every model of the zoo is right under every schedule, or refused with a code; docs/models_supported.md says the same."""
import os

import pytest

import zoo


def rows():
    """What the page says: name -> cells by way."""
    found = {}
    for line in zoo.PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("model", "---"):
            found[cells[0]] = dict(zip(zoo.ways(), cells[2:]))
    return found


def test_page_names_the_zoo():
    assert list(rows()) == zoo.names()
    assert len([name for kinds in zoo.FAMILIES.values() for name in kinds]) >= 40 and len(zoo.zoo_own.models()) >= 15


@pytest.mark.parametrize("name", [name if name in zoo.SHORT else pytest.param(name, marks=pytest.mark.long) for name in zoo.names()])
def test_right_or_refused(name):
    said = rows()[name]
    for way, outcome in zoo.results(zoo.make(name)).items():
        problem = zoo.refusal(outcome)
        assert problem or outcome == "right", (name, way, outcome)
        if problem:  # what the page calls right stays so
            assert problem.code in said[way] and problem.help, (name, way, str(problem))


@pytest.mark.long
@pytest.mark.parametrize("task", zoo.TASKS)
def test_every_family_that_constructs(task):
    """All that transformers has for the task, with the sizes that fit most: those that plain PyTorch can train. PIPER_ZOO_TASK, PIPER_ZOO_FROM and
    PIPER_ZOO_TO choose a task and the first and last name, so that it can be run piece by piece."""
    asked = [os.environ.get(f"PIPER_ZOO_{name}", "") for name in ("TASK", "FROM", "TO")]
    if asked[0] not in ("", task):
        pytest.skip("another task was asked for")
    found = dict(zoo.sweep(task, asked[1], asked[2] or "~"))
    tried = [kind for kind, ways in found.items() if ways]
    print(f"{task}: {len(tried)} of {len(found)} families tried")
    wrong = [(kind, way, outcome) for kind, ways in found.items() for way, outcome in ways.items()
             if not zoo.refusal(outcome) and outcome != "right"]
    assert not wrong
    assert any(asked[1:]) or len(tried) >= 5
