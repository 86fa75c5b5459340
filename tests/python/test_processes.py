"""Trainers in several processes: the losses and weights of one."""
import functools
import os
import re
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


STARTERS = {
    "mpirun": [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"],
    "torchrun again": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "2", "--nproc-per-node"],
    "forked": [sys.executable, os.path.join(os.path.dirname(__file__), "forked.py")],  # as torchrun, in half of its time
}


def launch(starter, processes, folder, schedule, rest, seed="0"):
    if starter == "mpirun" and MPIRUN is None:
        pytest.skip("there is no mpirun")
    text = textwrap.dedent(PROGRAM).format(tests=os.path.dirname(__file__), schedule=schedule.text(), folder=str(folder), seed=seed)
    script = folder / "script.py"
    script.write_text(text + textwrap.dedent(rest))
    python = [sys.executable] if starter == "mpirun" else []
    done = subprocess.run([*STARTERS[starter], str(processes), *python, str(script)], capture_output=True, text=True, timeout=900,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if "E806" in done.stderr:
        pytest.skip("built without MPI")
    return done


@functools.cache
def captured():
    torch.manual_seed(0)
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    return piper.capture(model, small.batch(), loss=small.loss)


def alone(schedule, steps=3):
    with piper.Trainer(captured(), schedule, backend="local") as trainer:
        results = [trainer.step(small.batch(seed=seed)) for seed in range(steps)]
        return ([(result.loss, result.microbatches) for result in results], trainer.state_dict(), trainer.optimizer_state_dict())


TRAIN = """
    for title, text in {texts!r}.items():
        with piper.Trainer(graph, piper.Schedule(text)) as trainer:
            assert trainer.processes == 2
            results = [trainer.step(small.batch(seed=seed)) for seed in range(3)]
            write(title, ([(result.loss, result.microbatches) for result in results], trainer.state_dict(), trainer.optimizer_state_dict()))
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


RANK = 'int(__import__("os").environ.get("RANK") or __import__("os").environ["OMPI_COMM_WORLD_RANK"])'


def schedules():
    return {
        "pipeline": piper.schedules.one_f_one_b(ranks=2, microbatches=4),
        "replicas": piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp"),
        "cut": piper.Schedule().mesh(tp=2).split(2).place({}, mesh={}).shard({"layer": "*"}, along="tp", parameters="*.down.weight: 1"),
        "both, zero 2": piper.schedules.dualpipev(ranks=2, microbatches=4, replicas=2, zero=2),
    }


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "torchrun"])
def test_two_processes_equal_one(starter, tmp_path):
    """Bit by bit, under one schedule after the other; and what the second process began with does not matter."""
    texts = {title: schedule.text() for title, schedule in schedules().items()}
    done = launch(starter, 2, tmp_path, schedules()["pipeline"], TRAIN.format(texts=texts), seed=RANK)
    assert done.returncode == 0, done.stderr
    for title, schedule in schedules().items():
        expected = alone(schedule)
        for rank in range(2):
            assert same(torch.load(tmp_path / f"{title}{rank}"), expected), (title, rank)


TOKENS = """
    torch.manual_seed(0)
    graph = piper.capture(small.Attending(), small.batch(length=8), loss=small.loss)
    with piper.Trainer(graph, schedule) as trainer:
        assert trainer.processes == 2
        results = [trainer.step(small.batch(length=8, seed=seed)).loss for seed in range(3)]
        write("tokens", (results, trainer.state_dict()))
"""


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "forked"])
@pytest.mark.thorough
def test_processes_divide_tokens(starter, tmp_path):
    """Four devices, two in each process: over MPI and over TCP, bit by bit as threads of one."""
    schedule = piper.Schedule().mesh(cp=4).split(2).place({}, mesh={}).replicate({}, along="cp", zero=2).shard({}, along="cp", sequence="gather")
    done = launch(starter, 2, tmp_path, schedule, TOKENS)
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    graph = piper.capture(small.Attending(), small.batch(length=8), loss=small.loss)
    with piper.Trainer(graph, schedule, backend="local") as trainer:
        expected = [trainer.step(small.batch(length=8, seed=seed)).loss for seed in range(3)], trainer.state_dict()
    for rank in range(2):
        assert same(torch.load(tmp_path / f"tokens{rank}"), expected), rank


ROWS = """
    torch.manual_seed(0)
    graph = piper.capture(small.Choosing(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, schedule) as trainer:
        assert trainer.processes == 2
        results = [trainer.step(small.batch(seed=seed)).loss for seed in range(3)]
        write("rows", (results, trainer.state_dict()))
"""


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "forked"])
def test_processes_send_rows_to_experts(starter, tmp_path):
    """How many is known in the step, and most of them do not fit into the buffer: over MPI and over TCP, bit by bit as threads of one."""
    schedule = piper.Schedule().mesh(ep=4).split(2).place({}, mesh={}).replicate({}, along="ep", zero=2).shard(
        {"experts": "*"}, along="ep", buffer=0.25)
    done = launch(starter, 2, tmp_path, schedule, ROWS)
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    graph = piper.capture(small.Choosing(), small.batch(), loss=small.loss)
    with piper.Trainer(graph, schedule, backend="local") as trainer:
        expected = [trainer.step(small.batch(seed=seed)).loss for seed in range(3)], trainer.state_dict()
        rows = re.findall(r"(\d+) \(\S+ %\) +\d+ of \d+$", trainer.table(), re.M)
        assert len(rows) == 4 and any(int(further) > 0 for further in rows), trainer.table()
    for rank in range(2):
        assert same(torch.load(tmp_path / f"rows{rank}"), expected), rank


EVALUATE = """
    for title, text in {texts!r}.items():
        with piper.Trainer(graph, piper.Schedule(text)) as trainer:
            found = []
            for seed in range(2):
                trainer.step(small.batch(seed=seed))
                found.append(trainer.evaluate([small.batch(seed=7), small.batch(seed=8)])[:4])
            write(title, found)
"""


@pytest.mark.parametrize("starter", ["mpirun", pytest.param("torchrun", marks=pytest.mark.long)])
@pytest.mark.thorough
def test_evaluations_equal_those_of_one(starter, tmp_path):
    texts = {title: schedule.text() for title, schedule in schedules().items()}
    done = launch(starter, 2, tmp_path, schedules()["pipeline"], EVALUATE.format(texts=texts))
    assert done.returncode == 0, done.stderr
    for title, schedule in schedules().items():
        with piper.Trainer(captured(), schedule, backend="local") as trainer:
            expected = []
            for seed in range(2):
                trainer.step(small.batch(seed=seed))
                expected.append(trainer.evaluate([small.batch(seed=7), small.batch(seed=8)])[:4])
        for rank in range(2):
            assert torch.load(tmp_path / f"{title}{rank}") == expected, (title, rank)


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "forked"])
@pytest.mark.thorough
def test_a_step_that_is_not_finite_ends_nothing(starter, tmp_path):
    """All processes hear of it and go on with the weights before it."""
    done = launch(starter, 2, tmp_path, schedules()["both, zero 2"], """
        with piper.Trainer(graph, schedule) as trainer:
            good = trainer.state_dict()
            trainer.load_state_dict({**good, "head.bias": good["head.bias"] * float("nan")})
            try:
                trainer.step(small.batch())
            except piper.RunError as error:
                assert error.code == "E803", error
                trainer.load_state_dict(good)
                write("found", (trainer.evaluate([small.batch()]).loss, trainer.step(small.batch()).loss, trainer.steps))
    """)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        evaluated, loss, steps = torch.load(tmp_path / f"found{rank}")
        assert evaluated == pytest.approx(loss, rel=1e-6) and steps == 1


@pytest.mark.thorough
def test_each_process_may_give_its_part_of_the_batch(tmp_path):
    done = launch("forked", 2, tmp_path, schedules()["both, zero 2"], """
        def part(seed, rank):
            return {name: tensor.chunk(2)[rank] for name, tensor in small.batch(seed=seed).items()}

        with piper.Trainer(graph, schedule, sharded=True) as trainer:
            results = [trainer.step(part(seed, trainer.rank)) for seed in range(3)]
            write("sharded", ([(result.loss, result.microbatches) for result in results], trainer.state_dict(), trainer.optimizer_state_dict()))
            try:
                trainer.step(small.batch())
            except piper.ScheduleError as error:
                write("whole", str(error))
    """)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert same(torch.load(tmp_path / f"sharded{rank}"), alone(schedules()["both, zero 2"])), rank
        assert "the plan is for Long of shape [4, 6]" in torch.load(tmp_path / f"whole{rank}")


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "forked"])
@pytest.mark.thorough
def test_processes_that_differ_are_refused(starter, tmp_path):
    done = launch(starter, 2, tmp_path, schedules()["pipeline"], f"""
        piper.Trainer(graph, schedule, seed={RANK})
    """)
    assert done.returncode != 0 and "E805" in done.stderr and "the seed is 1, but 0 at rank 0" in done.stderr, done.stderr


@pytest.mark.parametrize("starter", [pytest.param("mpirun", marks=pytest.mark.long), "forked"])
def test_a_failure_ends_all_processes(starter, tmp_path):
    done = launch(starter, 2, tmp_path, schedules()["pipeline"], """
        wrong = small.batch()
        wrong["tokens"][0, 0] = 1000  # no such row of the embedding
        with piper.Trainer(graph, schedule) as trainer:
            trainer.step(wrong)
    """)
    assert done.returncode != 0 and "E801" in done.stderr and "device 0" in done.stderr, done.stderr


def test_a_process_that_dies_ends_the_others(tmp_path):
    """Long before any timeout is over."""
    done = launch("forked", 2, tmp_path, schedules()["pipeline"], f"""
        import os, signal
        with piper.Trainer(graph, schedule, timeout=1000) as trainer:
            trainer.step(small.batch())
            if trainer.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                trainer.step(small.batch())
            except piper.RunError as error:
                write("error", str(error))
                raise
    """)
    assert done.returncode != 0
    assert "rank 1 is gone" in torch.load(tmp_path / "error0")


@pytest.mark.thorough
def test_a_process_that_is_stopped_is_named(tmp_path):
    """Under torchrun, which ends the job: the other process fails with the reason and an exit code, not by a signal, also if garbage is
    collected while the frames of the error are still there."""
    done = launch("torchrun", 2, tmp_path, schedules()["both, zero 2"], """
        import gc, os, signal
        trainer = piper.Trainer(graph, schedule, timeout=10)
        for seed in range(3):
            trainer.step(small.batch(seed=seed))
        if trainer.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            trainer.step(small.batch())
        except piper.RunError as error:
            write("error", (error.code, str(error)))
            for _ in range(20):
                gc.collect()
            raise
    """)
    assert done.returncode != 0
    code, error = torch.load(tmp_path / "error0")
    assert code == "E802" and "(rank 1 on " in error and "gives no sign of life" in error
    assert re.search(r"rank +: 0 \(local_rank: 0\)\n +exitcode +: 1 ", done.stderr), done.stderr
    assert "SIGSEGV" not in done.stderr and "SIGBUS" not in done.stderr, done.stderr


@pytest.mark.thorough
def test_torchrun_starts_a_job_again(tmp_path):
    """A process is killed after its fourth step. The next attempt resumes from the third, with the numbers of a run that nobody disturbed."""
    done = launch("torchrun again", 2, tmp_path, schedules()["both, zero 2"], """
        import os, signal
        with piper.Trainer(graph, schedule) as trainer:
            resumed = trainer.resume({folder!r})
            results = []
            while trainer.steps < 6:
                results.append(trainer.step(small.batch(seed=trainer.steps)))
                if trainer.steps == 4 and trainer.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                    os.kill(os.getpid(), signal.SIGKILL)
                trainer.save({folder!r}, keep=2, wait=True)
            write("again", (resumed and resumed.step, [result.loss for result in results], trainer.state_dict()))
    """.format(folder=str(tmp_path / "run")))
    assert done.returncode == 0, done.stderr
    results, weights, _ = alone(schedules()["both, zero 2"], steps=6)
    for rank in range(2):
        assert same(torch.load(tmp_path / f"again{rank}"), (3, [loss for loss, _ in results[3:]], weights))


def test_a_trainer_that_failed_leaves_no_threads(tmp_path):
    """Whoever keeps the exception keeps the frames that it came through. The threads of the trainer end all the same: one that went on
    would ask processes that have left each other."""
    done = launch("forked", 2, tmp_path, schedules()["pipeline"], """
        import os, time
        def threads():
            return len(os.listdir("/proc/self/task"))
        piper.joining.join("tcp", 10)
        before = threads()
        trainer = piper.Trainer(graph, schedule, timeout=1000)
        trainer.step(small.batch())
        if trainer.rank == 1:
            os._exit(0)
        kept = None
        try:
            trainer.step(small.batch())
        except piper.RunError as error:
            kept = error
        write("after", (before, threads(), str(kept)))
        piper._piper.leave_processes()
        time.sleep(1)  # several looks of a watchdog
    """)
    assert done.returncode == 0, done.stderr
    before, after, error = torch.load(tmp_path / "after0")
    assert "rank 1 is gone" in error
    assert after <= before, (before, after)


def test_the_store_shows_no_secret(monkeypatch):
    """On one host torchrun gives the processes something in common; on several, PIPER_SECRET does."""
    from piper import joining
    for name in ("PIPER_SECRET", "TORCHELASTIC_ERROR_FILE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    address = "127.0.0.1 4711 12345678901234567890"
    assert joining._key() is None and joining._opened(None, 1, joining._sealed(None, 1, address)) == address
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_x1/none_y2/attempt_0/1/error.json")
    assert joining._key() is None, "hosts have different folders"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    one = joining._key()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/tmp/torchelastic_x1/none_y2/attempt_0/0/error.json")
    assert one and joining._key() == one
    monkeypatch.setenv("PIPER_SECRET", "s3cret")
    key = joining._key()
    assert key == b"s3cret"
    sealed = joining._sealed(key, 1, address)
    assert "12345678901234567890" not in sealed and joining._opened(key, 1, sealed) == address
    forged = [sealed.replace("4711", "4712"), sealed.replace("127.0.0.1", "192.0.2.1"), address, sealed[:-1] + ("0" if sealed[-1] != "0" else "1")]
    for text in forged:
        with pytest.raises(ValueError, match="rank 1 does not have the secret of this job"):
            joining._opened(key, 1, text)
    for other in (b"another", None):
        with pytest.raises(ValueError, match="does not have the secret"):
            joining._opened(other, 1, sealed)
    with pytest.raises(ValueError, match="rank 0 does not have the secret"):
        joining._opened(key, 0, sealed)


@pytest.mark.thorough
def test_a_process_that_does_not_come_is_named(tmp_path):
    done = launch("forked", 2, tmp_path, schedules()["pipeline"], f"""
        import os, time
        if {RANK} == 1:
            while not os.path.exists({str(tmp_path)!r} + "/said"):
                time.sleep(0.1)
            os._exit(0)
        try:
            piper.Trainer(graph, schedule, timeout=0.5)
        except piper.RunError as error:
            open({str(tmp_path)!r} + "/said", "w").write(str(error))
    """)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    assert "E805" in said and "rank 1 does not come" in said


def test_processes_without_a_meeting_point_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    model = small.Stack()
    with pytest.raises(piper.RunError, match="the processes do not find each other: .* RANK expected") as raised:
        piper.Trainer(model, example_batch=small.batch(), loss=small.loss)
    assert raised.value.code == "E805"
