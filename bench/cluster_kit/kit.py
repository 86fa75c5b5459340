#!/usr/bin/env python3
"""Validates Piper on a machine with several GPUs, or on several hosts, and writes one report: are losses right under every strategy, are
predicted step times right, and how fast is it beside PyTorch's own FSDP2, DDP and pipelines on the same model?

    python bench/cluster_kit/kit.py build/release/piper -n 8 [--hosts FILE] [--on cuda] [--size L] [-o report]

Needs a Python with the PyTorch that Piper was built with. Every process has one device. Takes minutes; nothing outside of the report's folder changes.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
from report import write_report  # noqa: E402
from strategies import strategies  # noqa: E402

REFERENCE = here.parents[1] / "examples" / "reference"
# PyTorch 2.11, eager, float32 on a CPU (examples/reference/README.md)
PUBLISHED = {"tiny": [5.554103, 5.533968, 5.510856], "MoE-S": [7.680203, 7.665099, 7.641267]}
SLICES = {"tiny": 16, "S": 8, "M": 8, "L": 8, "MoE-S": 8}
SHAPE = {"tiny": (16, 4), "S": (8, 8), "M": (8, 8), "L": (16, 16), "MoE-S": (8, 8)}  # layers, heads
TOLERANCE = {"cpu": 2e-5, "cuda": 2e-4}
WARM_UP = 2


def config_of(size):
    return (here if size == "L" else REFERENCE) / f"{size}.toml"


class Kit:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.program = str(pathlib.Path(options.program).resolve())
        self.host_options = ["--hosts", options.hosts] if options.hosts else []

    def say(self, text):
        print(text, flush=True)

    def command(self, words, **more):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=self.options.timeout, **more)
        return done.returncode, done.stdout, done.stderr

    # ---- Piper

    def doctor(self):
        code, out, problem = self.command([self.program, "doctor", "--format", "json", *self.host_options])
        return json.loads(out) if code == 0 else {"problem": problem.strip()}

    def train(self, size, strategy, steps):
        """Losses, seconds and the most bytes of a device, or why not."""
        schedule, metrics = self.folder / "schedule.piper", self.folder / "metrics.jsonl"
        schedule.write_text(strategy.text)
        metrics.unlink(missing_ok=True)
        words = [config_of(size), "--schedule", schedule, "--steps", steps, "--metrics", metrics, "--on", self.options.on]
        start = [self.program, "train"] if self.options.processes == 1 else [self.program, "launch", "-n", self.options.processes, *self.host_options]
        try:
            code, _, problem = self.command([*start, *words])
        except subprocess.TimeoutExpired:
            return {"problem": f"not ended after {self.options.timeout:.0f} s", "code": None}
        if code != 0:
            return {"problem": problem.strip()[-2000:], "code": code}
        rows = [row for row in map(json.loads, metrics.read_text().splitlines()) if "loss" in row]
        return {"losses": [row["loss"] for row in rows], "seconds": [row["seconds"] for row in rows],
                "peak_bytes": max(row.get("peak_bytes") or 0 for row in rows)}

    def predict(self, size, strategy, links):
        """Seconds of a step, from what its computations cost in one process here and from the links that doctor measured; or why not."""
        schedule, folder = self.folder / "predicted.piper", self.folder / "profile"
        schedule.write_text(strategy.text)
        shutil.rmtree(folder, ignore_errors=True)
        code, _, problem = self.command([self.program, "profile", config_of(size), "--schedule", schedule, "--steps", "2", "--on", self.options.on, "-o", folder])
        if code == 0:
            self.write_cluster(folder / "cluster.toml", links)
            code, out, problem = self.command([self.program, "simulate", folder / "model.piper", schedule, "--costs", folder / "costs.txt", "--cluster",
                                               folder / "cluster.toml", "--format", "json"])
        return {"predicted": json.loads(out)["seconds"]} if code == 0 else {"no_prediction": problem.strip()[-500:]}

    def write_cluster(self, path, links):
        """The profile's devices share one GPU, or the cores of one host; those of the job do so only on one host without GPUs."""
        lines = path.read_text().splitlines()
        if self.options.hosts or self.options.on == "cuda":
            lines = [line for line in lines if not line.startswith(("processors =", "together ="))]
        if links:
            new = {"latency": f'"{statistics.median(link["latency_seconds"] for link in links) * 1e6:.3f}us"',
                   "bandwidth": f'"{statistics.median(link["bytes_per_second"] for link in links) / 1e6:.1f}MB/s"'}
            lines = [f"{key} = {new[key]}" if (key := line.split(" =")[0]) in new else line for line in lines]
        path.write_text("\n".join(lines) + "\n")

    # ---- PyTorch

    def pytorch(self, size, system, steps):
        words = [sys.executable, here / "torch_worker.py", config_of(size), system, SLICES[size], steps, self.options.on]
        first = socket.gethostname() if self.options.hosts else "127.0.0.1"
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "MASTER_ADDR": first, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        if self.options.hosts:
            launcher = [self.options.launcher, "-n", self.options.processes, "--hostfile", self.options.hosts, "-x", "MASTER_ADDR", "-x", "MASTER_PORT"]
            jobs = [subprocess.Popen([str(w) for w in launcher + words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
        else:
            world = str(self.options.processes)
            jobs = [subprocess.Popen([str(w) for w in words], env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world},
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(self.options.processes)]
        until = time.monotonic() + self.options.timeout
        try:
            answers = [job.communicate(timeout=max(1, until - time.monotonic())) for job in jobs]
        except subprocess.TimeoutExpired:
            return {"problem": f"not ended after {self.options.timeout:.0f} s"}
        finally:
            for job in jobs:
                job.kill()
                job.wait()
        if any(job.returncode for job in jobs):
            failed = next(problem for job, (_, problem) in zip(jobs, answers) if job.returncode)
            return {"problem": failed.strip().splitlines()[-1][:500] if failed.strip() else "ended without a message"}
        return json.loads(answers[0][0].strip().splitlines()[-1])

    # ---- what it does

    def strategies(self, size, experts):
        found = strategies(self.options.processes, SLICES[size], *SHAPE[size])
        return [s for s in found if (s.experts == experts or self.options.processes == 1) and fnmatch.fnmatch(s.name, self.options.strategies)]

    def correctness(self):
        rows = []
        for size in PUBLISHED:
            for strategy in self.strategies(size, experts=size == "MoE-S"):
                run = self.train(size, strategy, len(PUBLISHED[size]))
                row = {"size": size, "strategy": strategy.name, "schedule": strategy.text, **run}
                if "losses" in run:
                    row["difference"] = max(abs(a - b) for a, b in zip(run["losses"], PUBLISHED[size]))
                    complete = len(run["losses"]) == len(PUBLISHED[size])
                    row["verdict"] = "right" if complete and row["difference"] <= TOLERANCE[self.options.on] else "wrong"
                else:
                    row["verdict"] = "refused" if run["code"] == 1 else "failed"
                self.say(f"{size:6} {strategy.name:32} {row['verdict']}" + (f" ({row['difference']:.1e})" if "difference" in row else ""))
                rows.append(row)
        return rows

    def speed(self, links):
        """Step times of Piper and of PyTorch in turn, and what Piper's should have been."""
        size = self.options.size
        ours = self.strategies(size, experts=False)
        peers = [] if self.options.processes == 1 else [p for p in ("ddp", "fsdp2", "1F1B", "Interleaved1F1B", "ZBVZeroBubble") if any(p in s.like for s in ours)]
        rows = [{"system": "Piper", "name": s.name, "schedule": s.text, "like": s.like, **self.predict(size, s, links)} for s in ours]
        rows += [{"system": "PyTorch", "name": peer} for peer in peers]
        for row in rows:
            row["rounds"] = []
        steps = WARM_UP + self.options.steps
        for _ in range(self.options.rounds):
            for row in rows:
                if "problem" in row:
                    continue
                run = (self.train(size, ours[rows.index(row)], steps) if row["system"] == "Piper" else self.pytorch(size, row["name"], steps))
                if "problem" in run:
                    row["problem"] = run["problem"]
                    continue
                row["rounds"].append(statistics.median(run["seconds"][WARM_UP:]))
                row["losses"], row["peak_bytes"] = run["losses"], run["peak_bytes"]
        for row in rows:
            if row["rounds"]:
                row["seconds"] = statistics.median(row["rounds"])
                row["spread"] = [min(row["rounds"]), max(row["rounds"])]
            self.say(f"{row['system']:8} {row['name']:32} " + (f"{row['seconds'] * 1e3:9.1f} ms" if "seconds" in row else "failed") +
                     (f", predicted {row['predicted'] * 1e3:9.1f} ms" if row.get("predicted") else ""))
        return rows


def versions():
    import torch

    out = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        out.update(gpu=torch.cuda.get_device_name(), gpus=torch.cuda.device_count(), nccl=".".join(map(str, torch.cuda.nccl.version())))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the piper program")
    parser.add_argument("-n", "--processes", type=int, required=True, help="one device each")
    parser.add_argument("--hosts", help="host file of mpirun (default: all on this host)")
    parser.add_argument("--launcher", default="mpirun", help="starts PyTorch's processes on several hosts")
    parser.add_argument("--on", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="S", choices=["tiny", "S", "M", "L"], help="of the model whose steps are timed; L: 1.2 B parameters, for GPUs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of a round, after two that are not counted")
    parser.add_argument("--strategies", default="*", help="those whose names match, such as 'dp*'")
    parser.add_argument("--only", choices=["correctness", "speed"], help="one part")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one run")
    parser.add_argument("-o", "--output", default="cluster_report", help="folder of the report")
    options = parser.parse_args()
    if options.processes < 1:
        parser.error("-n is at least 1")
    if shutil.which(options.program) is None:
        parser.error(f"{options.program} is no program")
    report = {"format": "piper-cluster-report", "version": 1, "date": time.strftime("%Y-%m-%d"), "processes": options.processes, "on": options.on,
              "size": options.size, "slices": SLICES[options.size], "versions": versions()}
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(options, folder)
        report["doctor"] = kit.doctor()
        if options.only != "speed":
            report["correctness"] = kit.correctness()
        if options.only != "correctness":
            report["speed"] = kit.speed(report["doctor"].get("links", []))
    written = write_report(report, config_of(options.size), pathlib.Path(options.output))
    print(f"the report: {written}; beside it report.json")
    return 1 if any(row["verdict"] in ("wrong", "failed") for row in report.get("correctness", [])) else 0


if __name__ == "__main__":
    sys.exit(main())
