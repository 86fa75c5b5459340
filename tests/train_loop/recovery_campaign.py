#!/usr/bin/env python3
"""Random faults in jobs of `piper launch --backend tcp --spares 2`: processes are killed, stopped, or fail, one or two at once, at random
operations or from outside, also while another loss is made good. Each job ends with the losses and weights of a run that nobody disturbed,
bit by bit; or, where two faults have lost a state, with code 3 and words that say so. Nothing is left of it.

    recovery_campaign.py [--trials=N] [--seed=S] [--timeout=SECONDS] PIPER

Prints what became of each, and at the end how many survived, and how long each phase took.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import campaign  # noqa: E402
import processes_test as jobs  # noqa: E402
import tcp_test  # noqa: E402

PROCESSES, SPARES, STEPS = 4, 2, 12
LIMIT = 1800  # seconds for anything that ends by itself

REPLICAS = """mesh(pp=2, dp=2)
split(batch, parts=4, as=mb)
place({{}}, along=pp, stages=2)
replicate({{}}, along=dp, zero={zero})
use 1f1b(stages=stage, microbatches=mb)
"""
SCHEDULES = {**jobs.SCHEDULES, **{f"pipeline_of_zero{zero}": REPLICAS.format(zero=zero) for zero in range(4)}}

# Where a job ends that cannot go on, it says one of these.
ENDS = {
    "state lost": r"E805\]: what devices? \S+ held after (?:step \d+|\d+ updates) is lost",
    "too few spares": r"piper: the job cannot go on: \d process(?:es are| is) lost, and there (?:is|are) \d spares?",
    "all lost": r"piper: the job cannot go on: all its processes are lost",
}
PHASES = ("noticed within", "agreed after", "met after", "planned after", "state after", "step after")
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def steps_of(path):
    """Loss and norm by step, and a step that did not come out the same when it was taken again."""
    out, different = {}, None
    for line in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(line)
        if "loss" in line and out.setdefault(line["step"], (line["loss"], line["gradient_norm"])) != (line["loss"], line["gradient_norm"]):
            different = line["step"]
    return out, different


def weights_of(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.glob(f"step-{STEPS:08}/*.safetensors"))}


class Fault:
    """What goes wrong first, and what, if anything, second."""

    def __init__(self, dice):
        self.schedule = dice.choice(list(SCHEDULES))
        first, second = dice.sample(range(PROCESSES), 2)
        self.planted, self.outside, self.with_what = [], [], signal.SIGKILL
        self.count = dice.choice((1, 1, 2))
        if dice.random() < 0.5:
            self.outside = [first, second][:self.count]
            self.after = dice.randrange(1, STEPS // 2)
            if dice.random() < 0.2:
                self.with_what = signal.SIGSTOP
            return
        kind = dice.choice(("kill", "kill", "kill", "throw", "throw", "stop"))
        self.planted.append(f"{kind}:{first}:{dice.randrange(1, 300)}")
        if self.count == 2:  # of the first spare, of one that is left, or anywhere
            self.planted.append(dice.choice((f"kill:{PROCESSES}:forming", f"kill:{PROCESSES}:restoring", f"throw:{PROCESSES}:restoring",
                                             f"kill:{second}:restoring", f"throw:{second}:{dice.randrange(1, 300)}",
                                             f"kill:{second}:{dice.randrange(1, 300)}")))

    def __str__(self):
        what = self.planted or [f"{self.with_what.name} of {' and '.join(map(str, self.outside))} after {self.after} steps"]
        return f"{', '.join(what)} in {self.schedule}"


class Campaign:
    def __init__(self, piper, folder, timeout):
        self.piper, self.folder, self.timeout = piper, folder, timeout
        self.undisturbed, self.counts, self.phases = {}, collections.Counter(), collections.defaultdict(list)
        (folder / "c.toml").write_text(jobs.CONFIG)
        for name, text in SCHEDULES.items():
            (folder / f"{name}.piper").write_text(text)
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

    def clean(self):
        for name in ("m.jsonl", "output"):
            (self.folder / name).unlink(missing_ok=True)
        subprocess.run(["rm", "-rf", self.folder / "run"], check=True)

    def expected(self, schedule):
        """Of one process."""
        if schedule not in self.undisturbed:
            self.clean()
            subprocess.run([self.piper, "train", "c.toml", "--schedule", f"{schedule}.piper", "--steps", str(STEPS), "--metrics", "m.jsonl",
                            "--checkpoints", "run"], cwd=self.folder, env=self.environment, check=True, capture_output=True)
            self.undisturbed[schedule] = steps_of(self.folder / "m.jsonl")[0], weights_of(self.folder / "run")
            assert len(self.undisturbed[schedule][0]) == STEPS and self.undisturbed[schedule][1], schedule
        return self.undisturbed[schedule]

    def strike(self, job, fault):
        metrics = self.folder / "m.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 1 + fault.after:
            if job.poll() is not None:
                return
            time.sleep(0.01)
        started = tcp_test.started_by(job.pid)
        for number in fault.outside:
            try:
                os.kill(started[number], fault.with_what)
            except (KeyError, ProcessLookupError):  # the job has ended
                pass

    def run(self, fault):
        losses, weights = self.expected(fault.schedule)
        self.clean()
        tag = uuid.uuid4().hex
        planted = [word for text in fault.planted for word in ("--fault", text)]
        line = [self.piper, "launch", "--backend", "tcp", "--spares", str(SPARES), "-n", str(PROCESSES), "c.toml", "--schedule",
                f"{fault.schedule}.piper", "--steps", str(STEPS), "--timeout", str(self.timeout), "--metrics", "m.jsonl", "--checkpoints", "run",
                "--checkpoint-every", "4", *planted]
        with open(self.folder / "output", "w") as output:
            job = subprocess.Popen(line, cwd=self.folder, stdout=output, stderr=output, env={**self.environment, campaign.TAG: tag})
        try:
            if fault.outside:
                self.strike(job, fault)
            code = job.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = "none: it hangs"
        text = (self.folder / "output").read_text()
        problems = self.judge(fault, code, text, losses, weights)
        if left := self.left_of(tag):
            problems.append(f"left: {left}")
            for process, _ in left:
                os.kill(process, signal.SIGKILL)
        return problems, text

    @staticmethod
    def left_of(tag):
        until = time.monotonic() + jobs.SLACK
        while campaign.survivors(tag) and time.monotonic() < until:
            time.sleep(0.1)
        return campaign.survivors(tag)

    def judge(self, fault, code, text, losses, weights):
        found, different = steps_of(self.folder / "m.jsonl")
        problems = [f"step {different} came out different when it was taken again"] if different is not None else []
        if wrong := [step for step in found if step in losses and found[step] != losses[step]]:
            problems.append(f"other losses in steps {wrong}")
        lost = len(re.findall(r"piper: process \d is lost", text))
        if code == 0:
            self.outcome = f"survived {lost}" if lost else "not struck"
            if found != losses:
                problems.append(f"{len(found)} steps")
            if weights_of(self.folder / "run") != weights:
                problems.append("other weights")
            for line in re.findall(r"^back: .*$", text, re.M):
                for phase in PHASES:
                    if seconds := re.search(rf"{phase} ([\d.]+) (\S+?)(?:,|$)", line):
                        self.phases[phase].append(float(seconds[1]) * UNITS[seconds[2]])
        else:
            self.outcome = next((name for name, words in ENDS.items() if re.search(words, text)), "failed")
            if code != 3:
                problems.append(f"exit code {code}")
            if self.outcome == "failed":
                problems.append("it does not say why it ends")
            if fault.count < 2:
                problems.append("one loss was not survived")
            if not re.search(r"piper: (the newest checkpoint is run/step-|there is no checkpoint in run)", text):
                problems.append("it does not say where to go on")
        self.counts[self.outcome] += 1
        return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=15)
    parser.add_argument("piper")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        trials = Campaign(str(pathlib.Path(arguments.piper).resolve()), pathlib.Path(folder), arguments.timeout)
        for trial in range(arguments.trials):
            fault = Fault(random.Random(1000 * arguments.seed + trial))
            problems, text = trials.run(fault)
            failed += bool(problems)
            print(f"{trial}: {fault}: {'; '.join(problems) or trials.outcome}", flush=True)
            if problems:
                print(text, flush=True)
    print(f"{arguments.trials} faults, {failed} problems: {dict(trials.counts)}")
    for phase in PHASES:
        if seconds := sorted(trials.phases[phase]):
            print(f"{phase:>14}: median {statistics.median(seconds):.3f} s, longest {seconds[-1]:.3f} s, of {len(seconds)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
