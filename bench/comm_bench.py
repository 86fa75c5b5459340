#!/usr/bin/env python3
"""Exchanges over MPI and over gloo, in turn, in an emulated cluster: times, their ratio, and the share of a core they use.

    comm_bench.py MPI_EXCHANGES [--rate 1gbit] [--ranks 2,4] [--repeat 3]     run it with the Python that has PyTorch; needs root
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLUSTER = str(HERE.parent / "tests/cluster/cluster")
SIZES = [64 << 10, 1 << 20, 16 << 20, 64 << 20]


def results(text):
    return {(line["what"], line["bytes"]): line for line in map(json.loads, filter(lambda l: l.startswith("{"), text.splitlines()))}


def over_mpi(program, ranks):
    job = subprocess.run([CLUSTER, "mpirun", "-n", str(ranks), program, *map(str, SIZES)], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=True)
    return results(job.stdout)


def over_gloo(ranks):
    def line(rank):
        return [CLUSTER, "exec", str(rank), sys.executable, str(HERE / "comm/gloo_exchanges.py"), str(rank), str(ranks), "host0",
                *map(str, SIZES)]

    others = [subprocess.Popen(line(rank), stdout=subprocess.DEVNULL) for rank in range(1, ranks)]
    first = subprocess.run(line(0), stdout=subprocess.PIPE, text=True, check=True)
    for job in others:
        job.wait()
    return results(first.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--ranks", default="2,4", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--repeat", default=3, type=int)
    arguments = parser.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", str(max(arguments.ranks)), arguments.rate, "--", sys.executable, *sys.argv])
    print(f"{'ranks':>5} {'what':>10} {'bytes':>10} {'MPI ms':>9} {'gloo ms':>9} {'ratio':>6} {'core MPI':>9} {'core gloo':>9}")
    for ranks in arguments.ranks:
        pairs = [(over_mpi(os.path.abspath(arguments.program), ranks), over_gloo(ranks)) for _ in range(arguments.repeat)]
        for what, size in pairs[0][0]:
            mpi, gloo = ([side[what, size] for side in sides] for sides in zip(*pairs))
            ms = [1000 * statistics.median(one["seconds"] for one in side) for side in (mpi, gloo)]
            core = [statistics.median(one["core"] for one in side) for side in (mpi, gloo)]
            print(f"{ranks:5} {what:>10} {size:10} {ms[0]:9.2f} {ms[1]:9.2f} {ms[0] / ms[1]:6.2f} {core[0]:9.2f} {core[1]:9.2f}", flush=True)


if __name__ == "__main__":
    main()
