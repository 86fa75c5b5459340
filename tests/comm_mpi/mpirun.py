#!/usr/bin/env python3
"""Starts a program in N processes on this machine, with the mpirun of Open MPI or of MPICH.

    mpirun.py [--mpirun=PROGRAM] N COMMAND...    exit 77 where there is no mpirun
"""
import argparse
import os
import shutil
import subprocess
import sys

SKIPPED = 77


def is_open_mpi(mpirun):
    return "HYDRA" not in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout


def command(mpirun, processes, program):
    options = []
    if is_open_mpi(mpirun):  # which refuses root, and more processes than cores
        options = ["--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            options += ["--allow-run-as-root"]
    return [mpirun, *options, "-n", str(processes), *program]


def find(mpirun):
    """The program's path; ends this one where there is none."""
    path = shutil.which(mpirun)
    if not path:
        print("skipped: there is no mpirun here")
        sys.exit(SKIPPED)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("processes", type=int)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    line = command(find(arguments.mpirun), arguments.processes, arguments.program)
    os.execv(line[0], line)


if __name__ == "__main__":
    main()
