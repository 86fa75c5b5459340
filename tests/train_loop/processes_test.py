#!/usr/bin/env python3
"""piper train in several processes: the numbers of one process bit by bit, and faults that name their culprit.

    processes_test.py [--mpirun=PROGRAM] PIPER [Processes|Checkpoints|Faults]    exit 77 where there is no mpirun
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests" / "comm_mpi"))
import mpirun  # noqa: E402

sys.path.insert(0, str(root / "tests"))
from limits import SLACK, STARTING  # noqa: E402
from thorough import Loader, thorough  # noqa: E402

PIPER = LAUNCHER = None

MODEL = """[model]
name = "small"
arch = "reference-moe"
layers = 8
hidden = 32
heads = 4
vocab = 64
experts = 4
seq = 16

[step]
batch = 16
"""
CONFIG = MODEL + """
[optimizer]
clip = 1.0

[run]
steps = 3
"""

# Pipelines, replicas with every ZeRO level, divided experts, split backwards, recomputation, groups of different size.
SCHEDULES = {
    "1f1b": """mesh(pp=4)
split(batch, parts=8, as=mb)
place({}, along=pp, stages=4)
use 1f1b(stages=stage, microbatches=mb)
""",
    "zero_bubble": """mesh(pp=4)
split(batch, parts=8, as=mb)
place({}, along=pp, stages=8, shape=v)
use zb-v(stages=stage, microbatches=mb)
""",
    "dualpipev_experts": """mesh(pp=2, dp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=4, shape=v)
replicate({}, along=dp, zero=1)
shard({experts=*}, along=dp)
use dualpipev(stages=stage, microbatches=mb)
""",
    "zero3": """mesh(pp=1, dp=4)
split(batch, parts=2, as=mb)
place({}, along=pp, stages=1)
replicate({}, along=dp, zero=3)
recompute({layer=*})
""",
    "zero2": """mesh(pp=2, dp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=dp, zero=2)
use gpipe(stages=stage, microbatches=mb)
""",
    "cut": """mesh(pp=2, tp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=2)
shard({layer=*}, along=tp, sequence=on, regather=on)
use 1f1b(stages=stage, microbatches=mb)
""",
    "cut_experts": """mesh(ep=2, tp=2)
split(batch, parts=4, as=mb)
place({}, mesh={})
replicate({}, along=ep, zero=2)
shard({experts=*}, along=ep)
shard({layer=*}, along=tp, sequence=on)
""",
    "uneven": """devices(4)
split(batch, parts=4, as=mb)
place({embed=*}, devices=[0], stage=0)
place({layer=*}, devices=[1, 2], stage=1)
place({head=*}, devices=[3], stage=2)
replicate({layer=*}, devices=[1, 2], zero=1)
use 1f1b(stages=stage, microbatches=mb)
""",
}
# Of a model without experts.
TOKENS = """mesh(pp=2, cp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=cp, zero=2)
shard({}, along=cp, sequence=gather)
use 1f1b(stages=stage, microbatches=mb)
"""

# Of a model whose experts take as many rows as chose them.
ROWS = """mesh(pp=2, ep=2)
split(batch, parts=4, as=mb)
place({{}}, along=pp, stages=2)
replicate({{}}, along=ep, zero=1)
shard({{experts=*}}, along=ep, buffer={buffer})
use 1f1b(stages=stage, microbatches=mb)
"""

EIGHT_DEVICES = """mesh(pp=2, ep=2, tp=2)
split(batch, parts=4, as=mb)
place({}, along=pp, stages=2)
replicate({}, along=ep, zero=2)
shard({experts=*}, along=ep)
shard({layer=*}, along=tp, sequence=on)
use 1f1b(stages=stage, microbatches=mb)
"""


def children(process):
    return [int(child) for task in pathlib.Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()]


def name_of(process):
    return pathlib.Path(f"/proc/{process}/comm").read_text().strip()


def ports(process):
    """At which a process listens, by TCP."""
    sockets = set()
    for file in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(file))
    out = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                out.add(int(words[1].rpartition(":")[2], 16))
    return sorted(out)


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "c.toml").write_text(CONFIG)
        for name, text in SCHEDULES.items():
            (self.path / f"{name}.piper").write_text(text)

    def command(self, processes, schedule, *more):
        train = [PIPER, "train", "c.toml", "--schedule", f"{schedule}.piper", *more]
        return mpirun.command(LAUNCHER, processes, [*train, "--backend", "mpi"]) if processes else train

    def run_command(self, line, **environment):
        return subprocess.run(line, cwd=self.path, capture_output=True, text=True, timeout=900,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment})

    def steps(self, processes, schedule):
        """Loss and norm of every step, as exactly as the metrics have them, and what the run says at its end."""
        (self.path / "m.jsonl").unlink(missing_ok=True)  # of an earlier run: it would stay
        result = self.run_command(self.command(processes, schedule, "--metrics", "m.jsonl"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = [json.loads(line) for line in (self.path / "m.jsonl").read_text().splitlines()]
        steps = [(line["loss"], line["gradient_norm"]) for line in lines if "loss" in line]
        self.assertEqual(len(steps), 3)
        return steps, result.stdout

    def numbers(self, processes, schedule):
        """The same, and the memory of every device."""
        steps, output = self.steps(processes, schedule)
        memory = re.findall(r"^ +(\d+) .* (\S+ \S+) +\S+ \S+$", output, re.M)
        self.assertEqual([device for device, _ in memory], ["0", "1", "2", "3"], output)
        return steps, memory

    def wait_for_steps(self, job):
        metrics = self.path / "m.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            self.assertIsNone(job.poll())
            time.sleep(0.1)

    def launch(self, *words):
        return self.run_command([PIPER, "launch", "--launcher", LAUNCHER, *words])


class Processes(Jobs):
    @thorough
    def test_numbers_of_one_process(self):
        for number, schedule in enumerate(SCHEDULES):
            local = self.numbers(0, schedule)
            for processes in (2, 3, 4) if os.environ.get("PIPER_LONG") else (2 + number % 3,):
                with self.subTest(schedule=schedule, processes=processes):
                    self.assertEqual(self.numbers(processes, schedule), local)

    @thorough
    def test_divided_tokens(self):
        (self.path / "c.toml").write_text(CONFIG.replace('"reference-moe"', '"reference"').replace("experts = 4\n", ""))
        for sequence in ("gather", "heads"):
            (self.path / f"{sequence}.piper").write_text(TOKENS.replace("gather", sequence))
            local = self.numbers(0, sequence)
            for processes in (2, 3, 4) if os.environ.get("PIPER_LONG") else (4,):
                with self.subTest(sequence=sequence, processes=processes):
                    self.assertEqual(self.numbers(processes, sequence), local)

    @thorough
    def test_rows_that_a_router_sends(self):
        """How many is known in the step. With a small buffer some of them come in further rounds, everywhere the same."""
        (self.path / "c.toml").write_text(CONFIG.replace("experts = 4\n", "experts = 4\ndropless = true\n"))
        for processes, buffer in ((2, "2"), (4, "0.25")):
            (self.path / "rows.piper").write_text(ROWS.format(buffer=buffer))
            with self.subTest(processes=processes, buffer=buffer):
                found = []
                for number in (0, processes):
                    steps, output = self.steps(number, "rows")
                    rows = re.findall(r"^ +\d+ .* (\d+) +(\d+) \(\S+ %\) +(\d+) of (\d+)$", output, re.M)
                    self.assertEqual(len(rows), 4, output)
                    found.append((steps, rows))
                self.assertEqual(found[1], found[0])
                for received, further, longer, exchanges in found[0][1]:
                    self.assertGreater(int(received), 0)
                    self.assertEqual((int(further) > 0, int(longer) > 0), (buffer == "0.25",) * 2)
                    self.assertGreaterEqual(int(exchanges), int(longer))

    @thorough
    def test_evaluations(self):
        """Those of one process, bit by bit; and the steps between them are what they are without."""
        (self.path / "c.toml").write_text(CONFIG + "\n[evaluation]\nevery = 2\nbatches = 2\n")
        evaluated = []
        for processes, schedule in ((0, "zero3"), (2, "zero3"), (0, "dualpipev_experts"), (3, "dualpipev_experts")):
            steps, _ = self.numbers(processes, schedule)
            lines = [json.loads(line) for line in (self.path / "m.jsonl").read_text().splitlines()]
            found = [{**line["evaluation"], "seconds": 0} for line in lines if "evaluation" in line]
            self.assertEqual([(one["steps"], one["batches"], one["tokens"]) for one in found], [(2, 2, 512), (3, 2, 512)])
            evaluated.append((steps, found))
        self.assertEqual(evaluated[1], evaluated[0])
        self.assertEqual(evaluated[3], evaluated[2])
        (self.path / "c.toml").write_text(CONFIG)
        self.assertEqual(self.numbers(0, "zero3")[0], evaluated[0][0])

    @thorough
    def test_trace_of_all(self):
        result = self.run_command(self.command(2, "dualpipev_experts", "--trace", "t.json"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"clocks of other processes are known to [\d.]+ ")
        shown = subprocess.run([PIPER, "view", "t.json", "-o", "t.html"], cwd=self.path, capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)

    def test_other_configuration_is_refused(self):
        (self.path / "d.toml").write_text(CONFIG.replace("seq = 16", "seq = 8"))
        one = self.command(1, "1f1b")
        other = [word.replace("c.toml", "d.toml") for word in one[one.index(PIPER):]]
        result = self.run_command([*one, ":", *(["-n", "1"]), *other])
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"E805\]: .*\n +rank 1 on \S+: the hash of the configuration is [0-9a-f]{16}, but [0-9a-f]{16} at rank 0")

    def test_more_processes_than_devices(self):
        (self.path / "one.piper").write_text("devices(1)\nplace({}, devices=[0])\n")
        result = self.run_command(self.command(2, "one"))
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("the job has 2 processes, the schedule 1 device", result.stderr)

    def test_processes_without_gpus(self):
        result = self.run_command(self.command(2, "1f1b", "--on", "cuda"), CUDA_VISIBLE_DEVICES="")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("error[E807]"), 1, result.stderr)

    def test_launch(self):
        steps, _ = self.numbers(0, "1f1b")
        result = self.launch("-n", "2", "c.toml", "--schedule", "1f1b.piper", "--metrics", "m.jsonl")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stderr.splitlines()[0], rf"^{re.escape(LAUNCHER)} -n 2 .*train c.toml .*--backend mpi$")
        self.assertIn("4 devices in 2 processes", result.stdout)
        self.assertIn(f"loss {steps[0][0]:.6f} -> {steps[-1][0]:.6f}", result.stdout)
        self.assertNotIn("piper-job", result.stderr)
        self.assertEqual(list(self.path.glob("*.flight")), [])

    def test_idle_devices(self):
        """A process may have nothing to do: the first, or the last; all of them end with the numbers of one."""
        (self.path / "one.piper").write_text("devices(1)\nplace({}, devices=[0])\n")
        expected = self.steps(0, "one")[0]
        for devices, busy in ((2, 0), (2, 1), (3, 1)):
            with self.subTest(devices=devices, busy=busy):
                (self.path / "idle.piper").write_text(f"devices({devices})\nplace({{}}, devices=[{busy}])\n")
                self.assertEqual(self.steps(0, "idle")[0], expected)
                self.assertEqual(self.steps(2, "idle")[0], expected)
                result = self.launch("-n", "2", "c.toml", "--schedule", "idle.piper", "--devices", str(devices))
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertIn(f"{devices} devices in 2 processes", result.stdout)

    def stopped_by(self, line, what):
        """Code and output of a job that gets a signal in its first steps."""
        job = subprocess.Popen([*line, "c.toml", "--schedule", "1f1b.piper", "--steps", "100000", "--metrics", "m.jsonl"], cwd=self.path,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for_steps(job)
        job.send_signal(what)
        output = job.communicate(timeout=600)[0]
        (self.path / "m.jsonl").unlink()
        return job.returncode, output

    def test_stopped_by_a_signal_is_no_success(self):
        """128 and the number of the signal, whoever started it; and all that a run writes at its end."""
        launch = [PIPER, "launch", "--launcher", LAUNCHER, "-n", "2"]
        for line, what in (([PIPER, "train"], signal.SIGINT), ([PIPER, "train"], signal.SIGTERM), (launch, signal.SIGINT),
                           (launch, signal.SIGTERM)):
            with self.subTest(line=line[1], signal=what.name):
                code, output = self.stopped_by(line, what)
                self.assertEqual(code, 128 + what, output)
                self.assertRegex(output, r"stopped after \d+ of 100000 steps: \w+")
                self.assertIn("memory planned", output)
                self.assertNotIn("non-zero", output)  # nothing that a launcher would call a failure

    @unittest.skipUnless(pathlib.Path("/proc/net/tcp").exists(), "Linux only")
    def test_one_host_opens_no_ports(self):
        """No process listens; what is sent to the launcher's own ports does not end the job."""
        if not mpirun.is_open_mpi(LAUNCHER):
            self.skipTest("of Open MPI only")
        job = subprocess.Popen([PIPER, "launch", "--launcher", LAUNCHER, "-n", "2", "c.toml", "--schedule", "1f1b.piper", "--steps", "100000",
                                "--metrics", "m.jsonl"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for_steps(job)
        launcher = children(job.pid)[0]
        ranks = [child for child in children(launcher) if "train" in name_of(child)]
        self.assertEqual(len(ranks), 2)
        self.assertEqual([ports(rank) for rank in ranks], [[], []])
        for port in ports(launcher):
            for garbage in (b"", os.urandom(3000), b"GET / HTTP/1.0\r\n\r\n"):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                    stranger.sendall(garbage)
        steps = len((self.path / "m.jsonl").read_text().splitlines())
        while len((self.path / "m.jsonl").read_text().splitlines()) < steps + 3:
            self.assertIsNone(job.poll())
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=600)[0]
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, output)

    # ---- Bad input

    def test_missing_launcher(self):
        result = self.run_command([PIPER, "launch", "--launcher", "no-such-mpirun", "-n", "2", "c.toml"])
        self.assertEqual(result.returncode, 1)
        self.assertIn('error[E805]: the launcher "no-such-mpirun" cannot be started', result.stderr)
        self.assertIn("--launcher", result.stderr)

    def test_hosts_that_do_not_exist(self):
        (self.path / "hosts").write_text("# those of the first rack\nlocalhost slots=1\nno-such-host.invalid slots=2\n")
        result = self.launch("-n", "1", "--hosts", "hosts", "c.toml")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r'^hosts:3:1: error\[E805\]: there is no host "no-such-host.invalid": ')
        (self.path / "hosts").write_text("# none yet\n")
        result = self.launch("-n", "1", "--hosts", "hosts", "c.toml")
        self.assertEqual(result.returncode, 1)
        self.assertIn("E805]: the list of hosts is empty", result.stderr)
        result = self.launch("-n", "1", "--hosts", "none", "c.toml")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"error\[E108\].*none")

    def test_launcher_of_another_mpi(self):
        other = shutil.which("mpirun.mpich" if mpirun.is_open_mpi(LAUNCHER) else "mpirun.openmpi")
        if not other:
            self.skipTest("there is only one MPI here")
        result = self.run_command(mpirun.command(other, 2, [PIPER, "train", "c.toml", "--schedule", "1f1b.piper", "--backend", "mpi"]))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("E805]: the launcher has started 2 processes, but each of them is alone", result.stderr)
        self.assertIn("belongs to another MPI", result.stderr)

    def test_another_number_of_devices(self):
        result = self.launch("-n", "2", "c.toml", "--schedule", "1f1b.piper", "--devices", "8")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("E205]: the schedule is for 4 devices, the run for 8", result.stderr)

    def test_options_that_mean_nothing_here(self):
        for words, code, reason in ((["--graphs", "step"], 1, "E105]: --graphs step is for GPUs"),
                                    (["--metrics", "c.toml"], 3, "E108]: cannot write c.toml: it is in use as the configuration"),
                                    (["--trace", "c.toml"], 3, "E108]: cannot write c.toml: it is in use as the configuration"),
                                    (["--metrics", "m.jsonl", "--trace", "m.jsonl"], 3, "E108]: cannot write m.jsonl: it is in use as metrics")):
            with self.subTest(words=words):
                result = self.run_command([PIPER, "train", "c.toml", *words])
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(reason, result.stderr)
                self.assertEqual((self.path / "c.toml").read_text(), CONFIG)

    def test_no_fault(self):
        result = self.run_command([PIPER, "train", "c.toml", "--fault", "burn:1"])
        self.assertEqual(result.returncode, 2)
        self.assertIn("a fault is KIND:RANK:OPERATION", result.stderr)


class Checkpoints(Jobs):
    """Saved by some processes, continued by others; killed, and started again."""

    def train(self, processes, schedule, *more):
        line = [PIPER, "launch", "--launcher", LAUNCHER, "-n", str(processes)] if processes else [PIPER, "train"]
        result = self.run_command([*line, "c.toml", "--schedule", f"{schedule}.piper", *more])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def losses(self, name="m.jsonl"):
        """By step; of those that were taken twice the last."""
        lines = [json.loads(line) for line in (self.path / name).read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def files(self, folder):
        return {file.name: file.read_bytes() for file in (self.path / folder).iterdir()}

    @thorough
    def test_bytes_of_one_process(self):
        (self.path / "eight.piper").write_text(EIGHT_DEVICES)
        for schedule, processes in (("cut_experts", 4), ("zero3", 4), ("uneven", 4), ("eight", 8)):
            self.train(0, schedule, "--steps", "1", "--checkpoints", f"{schedule}/one", "--shard-size", "200KB")
            self.train(processes, schedule, "--steps", "1", "--checkpoints", f"{schedule}/all", "--shard-size", "200KB")
            one, all_of_them = (self.files(f"{schedule}/{name}/step-00000001") for name in ("one", "all"))
            self.assertEqual(one.keys(), all_of_them.keys())
            self.assertIn("model-00002-of", "".join(one), "a file is as large as --shard-size says")
            for name, content in one.items():
                self.assertTrue(content == all_of_them[name], f"{schedule}: {name}")

    @thorough
    def test_goes_on_in_other_processes_under_other_schedules(self):
        dense = CONFIG.replace("reference-moe", "reference").replace("experts = 4\n", "")  # whose loss does not depend on slices
        (self.path / "c.toml").write_text(dense.replace("batch = 16", 'batch = 16\nweights = "float64"\ngradients = "float64"'))
        self.train(0, "zero2", "--steps", "8", "--metrics", "one.jsonl")
        parts = [(4, "cut"), (2, "zero3"), (0, "1f1b"), (3, "uneven")]
        for part, (processes, schedule) in enumerate(parts):
            output = self.train(processes, schedule, "--steps", str(2 * part + 2), "--checkpoints", "run", "--resume", "--metrics", "m.jsonl")
            self.assertIn(f"resumed from run/step-{2 * part:08}" if part else "no checkpoint in run: the run begins", output)
        one, parts = self.losses("one.jsonl"), self.losses()
        self.assertEqual(one.keys(), parts.keys())
        for step, loss in one.items():
            self.assertAlmostEqual(parts[step], loss, delta=1e-11 * abs(loss))

    def test_a_job_that_fails_goes_on(self):
        """With the numbers of one that was never disturbed."""
        self.train(0, "dualpipev_experts", "--steps", "12", "--metrics", "one.jsonl")
        result = self.launch("-n", "4", "--restarts", "2", "c.toml", "--schedule", "dualpipev_experts.piper", "--steps", "12", "--metrics", "m.jsonl",
                             "--checkpoints", "run", "--checkpoint-every", "4", "--timeout", "3", "--fault", "kill:2:700")
        output = result.stdout + result.stderr
        self.assertEqual(result.returncode, 0, output)
        self.assertRegex(output, r"restart 1 of 2: resumes after step \d+, repeats \d+ steps?, .*ended .*, started .*, planned and read .*, first step ")
        one, restarted = self.losses("one.jsonl"), self.losses()
        self.assertEqual(one, restarted, output)

    def test_restarts_need_checkpoints(self):
        result = self.launch("-n", "2", "--restarts", "1", "c.toml", "--schedule", "1f1b.piper")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("--restarts needs checkpoints to resume from", result.stderr)

    @thorough
    def test_a_signal_saves(self):
        """What a scheduler sends before it takes the machine away."""
        launch = [PIPER, "launch", "--launcher", LAUNCHER, "-n", "2"]
        for line, what in (([PIPER, "train"], signal.SIGTERM), ([PIPER, "train"], signal.SIGUSR1), (launch, signal.SIGTERM)):
            with self.subTest(line=line[1], signal=what.name):
                shutil.rmtree(self.path / "run", ignore_errors=True)
                job = subprocess.Popen([*line, "c.toml", "--schedule", "zero2.piper", "--steps", "100000", "--metrics", "m.jsonl", "--checkpoints",
                                        "run", "--checkpoint-every", "50000"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)
                self.addCleanup(lambda: job.poll() is None and job.kill())
                self.wait_for_steps(job)
                job.send_signal(what)
                output = job.communicate(timeout=600)[0]
                self.assertEqual(job.returncode, 128 + what, output)
                taken = int(re.search(r"stopped after (\d+) of 100000 steps", output).group(1))
                self.assertEqual([folder.name for folder in (self.path / "run").iterdir()], [f"step-{taken:08}"], output)
                (self.path / "m.jsonl").unlink()

    def test_what_cannot_be_written_is_said_and_the_run_goes_on(self):
        (self.path / "file").write_text("not a folder")
        result = self.run_command([PIPER, "train", "c.toml", "--schedule", "zero2.piper", "--checkpoints", "file", "--checkpoint-every", "1"])
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)  # the last step is not saved
        self.assertEqual(result.stderr.count("error[E903]"), 3, result.stderr)  # once for each try
        self.assertIn("step 3/3", result.stderr)

    def test_options_need_a_folder(self):
        """Without one they would be ignored."""
        for option in (("--shard-size", "1MB"), ("--keep", "3"), ("--checkpoint-every", "5")):
            result = self.run_command([PIPER, "train", "c.toml", *option])
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn(f"{option[0]} means nothing without a folder for checkpoints", result.stderr)
        result = self.run_command([PIPER, "train", "c.toml", "--checkpoints", "run", "--keep-every", "3"])
        self.assertIn("--keep-every means nothing without --keep", result.stderr)

    def sound(self):
        """Checkpoints of the run, all of which are whole."""
        result = self.run_command([PIPER, "checkpoint", "verify", "run"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return sorted(folder.name for folder in (self.path / "run").iterdir())

    def disturbed(self, line, disturb):
        """A long job that saves after every second step; what is done to it after its first save; its output. Later it is told to end."""
        with open(self.path / "output", "w") as output:
            job = subprocess.Popen([*line, "c.toml", "--schedule", "zero2.piper", "--steps", "1000000", "--checkpoints", "run", "--checkpoint-every",
                                    "2", "--metrics", "m.jsonl"], cwd=self.path, stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"})
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.job = job
        self.until(lambda: list((self.path / "run").glob("step-????????")))
        disturb()
        job.send_signal(signal.SIGTERM)
        code = job.wait(timeout=600)
        output = (self.path / "output").read_text()
        self.assertEqual(code, 128 + signal.SIGTERM, output)
        return output

    def until(self, happened):
        while not happened():
            self.assertIsNone(self.job.poll(), (self.path / "output").read_text())
            time.sleep(0.02)

    def failed_saves(self):
        return (self.path / "output").read_text().count("error[E903]")

    @thorough
    def test_goes_on_without_permission(self):
        """Until it is given back."""
        run = self.path / "run"
        # root may write everywhere, unless it does without that
        line = ["setpriv", "--bounding-set=-dac_override", PIPER, "train"] if os.geteuid() == 0 else [PIPER, "train"]
        if os.geteuid() == 0 and not shutil.which("setpriv"):
            self.skipTest("root needs setpriv")

        def disturb():
            run.chmod(0o555)
            self.until(lambda: self.failed_saves() >= 3)
            before = set(run.glob("step-????????"))
            run.chmod(0o755)
            self.until(lambda: set(run.glob("step-????????")) - before)
            self.assertLess(before, set(run.glob("step-????????")), "older checkpoints stay")

        output = self.disturbed(line, disturb)
        taken = int(re.search(r"stopped after (\d+) of", output).group(1))
        tries = taken // 2 + taken % 2  # at the end once more
        self.assertEqual(len(self.sound()) + output.count("error[E903]"), tries, output)  # each fault is said once
        self.assertEqual(output.count("Permission denied"), output.count("error[E903]"), output)

    @thorough
    def test_goes_on_when_its_folder_is_removed(self):
        """In the middle of a save, too: the job saves all the time."""
        run = self.path / "run"

        def disturb():
            for time_ in range(5):
                run.rename(self.path / f"removed-{time_}")
                self.until(lambda: list(run.glob("step-????????")))

        output = self.disturbed([PIPER, "launch", "--launcher", LAUNCHER, "-n", "2"], disturb)
        taken = int(re.search(r"stopped after (\d+) of", output).group(1))
        self.assertIn(f"step-{taken:08}", self.sound())
        self.assertLessEqual(output.count("error[E903]"), 5, output)  # a fault is of the save that it hits

    @thorough
    def test_goes_on_when_the_disk_is_full(self):
        self.train(0, "zero2", "--steps", "1", "--checkpoints", "run")
        bytes_of_one = sum(len(content) for content in self.files("run/step-00000001").values())
        shutil.rmtree(self.path / "run")
        (self.path / "run").mkdir()
        disk = f"mount -t tmpfs -o size={int(1.6 * bytes_of_one)} tmpfs run"
        alone = ["unshare", "--mount", "sh", "-c"]  # nobody else sees the disk
        if self.run_command([*alone, disk]).returncode:
            self.skipTest("needs the right to mount a small file system")
        job = f"'{PIPER}' launch --launcher '{LAUNCHER}' -n 2 c.toml --schedule zero2.piper --steps 4 --checkpoints run --checkpoint-every 1"
        result = self.run_command([*alone, f"{disk} && {job}; echo code $?; ls run; '{PIPER}' checkpoint verify run"])
        self.assertIn("code 3", result.stdout)  # the last step is not saved
        self.assertIn("step 4/4", result.stderr)
        self.assertEqual(result.stderr.count("error[E903]"), 3, result.stderr)  # once for each try
        self.assertEqual(result.stderr.count("No space left on device"), 3, result.stderr)
        self.assertRegex(result.stdout, r"code 3\nstep-00000001\nrun/step-00000001: sound", "the older checkpoint stays, and nothing else")


class Faults(Jobs):
    def ended_by(self, what, victim_rank):
        """A long job in which one process gets a signal: code, output, seconds until the end."""
        job = subprocess.Popen(self.command(4, "dualpipev_experts", "--steps", "100000", "--timeout", "3", "--metrics", "m.jsonl"), cwd=self.path,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        deadline = time.time() + 600
        victim = None
        while victim is None and time.time() < deadline:
            time.sleep(0.2)
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if os.readlink(process / "cwd") != str(self.path) or b"piper" not in (process / "cmdline").read_bytes():
                        continue
                    words = (process / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if any(word in words for word in (f"OMPI_COMM_WORLD_RANK={victim_rank}".encode(), f"PMI_RANK={victim_rank}".encode())):
                    victim = int(process.name)
        self.assertIsNotNone(victim)
        self.wait_for_steps(job)
        start = time.time()
        os.kill(victim, what)
        try:
            output = job.communicate(timeout=900)[0]  # limits follow from how busy the machine was before
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.fail(f"the job does not end; it said:\n{job.communicate()[0]}")
        return job.returncode, output, time.time() - start

    def test_stopped_process_is_named(self):
        code, output, seconds = self.ended_by(signal.SIGSTOP, 2)
        self.assertNotEqual(code, 0)
        # in a step nothing ends; between steps a peer does not come
        self.assertRegex(output, r"E802\]: .+: device 2 \(rank 2 on \S+\) gives no sign of life")
        self.assertIn("dualpipev_experts.piper:", output)
        deadline = max(float(number) for number in re.findall(r"E802\]: .*?([\d.]+) s", output))
        self.assertLess(seconds, deadline + SLACK)

    @thorough
    def test_killed_process_ends_all(self):
        code, output, seconds = self.ended_by(signal.SIGKILL, 1)
        self.assertNotEqual(code, 0)
        self.assertLess(seconds, 3 + SLACK)

    @thorough
    def test_interrupted(self):
        code, output, seconds = self.ended_by(signal.SIGINT, 3)
        self.assertEqual(code, 128 + signal.SIGINT, output)
        self.assertRegex(output, r"stopped after \d+ of 100000 steps")

    @thorough
    def test_faults_while_the_job_forms(self):
        """Before all have joined MPI, which would wait for ever, and before anybody has a plan: the job ends and names the culprit."""
        # All have to come within 30 x timeout, but for the culprit: within a minute, or longer where that takes five jobs at once longer.
        begun = time.time()
        sound = self.launch("-n", "4", "c.toml", "--schedule", "1f1b.piper", "--steps", "1")
        self.assertEqual(sound.returncode, 0, sound.stderr)
        timeout = round(max(2, time.time() - begun), 1)
        faults = {"stop:1:joining": r"E805\]: .+ stopped on this host: rank 1 \(process \d+\)",
                  "hang:1:joining": r"not come so far as to join the others: rank 1\n",
                  "stop:0:forming": r"E805\]: .+ rank 0 does not answer.*\n  stopped on \S+: rank 0 \(process \d+\)",
                  "hang:2:forming": r"E805\][^\x00]*rank 2 does not answer",
                  "memory:2:forming": r"E801\]: rank 2 on \S+ cannot begin: "}

        def job(fault):
            start = time.time()
            result = self.launch("-n", "4", "c.toml", "--schedule", "1f1b.piper", "--timeout", str(timeout), "--fault", fault)
            return result, time.time() - start

        with concurrent.futures.ThreadPoolExecutor(len(faults)) as at_once:  # they do little but wait
            jobs = list(at_once.map(job, faults))
        for (fault, named), (result, seconds) in zip(faults.items(), jobs):
            with self.subTest(fault=fault):
                self.assertIn(result.returncode, (1, 3), result.stderr)
                self.assertRegex(result.stderr, named)
                self.assertLess(seconds, STARTING + 30 * timeout + 2 * SLACK)

    @thorough
    def test_last_operations_of_a_job_that_failed(self):
        result = self.launch("-n", "4", "c.toml", "--schedule", "dualpipev_experts.piper", "--steps", "100000", "--timeout", "3",
                             "--metrics", "m.jsonl", "--fault", "stop:2:300")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"E802\]: .+: device 2 \(rank 2 on \S+\) gives no sign of life")
        files = sorted(str(file) for file in self.path.glob("m.jsonl.rank*.flight"))
        self.assertEqual([file[-8] for file in files], ["0", "1", "3"])  # rank 2 is stopped
        shown = self.run_command([PIPER, "trace", "flight", *files, "-o", "last.json"])
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"rank 0 on \S+: .*gives no sign of life\n  device 0\n")
        for device in (0, 1, 3):
            self.assertRegex(shown.stdout, rf"  device {device}\n(  +-[\d.]+ s  step \d+ op .*\n)+")
        self.assertRegex(shown.stdout, r"\(dualpipev_experts.piper:\d+\): in progress")
        page = self.run_command([PIPER, "view", "last.json", "-o", "page.html"])
        self.assertEqual(page.returncode, 0, page.stderr)

    def test_killed_process_leaves_records_of_the_others(self):
        result = self.launch("-n", "4", "c.toml", "--schedule", "1f1b.piper", "--steps", "100000", "--metrics", "m.jsonl", "--fault", "kill:1:200")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        left = [file.name[-8] for file in self.path.glob("m.jsonl.rank*.flight")]
        self.assertNotIn("1", left)
        self.assertIn("0", left)



if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("piper")
    arguments, rest = parser.parse_known_args()
    PIPER = str(pathlib.Path(arguments.piper).resolve())
    LAUNCHER = mpirun.find(arguments.mpirun)
    unittest.main(argv=[sys.argv[0], *rest], testLoader=Loader())
