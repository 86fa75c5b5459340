#!/usr/bin/env python3
"""The shipped cluster a100-megatron predicts the measured steps it was fitted to, and a fit to a third of them the others.

    tests/calibrate/vtrain_test.py PIPER     skipped with a message if the measurements are not beside the project
"""
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


def main(piper):
    if not os.path.isdir(MEASURED):
        print("skipped: no oracles beside the project")
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "vtrain_steps.py"), MEASURED, folder], check=True)
        command = [piper, "calibrate", os.path.join(folder, "steps.csv"), "--cluster", "a100-megatron", "--check",
                   "--folds", "3", "--format", "json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    failed = False
    for part in ("errors", "cross_validation"):
        assert {row["set"] for row in found[part]} == set(BARS), found
        for row in found[part]:
            error, regret, median = BARS[row["set"]]
            good = row["mean_error"] <= error and row["mean_regret"] <= regret and row["median_regret"] <= median
            failed |= not good
            print(f"{part:16} {row['set']:12} {row['rows']:5} rows  error {row['mean_error']:6.2%}  regret {row['mean_regret']:6.2%}"
                  f"  median {row['median_regret']:6.2%}  {'good' if good else 'FAILED'}")
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1])
