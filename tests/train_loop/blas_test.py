#!/usr/bin/env python3
"""A run ends where the BLAS of PyTorch's wheels for Arm does not know its CPU, without a variable that helps it: src/runtime/blas_without_sve.cc.

    tests/train_loop/blas_test.py PROGRAM     exit 77: this libtorch has another BLAS
"""
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import limits

REFERENCE = Path(__file__).resolve().parents[2] / "examples/reference"


def main():
    program = sys.argv[1]
    libraries = subprocess.run(["ldd", Path(program).parent / "piper-train"], capture_output=True, text=True, check=True).stdout
    if "libnvpl_blas" not in libraries:
        print("skipped: libtorch has another BLAS than NVPL here")
        return 77
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NVPL_")}
    command = [program, "train", REFERENCE / "tiny.toml", "--schedule", REFERENCE / "slices16/one_device.piper", "--steps", "1"]
    try:
        return subprocess.run(command, env=environment, timeout=limits.SLACK).returncode
    except subprocess.TimeoutExpired:
        print(f"a step has not ended after {limits.SLACK} s")
        return 1


if __name__ == "__main__":
    sys.exit(main())
