"""Every model of the zoo is right under every schedule, or refused with a code; docs/models_supported.md says the same."""

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
    """All that transformers has for the task, with the sizes that fit most: those that plain PyTorch can train."""
    tried = 0
    for kind in zoo.families(task):
        animal = zoo.constructed(kind, task)
        if animal is None:
            continue
        tried += 1
        for way, outcome in zoo.results(animal).items():
            assert zoo.refusal(outcome) or outcome == "right", (kind, way, outcome)
    assert tried >= 5
