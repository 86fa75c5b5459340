#!/usr/bin/env python3
"""Faults at random operations of random processes, in jobs of `piper launch`: each ends in time, with the right code and culprit, and
nothing of it is left. And jobs that must not be ended: beside a busy loop on every core.

    campaign.py [--trials=N] [--steps=N] [--seed=S] PIPER    exit 77 where there is no mpirun

--trials: faults; --steps: of a run without any, beside busy loops (0: none).
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests" / "train_loop"))
import processes_test as jobs  # noqa: E402

PROCESSES = 4
TIMEOUT = 3
TAG = "PIPER_CAMPAIGN"

# Kind: the exit code, and what the output says; {rank} is the culprit.
FAULTS = {
    "kill": (3, r"process rank {rank} |rank {rank} on \S+\) gives no sign of life|"
                r"rank {rank} \(|device {rank} \(rank {rank} "),
    "stop": (3, r"device {rank} \(rank {rank} on \S+\) gives no sign of life"),
    "throw": (3, r"E801\]: device {rank}: op .*a planted fault"),
    "memory": (3, r"E801\]: device {rank}: op .*memory"),
    "hang": (3, r"E802\]: an operation takes .*: device {rank}: op .* does not end"),
    "plan": (1, r"E805\]: [^\x00]*rank {rank}"),
}


def survivors(tag):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"{TAG}={tag}".encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                found.append((int(process.name), (process / "comm").read_text().strip()))
        except OSError:
            pass
    return found


class Trial:
    """A job, with the times at which its lines came."""

    def __init__(self, piper, folder, schedule, *options):
        self.tag = uuid.uuid4().hex
        (pathlib.Path(folder) / "m.jsonl").unlink(missing_ok=True)
        line = [piper, "launch", "-n", str(PROCESSES), "c.toml", "--schedule", f"{schedule}.piper", "--timeout", str(TIMEOUT),
                "--metrics", "m.jsonl", *options]
        self.process = subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", TAG: self.tag})
        self.lines = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def end(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for pid, _ in survivors(self.tag) if self.process.wait() == -9 else []:
            os.kill(pid, 9)
        self.reader.join()
        self.ended = time.monotonic()
        self.text = "".join(line for _, line in self.lines)


def run_fault(piper, folder, dice, kind):
    """Whether all was as it should be, and how many seconds after its limit the job ended."""
    rank, operation = dice.randrange(PROCESSES), dice.randrange(1, 1500)
    schedule = dice.choice(list(jobs.SCHEDULES))
    code, culprit = FAULTS[kind]
    job = Trial(piper, folder, schedule, "--steps", "1000000", "--fault", f"{kind}:{rank}:{operation}")
    job.end(30 * TIMEOUT + 600)  # in the first step anything may take 30 times the timeout
    problems = []
    planted = [when for when, line in job.lines if "a planted fault in rank" in line]
    seconds = job.ended - planted[0] if planted else 0
    deadlines = [float(number) for number in re.findall(r"E802\]: .*?([\d.]+) s", job.text)]
    if kind != "plan" and not planted:
        problems.append("the fault did not happen")
    late = seconds - max(deadlines, default=0)
    if late > jobs.SLACK:
        problems.append(f"it took {seconds:.1f} s")
    if job.process.returncode != code:
        problems.append(f"exit code {job.process.returncode} instead of {code}")
    if not re.search(culprit.format(rank=rank), job.text):
        problems.append("the culprit is not named")
    until = time.monotonic() + jobs.SLACK
    while survivors(job.tag) and time.monotonic() < until:
        time.sleep(0.2)
    if left := survivors(job.tag):
        problems.append(f"left: {left}")
    print(f"{kind}:{rank}:{operation} in {schedule}: {seconds:.1f} s: {'; '.join(problems) or 'fine'}", flush=True)
    if problems:
        print(job.text, flush=True)
    return not problems, late


def run_busy(piper, folder, steps):
    """No false alarm while every core is busy with something else."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        job = Trial(piper, folder, "dualpipev_experts", "--steps", str(steps))
        job.end(3600)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    metrics = [json.loads(line) for line in (pathlib.Path(folder) / "m.jsonl").read_text().splitlines()]
    fine = job.process.returncode == 0 and len(metrics) == steps + 1
    print(f"{steps} steps beside busy loops: exit code {job.process.returncode}, {len(metrics) - 1} steps", flush=True)
    if not fine:
        print(job.text)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=len(FAULTS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("piper")
    arguments = parser.parse_args()
    if not shutil.which("mpirun"):
        print("skipped: there is no mpirun here")
        return 77
    piper = str(pathlib.Path(arguments.piper).resolve())
    dice = random.Random(arguments.seed)
    failed, latest = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "c.toml").write_text(jobs.CONFIG)
        for name, text in jobs.SCHEDULES.items():
            (path / f"{name}.piper").write_text(text)
        for trial in range(arguments.trials):
            fine, late = run_fault(piper, folder, dice, list(FAULTS)[trial % len(FAULTS)])
            failed, latest = failed + (not fine), max(latest, late)
        if arguments.steps:
            failed += not run_busy(piper, folder, arguments.steps)
    print(f"{arguments.trials} faults, {failed} problems; the last end was {latest:.1f} s after its limit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
