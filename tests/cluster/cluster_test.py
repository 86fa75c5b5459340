#!/usr/bin/env python3
"""The tests of communication on two hosts of an emulated cluster, and what happens when a cable is pulled or a host freezes.

    cluster_test.py [--mpirun=PROGRAM] MPI_TESTS MPI_VICTIM     exit 77 where clusters cannot be made
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from limits import SLACK, STARTING  # noqa: E402

CLUSTER = str(Path(__file__).resolve().parent / "cluster")
TIMEOUT = 2.0  # seconds


def cluster(*arguments):
    subprocess.run([CLUSTER, *arguments], check=True)


def run_tests(mpirun, program):
    """Every test over shaped cables."""
    job = subprocess.run([CLUSTER, "mpirun", mpirun, "-n", "2", program, "--gtest_color=no"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=1500)
    passed = re.search(r"PASSED.* (\d+) tests", job.stdout)
    yield None if job.returncode == 0 and passed else f"exit code {job.returncode}\n{job.stdout}"


def run_fault(mpirun, victim, break_it, repair):
    """Calls end in time although a host cannot be reached. mpirun itself may hang then, so nobody waits for it."""
    with tempfile.TemporaryFile("w+") as told:
        job = subprocess.Popen([CLUSTER, "mpirun", mpirun, "-n", "2", victim, "cut", "0", str(int(TIMEOUT * 1000))],
                               stdout=told, stderr=subprocess.STDOUT)

        def output(until):
            """What has been told when it contains `until`, or after a while."""
            for _ in range(int(STARTING + TIMEOUT + SLACK) * 20):
                told.seek(0)
                text = told.read()
                if until in text:
                    break
                time.sleep(0.05)
            return text

        running = "running" in output("running")
        time.sleep(0.3)
        cluster(*break_it)
        text = output("did not come in time")
        cluster(*repair)
        job.kill()
        job.wait()
    waited = re.findall(r"after ([\d.e-]+) s: a peer did not come in time", text)
    yield None if running and waited else f"{'no call ended' if running else 'it did not start'}:\n{text}"
    for seconds in waited:
        yield None if float(seconds) < TIMEOUT + SLACK else f"a call took {seconds} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("tests")
    parser.add_argument("victim")
    arguments = parser.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:  # again, in a cluster that ends with this process
        os.execv(CLUSTER, [CLUSTER, "run", "2", "1gbit", "--", sys.executable, *sys.argv])
    mpirun = shutil.which(arguments.mpirun)
    if not mpirun:
        print("skipped: there is no mpirun here")
        return 77
    trials = {
        "tests over 1 Gbit/s": lambda: run_tests(mpirun, arguments.tests),
        "a cable is pulled": lambda: run_fault(mpirun, arguments.victim, ["link", "1", "down"], ["link", "1", "up"]),
        "a host freezes": lambda: run_fault(mpirun, arguments.victim, ["stop", "1"], ["go", "1"]),
    }
    failed = False
    for name, trial in trials.items():
        problems = [problem for problem in trial() if problem]
        print(f"{name}: {'; '.join(problems) or 'fine'}", flush=True)
        failed |= bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
