#!/usr/bin/env python3
"""The reference decoder, trained by the program under the schedules of examples/reference, has the losses that PyTorch prints.

    tests/train_loop/reference_losses.py PROGRAM quick|thorough|long     exit 1 if a loss differs
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "examples" / "reference"
TOLERANCE = 2e-5
# PyTorch 2.11, eager, float32 on a CPU; losses of steps 0 to 4
PUBLISHED = {
    "tiny": [5.554103, 5.533968, 5.510856, 5.481331, 5.463065],
    "S": [7.682309, 7.655912, 7.643335, 7.631905, 7.576662],
    "M": [7.755185, 7.679451, 7.610933, 7.410651, 7.461823],
    "MoE-S": [7.680203, 7.665099, 7.641267, 7.609153, 7.560047],
}
SLICES = {"tiny": 16, "S": 8, "M": 8, "MoE-S": 8}
QUICK = ["one_device", "1f1b", "zb_v", "dualpipev", "zero3"]  # of tiny


def cases(which):
    """(size, schedule, steps) of every run."""
    if which == "quick":
        return [("tiny", schedule, 3) for schedule in QUICK]
    if which == "long":
        return [(size, path.stem, 5) for size, slices in SLICES.items()
                for path in sorted((REFERENCE / f"slices{slices}").glob("*.piper"))
                if size == "MoE-S" or path.stem.split("_")[0] != "ep"]
    others = sorted(path.stem for path in (REFERENCE / "slices16").glob("*.piper") if path.stem not in QUICK)
    return [("tiny", schedule, 2) for schedule in others] + [("S", "zb_h1", 2), ("MoE-S", "ep_dualpipev", 2)]


def losses(program, size, schedule, steps):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [program, "train", REFERENCE / f"{size}.toml", "--schedule",
                   REFERENCE / f"slices{SLICES[size]}" / f"{schedule}.piper", "--steps", steps, "--metrics", metrics]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            return f"exit {done.returncode}\n{done.stderr}"
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()[1:]]


def check(program, size, schedule, steps):
    """What is wrong, or nothing."""
    measured = losses(program, size, schedule, steps)
    if isinstance(measured, str):
        return measured
    if len(measured) != steps:
        return f"{len(measured)} steps instead of {steps}"
    published = PUBLISHED[size][:steps]
    if any(not abs(a - b) <= TOLERANCE for a, b in zip(measured, published)):
        return f"losses {measured}, published {published}"
    return ""


def pages():
    """Numbers that people read and this test does not: what is wrong with them."""
    for size, published in PUBLISHED.items():
        numbers = " ".join(f"{loss:.6f}" for loss in published)
        for name in [f"{size}.toml", "README.md"]:
            if numbers not in (REFERENCE / name).read_text():
                yield f"examples/reference/{name} does not have the losses of {size}: {numbers}"


def main():
    program, which = sys.argv[1:]
    wrong = list(pages())
    for size, schedule, steps in cases(which):
        problem = check(program, size, schedule, steps)
        print(f"{size} {schedule}: {problem or 'fine'}", flush=True)
        wrong += [f"{size} {schedule}"] if problem else []
    print("\n".join(["wrong:"] + wrong) if wrong else "all losses are the published ones")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
