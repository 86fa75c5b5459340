"""Trainers: steps, state, failures, and how they end."""
import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch

import piper
import plain
import small

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import limits  # noqa: E402


def make(schedule=None, **options):
    model = small.Stack()
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    return model, piper.Trainer(graph, schedule, **options)


def test_a_step():
    model, trainer = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4), devices=2)
    with trainer:
        result = trainer.step(small.batch())
        parts = plain.slices_of(small.batch(), 4)
        expected = [small.loss(model, part).item() for part in parts]
        assert result.microbatches == pytest.approx(expected, rel=1e-5)
        assert result.loss == pytest.approx(sum(expected) / 4, rel=1e-5) == float(result)
        assert result.gradient_norm > 0 and not result.skipped and trainer.steps == 1
        assert "memory planned" in trainer.table() and "traceEvents" in trainer.trace()


def test_how_far_the_prediction_was_off():
    model, trainer = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4), cluster="h100")
    with trainer:
        trainer.step(small.batch())
        last = re.sub(r"\d+(\.\d+)?", "N", trainer.table().splitlines()[-1])
        assert re.fullmatch(r"a step takes N (us|ms|s) \(median\), N (ns|us|ms) by prediction: N % longer than predicted", last), last
    _, without = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4))
    with without:
        without.step(small.batch())
        assert "prediction" not in without.table()


def test_losses_of_microbatches_under_data_parallelism():
    model, trainer = make(piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp"))
    with trainer:
        result = trainer.step(small.batch())
    expected = [small.loss(model, part).item() for part in plain.slices_of(small.batch(), 2)]
    assert result.microbatches == pytest.approx(expected, rel=1e-5)


def test_state_there_and_back():
    model, trainer = make()
    with trainer:
        for seed in range(3):
            trainer.step(small.batch(seed=seed))
        state = trainer.state_dict()
        model.load_state_dict(state)
        loss = trainer.step(small.batch(seed=9)).loss
        assert loss == pytest.approx(small.loss(model, small.batch(seed=9)).item(), rel=1e-6)
        trainer.load_state_dict(state)
        assert trainer.step(small.batch(seed=9)).loss == loss
        with pytest.raises(piper.ScheduleError, match="has no"):
            trainer.load_state_dict({})
        with pytest.raises(piper.ScheduleError, match="shape"):
            trainer.load_state_dict({**state, "head.bias": torch.zeros(2)})


def plain_adamw(model, batches, slices):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    for batch in batches:
        optimizer.zero_grad()
        for part in plain.slices_of(batch, slices):
            (small.loss(model, part) / slices).backward()
        optimizer.step()
    return optimizer.state


def test_state_of_the_optimizer():
    """Moments have the names and shapes of the parameters, whatever the schedule, and the numbers of torch.optim.AdamW."""
    batches = [small.batch(seed=seed) for seed in range(3)]
    for schedule, slices in (("devices(1)\nplace({}, devices=[0])\n", 1),
                             (piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=1), 4)):
        model, trainer = make(schedule)
        with trainer:
            for batch in batches:
                trainer.step(batch)
            state = trainer.optimizer_state_dict()
        expected = plain_adamw(model, batches, slices)
        assert state["steps"] == state["updates"] == 3 and state["kind"] == "adamw"
        assert state["state"].keys() == dict(model.named_parameters()).keys()
        for name, parameter in model.named_parameters():
            for entry in ("exp_avg", "exp_avg_sq"):
                ours, theirs = state["state"][name][entry], expected[parameter][entry]
                assert ours.shape == theirs.shape
                assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max(), (name, entry)


def test_a_run_goes_on_under_another_schedule():
    later = [small.batch(seed=seed) for seed in range(3, 6)]
    _, trainer = make(piper.Schedule().mesh(dp=2).split(2).place({}, mesh={}).replicate({}, along="dp", zero=2))
    with trainer:
        for seed in range(3):
            trainer.step(small.batch(seed=seed))
        saved = trainer.state_dict(), trainer.optimizer_state_dict()
        expected = [trainer.step(batch).loss for batch in later]
        end = trainer.state_dict()
        trainer.load_state_dict(saved[0])
        trainer.load_optimizer_state_dict(saved[1])
        assert trainer.steps == 3 and [trainer.step(batch).loss for batch in later] == expected
        assert all(torch.equal(value, end[name]) for name, value in trainer.state_dict().items())
    _, other = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4))
    with other:
        other.load_state_dict(saved[0])
        other.load_optimizer_state_dict(saved[1])
        assert [other.step(batch).loss for batch in later] == pytest.approx(expected, rel=1e-5)


def test_momentum_and_master_weights_are_state_too():
    model = small.Stack().to(torch.bfloat16)
    piper.annotate_modules(model, {"layer": "layers.*"})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    with piper.Trainer(graph, optimizer=piper.SGD(lr=0.1, momentum=0.9, gradients="float32", master="float32")) as trainer:
        trainer.step(small.batch())
        state = trainer.optimizer_state_dict()["state"]["head.weight"]
        assert state.keys() == {"momentum_buffer", "master"} and state["master"].dtype == torch.float32
        assert torch.equal(state["master"].to(torch.bfloat16), trainer.state_dict()["head.weight"])


def test_state_of_another_optimizer_is_refused():
    _, trainer = make()
    with trainer:
        state = trainer.optimizer_state_dict()
        with pytest.raises(piper.ScheduleError, match="one of sgd"):
            trainer.load_optimizer_state_dict({**state, "kind": "sgd"})
        with pytest.raises(piper.ScheduleError, match="exp_avg of embedding.weight is missing"):
            trainer.load_optimizer_state_dict({**state, "state": {}})


def test_learning_rate_may_change():
    model, trainer = make(optimizer=piper.SGD(lr=0.0))
    with trainer:
        trainer.step(small.batch())
        assert torch.equal(trainer.state_dict()["head.weight"], model.head.weight)
        trainer.optimizer.lr = 0.1
        trainer.step(small.batch())
        assert not torch.equal(trainer.state_dict()["head.weight"], model.head.weight)
        trainer.optimizer = piper.AdamW()
        with pytest.raises(piper.ScheduleError, match="the plan is for sgd, the optimizer is adamw now"):
            trainer.step(small.batch())
        assert trainer.steps == 2


def test_wrong_number_of_devices():
    with pytest.raises(piper.ScheduleError) as caught:
        make(devices=2)
    assert caught.value.code == "E205"


def test_wrong_batches_change_nothing():
    _, trainer = make()
    with trainer:
        with pytest.raises(piper.ScheduleError, match="input tokens is Long of shape"):
            trainer.step(small.batch(samples=4))
        with pytest.raises(piper.CaptureError, match="dictionary"):
            trainer.step((torch.zeros(8, 6),))
        assert trainer.steps == 0
        trainer.step(small.batch())


@pytest.mark.parametrize("wrong", [dict(timeout=float("nan")), dict(timeout=0), dict(seed=-1), dict(seed=1.5), dict(threads=0)])
def test_numbers_that_mean_nothing_are_refused(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(piper.ScheduleError, match=f"{name} is {value}") as raised:
        make(**wrong)
    assert raised.value.code == "E105"


def test_not_finite():
    model, trainer = make(on_nan="skip")
    with torch.no_grad():
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state["head.bias"][0] = float("nan")
    with trainer:
        trainer.load_state_dict(state)
        assert trainer.step(small.batch()).skipped
    _, trainer = make()
    trainer.load_state_dict(state)
    with pytest.raises(piper.RunError) as caught:
        trainer.step(small.batch())
    assert caught.value.code == "E803"
    trainer.close()


def test_an_operator_that_fails_ends_the_step():
    _, trainer = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4))
    wrong = small.batch()
    wrong["tokens"][0, 0] = 1000  # no such row of the embedding
    with pytest.raises(piper.RunError) as caught:
        trainer.step(wrong)
    assert caught.value.code == "E801" and "device 0" in caught.value.message


def test_python_runs_beside_a_step():
    """If the devices kept the interpreter, no other thread would be seen for as long as they take: in every step, however busy the machine."""
    _, trainer = make()
    seen, done, beside, until = [], threading.Event(), False, time.perf_counter() + limits.SLACK

    def look():
        while not done.is_set():
            seen.append(time.perf_counter())
            time.sleep(0)

    thread = threading.Thread(target=look)
    thread.start()
    with trainer:
        while not beside and time.perf_counter() < until:
            begin = time.perf_counter()
            seen.clear()
            seconds = trainer.step(small.batch()).seconds
            times = [begin, *seen, time.perf_counter()]
            beside = max(after - before for before, after in zip(times, times[1:])) < seconds
    done.set()
    thread.join()
    assert beside


def in_use(tmp_path):
    """Bytes that malloc has given out, and blocks that Python has. (Resident memory also grows where free memory is touched again.)"""
    libc = ctypes.CDLL("libc.so.6")
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(tmp_path / "malloc.xml").encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    text = (tmp_path / "malloc.xml").read_text()
    whole = text[text.rindex("</heap>"):]  # what follows is about all heaps
    size = {kind: int(size) for kind, size in re.findall(r'<total type="(\w+)" count="\d+" size="(\d+)"', whole)}
    taken = int(re.search(r'<system type="current" size="(\d+)"', whole).group(1))
    return taken - size["fast"] - size["rest"] + size["mmap"], sys.getallocatedblocks()


def test_nothing_leaks(tmp_path):
    _, trainer = make(piper.schedules.one_f_one_b(ranks=2, microbatches=4))
    batch = small.batch()
    grown = []  # in each time 120 steps: what leaks does so every time, what caches of threads take for good only in some
    leaks = lambda bytes, blocks: bytes >= 120 * 16 or blocks >= 100
    with trainer:
        for _ in range(100):
            trainer.step(batch)
        while len(grown) < 12 and (not grown or leaks(*grown[-1])):
            gc.collect()
            before = in_use(tmp_path)
            for _ in range(120):
                trainer.step(batch)
            gc.collect()
            grown.append([after - then for after, then in zip(in_use(tmp_path), before)])
    assert not leaks(*grown[-1]), grown
    threads = threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(3):
        make(piper.schedules.one_f_one_b(ranks=2, microbatches=4))[1].close()
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == threads


PROGRAM = """
    import signal, sys, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal; a shell's background ignores it
    sys.path.insert(0, {tests!r})
    import piper, small, torch
    model = small.Stack()
    piper.annotate_modules(model, {{"layer": "layers.*"}})
    graph = piper.capture(model, small.batch(), loss=small.loss)
    trainer = piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=4))
    trainer.step(small.batch())
    print("started", flush=True)
"""


def program(rest):
    text = textwrap.dedent(PROGRAM).format(tests=os.path.dirname(__file__)) + textwrap.dedent(rest)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ENDS = {"": 0, "raise SystemExit(5)": 5, "1 / 0": 1, "sys.trainer = trainer": 0}  # how a program ends: its exit code


def test_the_interpreter_ends_cleanly():
    """In copies of one process that has imported everything, which takes longer than the rest."""
    text = textwrap.dedent(PROGRAM).format(tests=os.path.dirname(__file__))
    copies = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import piper, small, torch._dynamo  # which FakeTensorMode needs
        for end, code in {ENDS!r}.items():
            process = os.fork()
            if process == 0:
                exec({text!r} + end)
                break
            found = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            print("ended", found == code or (end, found), flush=True)
    """)
    running = subprocess.run([sys.executable, "-c", copies], capture_output=True, text=True, timeout=900)
    assert running.stdout.count("ended True\n") == len(ENDS) and "terminate" not in running.stderr, (running.stdout, running.stderr)


def test_control_c_ends_a_run():
    running = program("""
        try:
            print("stepping", flush=True)
            while True:
                trainer.step(small.batch())
        except KeyboardInterrupt:
            trainer.step(small.batch())   # the step was finished: the trainer is as good as before
            print("stopped", flush=True)
    """)
    assert running.stdout.readline() == "started\n" and running.stdout.readline() == "stepping\n"
    time.sleep(0.5)  # wherever it is then
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=900)
    assert out == "stopped\n" and running.returncode == 0, errors
