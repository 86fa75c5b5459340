#!/usr/bin/env python3
"""A process of a job dies, stops, hangs or gives up: the others' calls end, and so does the job.

    faults_test.py [--mpirun=PROGRAM] VICTIM     VICTIM is the program mpi_victim
"""
import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import mpirun

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from limits import SLACK, STARTING  # noqa: E402

# Fault: what at least one of the others says before the end, or None where MPI may be faster; and the timeout in seconds, which is long
# where nobody should come to it.
FAULTS = {
    "none": ("all is well", SLACK),
    "abort": ("process 1 has had enough", SLACK),
    "hang": ("a peer did not come in time", 1.5),
    "stop": ("a peer did not come in time", 1.5),
    "kill": (None, 1.5),
    "exit": (None, 1.5),
}


# Exit codes that only the fault gives: what was said shortly before is lost with some launchers.
CODES = {"kill": 137, "exit": 9}


def problems(fault, code, output, seconds):
    said, timeout = FAULTS[fault]
    if "running" not in output and code != CODES.get(fault):
        yield "the job did not start"
    if fault == "none":
        if code != 0:
            yield f"exit code {code} instead of 0"
    elif code == 0:
        yield "exit code 0"
    if said and said not in output:
        yield f"nobody says {said!r}"
    for waited in re.findall(r"after ([\d.e-]+) s", output):
        if float(waited) > timeout + SLACK:
            yield f"a call took {waited} s"
    if seconds > STARTING + timeout + SLACK:
        yield f"the job took {seconds:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("victim")
    arguments = parser.parse_args()
    failed = False
    for fault in FAULTS:
        line = mpirun.command(mpirun.find(arguments.mpirun), 3, [arguments.victim, fault, "1", str(int(FAULTS[fault][1] * 1000))])
        start = time.monotonic()
        job = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output = job.communicate(timeout=STARTING + 2 * SLACK)[0]
        except subprocess.TimeoutExpired:
            job.kill()
            output = job.communicate()[0]
        seconds = time.monotonic() - start
        found = list(problems(fault, job.returncode, output, seconds))
        print(f"{fault}: {seconds:.1f} s, exit code {job.returncode}: {'; '.join(found) or 'fine'}")
        if found:
            print(output)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
