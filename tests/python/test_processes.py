"""Trainers in several processes: the losses and weights of one."""
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

import piper
import small

MPIRUN = shutil.which("mpirun")

PROGRAM = """
    import sys, torch
    sys.path.insert(0, {tests!r})
    import piper, small
    torch.manual_seed({seed})
    model = small.Stack()
    piper.annotate_modules(model, {{"layer": "layers.*"}})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    schedule = piper.Schedule({schedule!r})
    def write(name, value):  # at once: lines of several processes would mix
        torch.save(value, {folder!r} + "/" + name + str(piper._piper.rank()))
"""


def launch(processes, folder, schedule, rest, seed="0"):
    text = textwrap.dedent(PROGRAM).format(tests=os.path.dirname(__file__), schedule=schedule.text(), folder=str(folder), seed=seed)
    script = folder / "script.py"
    script.write_text(text + textwrap.dedent(rest))
    command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", str(processes), sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def alone(schedule, steps=3):
    torch.manual_seed(0)
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, schedule, backend="local") as trainer:
        results = [trainer.step(small.batch(seed=seed)) for seed in range(steps)]
        return ([(result.loss, result.microbatches) for result in results], trainer.state_dict(), trainer.optimizer_state_dict())


TRAIN = """
    with piper.Trainer(graph, schedule) as trainer:
        assert trainer.processes == 2
        results = [trainer.step(small.batch(seed=seed)) for seed in range(3)]
        write("result", ([(result.loss, result.microbatches) for result in results], trainer.state_dict(), trainer.optimizer_state_dict()))
        assert bool(trainer.table()) == (trainer.rank == 0)
"""


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


needs_mpi = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")


def schedules():
    return {
        "pipeline": piper.schedules.one_f_one_b(ranks=2, microbatches=4),
        "replicas": piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp"),
        "both, zero 2": piper.schedules.dualpipev(ranks=2, microbatches=4, replicas=2, zero=2),
    }


@needs_mpi
@pytest.mark.parametrize("title", ["pipeline", pytest.param("replicas", marks=pytest.mark.long), "both, zero 2"])
def test_two_processes_equal_one(title, tmp_path):
    """Bit by bit; and what the second process began with does not matter."""
    schedule = schedules()[title]
    done = launch(2, tmp_path, schedule, TRAIN, seed='__import__("os").environ["OMPI_COMM_WORLD_RANK"] != "0"')
    if "E806" in done.stderr:
        pytest.skip("built without MPI")
    assert done.returncode == 0, done.stderr
    expected = alone(schedule)
    for rank in range(2):
        assert same(torch.load(tmp_path / f"result{rank}"), expected), rank


@needs_mpi
def test_processes_that_differ_are_refused(tmp_path):
    done = launch(2, tmp_path, schedules()["pipeline"], """
        import os
        piper.Trainer(graph, schedule, seed=int(os.environ["OMPI_COMM_WORLD_RANK"]))
    """)
    assert done.returncode != 0 and "E805" in done.stderr and "the seed is 1, but 0 at rank 0" in done.stderr, done.stderr


@needs_mpi
def test_a_failure_ends_all_processes(tmp_path):
    done = launch(2, tmp_path, schedules()["pipeline"], """
        wrong = small.batch()
        wrong["tokens"][0, 0] = 1000  # no such row of the embedding
        with piper.Trainer(graph, schedule) as trainer:
            trainer.step(wrong)
    """)
    assert done.returncode != 0 and "E801" in done.stderr and "device 0" in done.stderr, done.stderr


def test_torchrun_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    model = small.Stack()
    with pytest.raises(piper.RunError, match="torchrun has started 2 processes"):
        piper.Trainer(model, example_batch=small.batch(), loss=small.loss)
