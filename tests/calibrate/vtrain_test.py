#!/usr/bin/env python3
"""The shipped cluster a100-megatron predicts the measured steps it was fitted to, and a fit to a third of them the others.

    tests/calibrate/vtrain_test.py PIPER     a quarter of the jobs, without another fit; all of them and the fit: PIPER_LONG=1.
                                             Skipped with a message if the measurements are not beside the project
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MEASURED = os.path.join(ROOT, "..", "shared", "oracles", "vtrain")
BARS = {  # most of mean error, mean regret and median regret
    "single node": (0.08, 0.05, 0.0),
    "multi node": (0.08, 0.04, 0.03),
}
BARS_OF_A_QUARTER = {"single node": (0.085, 0.05, 0.0), "multi node": (0.075, 0.01, 0.0)}  # its jobs: what it is off, and no more


LONG = os.environ.get("PIPER_LONG") == "1"


def keep_some_jobs(steps, one_of):
    """Leaves every so many-th of the jobs, each with all of its plans."""
    with open(steps) as file:
        head, *rows = csv.reader(file)
    jobs = list(dict.fromkeys((row[0], row[1], row[3]) for row in rows))  # set, model, batch
    kept = {job for name in BARS for job in [job for job in jobs if job[0] == name][::one_of]}
    with open(steps, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *(row for row in rows if (row[0], row[1], row[3]) in kept)])


def main(piper):
    if not os.path.isdir(MEASURED):
        print("skipped: no oracles beside the project")
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "vtrain_steps.py"), MEASURED, folder], check=True)
        steps = os.path.join(folder, "steps.csv")
        if not LONG:
            keep_some_jobs(steps, 4)
        command = [piper, "calibrate", steps, "--cluster", "a100-megatron", "--check", "--format", "json"]
        if LONG:
            command += ["--folds", "3"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    failed = False
    for part in ("errors", "cross_validation") if LONG else ("errors",):
        assert {row["set"] for row in found[part]} == set(BARS), found
        for row in found[part]:
            error, regret, median = (BARS if LONG else BARS_OF_A_QUARTER)[row["set"]]
            good = row["mean_error"] <= error and row["mean_regret"] <= regret and row["median_regret"] <= median
            failed |= not good
            print(f"{part:16} {row['set']:12} {row['rows']:5} rows  error {row['mean_error']:6.2%}  regret {row['mean_regret']:6.2%}"
                  f"  median {row['median_regret']:6.2%}  {'good' if good else 'FAILED'}")
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1])
