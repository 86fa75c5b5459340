#!/usr/bin/env python3
"""Runs that are killed while they save, and chains of plans: what they end with is what one undisturbed run ends with.

    checkpoint_campaign.py [--kills=N] [--losses=N] [--chains=N] [--seed=S] PIPER    exit 77 where there is no mpirun

--kills: jobs of four processes that save after every step, all killed at once at a random moment, and started again.
--losses: the same jobs, of which one process is killed at a random pwrite, fsync or rename of its saves.
--chains: plan A, stopped by a signal; plan B, killed; plan C to the end. Each in threads of one process, or in several; of a dense
    model and of one with experts in turn.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests" / "train_loop"))
import campaign  # noqa: E402
import processes_test as jobs  # noqa: E402

STEPS = 60
LIMIT = 900  # seconds for anything that ends by itself
FAILED = 3  # code of a job that has lost a process
# In float64, so that the losses of all plans are equal but for the order of sums.
FLOAT64 = 'batch = 16\nweights = "float64"\ngradients = "float64"'
DENSE = jobs.CONFIG.replace("reference-moe", "reference").replace("experts = 4\n", "")
# Every token finds a slot, and experts need no balance: what a slice computes does not depend on the others.
EXPERTS = jobs.CONFIG.replace("reference-moe", "qwen3-moe").replace(
    "experts = 4\n", "kv_heads = 2\nexperts = 4\ntop_k = 2\ncapacity_factor = 2.0\nmoe_ffn = 16\nrouter_aux_loss_coef = 0\n")
MODELS = {"dense": (DENSE, [name for name, text in jobs.SCHEDULES.items() if "experts" not in text]), "experts": (EXPERTS, list(jobs.SCHEDULES))}


class Run:
    """One start of the program, in one process or several, which saves after every step."""

    def __init__(self, piper, folder, schedule, processes, *options, **environment):
        self.tag = uuid.uuid4().hex
        start = [piper, "launch", "-n", str(processes)] if processes > 1 else [piper, "train"]
        self.process = subprocess.Popen([*start, "c.toml", "--schedule", f"{schedule}.piper", "--checkpoints", "run", "--resume",
                                         "--metrics", "m.jsonl", "--timeout", "60", *options], cwd=folder, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", campaign.TAG: self.tag, **environment})
        self.text = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        self.text = self.process.stdout.read()

    def wait_for(self, happened):
        """Until it has happened, or the run is over."""
        until = time.monotonic() + LIMIT
        while not happened() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)

    def kill(self):
        """All of its processes, with SIGKILL."""
        while alive := campaign.survivors(self.tag):
            for pid, _ in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.poll()
            time.sleep(0.01)
        return self.end()

    def end(self):
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reader.join()
        return self.process.returncode


def steps_saved(folder):
    return [int(name.name[5:]) for name in (folder / "run").glob("step-*") if re.fullmatch(r"step-\d+", name.name)]


def losses(path):
    """By step; of those that were taken twice the last. A kill may cut off a line."""
    out = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "loss" in record:
            out[record["step"]] = record["loss"]
    return out


class Campaign:
    """Of one model."""

    def __init__(self, piper, folder, model, seed):
        self.piper, self.folder, self.dice, self.problems, self.in_saves = piper, folder, random.Random(seed), 0, 0
        config, self.schedules = MODELS[model]
        folder.mkdir()
        (folder / "c.toml").write_text(config.replace("batch = 16", FLOAT64).replace("steps = 3", f"steps = {STEPS}"))
        for name in self.schedules:
            (folder / f"{name}.piper").write_text(jobs.SCHEDULES[name])
        subprocess.run([piper, "train", "c.toml", "--schedule", f"{self.schedules[0]}.piper", "--metrics", "whole.jsonl"], cwd=folder, check=True,
                       capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.whole = losses(folder / "whole.jsonl")
        self.begin()

    def begin(self):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "m.jsonl").unlink(missing_ok=True)
        self.seen = {}

    def expect(self, fine, what):
        if not fine:
            self.problems += 1
            print(what, flush=True)
        return fine

    def remember(self):
        """Losses since the last start; the file begins anew with each."""
        self.seen.update(losses(self.folder / "m.jsonl"))

    def expect_sound(self, text):
        """Every folder that has the name of a checkpoint is a whole one."""
        if not (self.folder / "run").exists():
            return
        done = subprocess.run([self.piper, "checkpoint", "verify", "run"], cwd=self.folder, capture_output=True, text=True)
        self.expect(done.returncode == 0 or not steps_saved(self.folder), f"damaged:\n{done.stdout}{done.stderr}{text}")

    def expect_equal(self, what):
        wrong = {step: (self.seen.get(step), loss) for step, loss in self.whole.items()
                 if step not in self.seen or abs(self.seen[step] - loss) > 1e-11 * abs(loss)}
        self.expect(not wrong, f"{what}: other losses {wrong}")

    def start(self, schedule, processes, **environment):
        return Run(self.piper, self.folder, schedule, processes, "--checkpoint-every", "1", "--keep", "3", **environment)

    def being_written(self):
        out = set()
        for name in (self.folder / "run").glob("step-*.partial"):
            with contextlib.suppress(FileNotFoundError):  # it has become a checkpoint
                out.add((name.name, name.stat().st_ino))
        return out

    def disturbed(self, schedule, processes, end, *codes, **environment):
        """Ended at a random moment after its first save; whether it had come to its last step before."""
        before, partial = set(steps_saved(self.folder)), self.being_written()
        run = self.start(schedule, processes, **environment)
        if not environment:
            run.wait_for(lambda: set(steps_saved(self.folder)) - before)
            time.sleep(self.dice.random() ** 2)
            if self.dice.random() < 0.5:  # at any moment; or in a save, most of which are short
                run.wait_for(lambda: self.being_written() - partial)
                time.sleep(0.02 * self.dice.random())
        code = end(run)
        self.in_saves += bool(self.being_written() - partial)
        self.remember()
        self.expect_sound(run.text)
        self.expect(code in (0, *codes), f"{schedule} in {processes}: code {code}\n{run.text}")
        return code == 0

    def finish(self, schedule, processes, what):
        run = self.start(schedule, processes)
        self.expect(run.end() == 0, f"{what}: code {run.process.returncode}\n{run.text}")
        self.remember()
        self.expect_equal(what)

    def kills(self, count):
        self.killed(count, "jobs killed", lambda schedule: self.disturbed(schedule, 4, Run.kill, -signal.SIGKILL))

    def losses(self, count, library):
        """`library`: kills the process of a rank at its Nth call."""

        def lose(schedule):
            calls = int(10 ** (1 + 2.5 * self.dice.random()))  # in its first save, or much later
            return self.disturbed(schedule, 4, Run.end, FAILED, LD_PRELOAD=library, PIPER_DIE_AT=f"{self.dice.randrange(4)}:{calls}")

        self.killed(count, "processes lost", lose)

    def killed(self, count, what, kill):
        killed, self.in_saves = 0, 0
        while killed < count:
            self.begin()
            whole, since = False, 0
            while killed < count and not whole:
                whole = kill(self.dice.choice(self.schedules))
                killed, since = killed + (not whole), since + (not whole)
                print(f"{killed} {what}, {self.in_saves} while they saved, at step {max(steps_saved(self.folder), default=0)}; "
                      f"{self.problems} problems", flush=True)
            self.finish(self.dice.choice(self.schedules), 4, f"after {since} {what}")

    def chain(self):
        def stop(run):
            run.process.send_signal(signal.SIGTERM)
            return run.end()

        self.begin()
        plans = [(self.dice.choice(self.schedules), self.dice.choice((1, 1, 2, 4))) for _ in range(3)]
        if not self.disturbed(*plans[0], stop, 128 + signal.SIGTERM):
            self.disturbed(*plans[1], Run.kill, -signal.SIGKILL)
        self.finish(*plans[2], f"chain {plans}")
        print(f"chain {plans}: {self.problems} problems", flush=True)


def library_that_kills(folder):
    """None: there is no compiler here."""
    library = folder / "die_at_call.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", root / "tests" / "train_loop" / "die_at_call.c", "-o", library, "-ldl"], check=True)
    return str(library)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--losses", type=int, default=2)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("piper")
    arguments = parser.parse_args()
    if not shutil.which("mpirun"):
        print("skipped: there is no mpirun here")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trials = [Campaign(str(pathlib.Path(arguments.piper).resolve()), folder / model, model, arguments.seed) for model in MODELS]
        trials[0].kills(arguments.kills)
        if library := library_that_kills(folder):
            trials[0].losses(arguments.losses, library)
        else:
            print("no process is killed at a call: there is no compiler here")
        for chain in range(arguments.chains):
            trials[chain % len(trials)].chain()
    return 1 if any(trial.problems for trial in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
