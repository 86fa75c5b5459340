#!/usr/bin/env python3
"""Jobs of `piper launch --backend tcp`, which need no MPI: the numbers of one process bit by bit, also where processes are lost and replaced.

    tcp_test.py PIPER [Tcp|Recovery]
"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import processes_test as jobs  # noqa: E402


class Tcp(jobs.Jobs):
    def command(self, processes, schedule, *more):
        if not processes:
            return super().command(processes, schedule, *more)
        return [jobs.PIPER, "launch", "--backend", "tcp", "-n", str(processes), "c.toml", "--schedule", f"{schedule}.piper", *more]

    def test_numbers_of_one_process(self):
        for number, schedule in enumerate(("1f1b", "dualpipev_experts", "zero3", "cut", "uneven")):
            with self.subTest(schedule=schedule):
                self.assertEqual(self.numbers(2 + number % 3, schedule), self.numbers(0, schedule))

    def test_divided_heads(self):
        (self.path / "c.toml").write_text(jobs.CONFIG.replace('"reference-moe"', '"reference"').replace("experts = 4\n", ""))
        (self.path / "heads.piper").write_text(jobs.TOKENS.replace("gather", "heads"))
        self.assertEqual(self.numbers(4, "heads"), self.numbers(0, "heads"))

    def test_what_is_started(self):
        result = self.run_command(self.command(2, "1f1b"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stderr.splitlines()[0], r"train c.toml .*--backend tcp  \(2 processes\)$")
        self.assertIn("4 devices in 2 processes", result.stdout)
        self.assertNotIn("piper-job", result.stderr)

    def test_a_fault_is_named_and_ends_all(self):
        for fault, named in (("kill:1:200", r"(rank 1 is gone: |rank 1 on \S+\) gives no sign of life)"), ("throw:1:200", r"a planted fault")):
            with self.subTest(fault=fault):
                result = self.run_command(self.command(3, "1f1b", "--steps", "100000", "--timeout", "3", "--fault", fault))
                self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                self.assertRegex(result.stderr, named)

    def test_a_process_that_cannot_begin_is_named(self):
        result = self.run_command(self.command(3, "1f1b", "--fault", "kill:2:joining"))
        self.assertNotEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("process 2 is gone: ended by signal 9", result.stderr)

    def test_stopped_by_a_signal(self):
        job = subprocess.Popen(self.command(2, "1f1b", "--steps", "100000", "--metrics", "m.jsonl"), cwd=self.path, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for_steps(job)
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=600)[0]
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, output)
        self.assertRegex(output, r"stopped after \d+ of 100000 steps: \w+")

    def test_nobody_has_started_it(self):
        result = self.run_command([jobs.PIPER, "train", "c.toml", "--backend", "tcp"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("E805]: nobody has told this process where the others are", result.stderr)

    def test_options_of_mpi(self):
        result = self.run_command([jobs.PIPER, "launch", "--backend", "tcp", "-n", "2", "--launcher", "mpirun", "c.toml"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(re.sub(r"\s+", " ", result.stderr), r"--launcher.*goes with --backend mpi")


class Recovery(jobs.Jobs):
    """Processes are lost, spares take their places: losses and norms of all steps are those of a run that nobody disturbed."""

    STEPS = 12

    def undisturbed(self, schedule):
        result = self.run_command([jobs.PIPER, "train", "c.toml", "--schedule", f"{schedule}.piper", "--steps", str(self.STEPS), "--metrics",
                                   "one.jsonl"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return self.steps("one.jsonl")

    def steps(self, file):
        """By number; whatever was taken twice must have come out the same."""
        out = {}
        for line in (self.path / file).read_text().splitlines():
            line = json.loads(line)
            if "loss" in line:
                numbers = (line["loss"], line["gradient_norm"])
                self.assertEqual(out.setdefault(line["step"], numbers), numbers)
        return out

    def line(self, schedule, spares, *more):
        return [jobs.PIPER, "launch", "--backend", "tcp", "--spares", str(spares), "-n", "4", "c.toml", "--schedule", f"{schedule}.piper",
                "--timeout", "15", "--metrics", "m.jsonl", *more]

    def disturbed(self, schedule, fault, spares=1):
        (self.path / "m.jsonl").unlink(missing_ok=True)
        result = self.run_command(self.line(schedule, spares, "--steps", str(self.STEPS), "--fault", fault))
        output = result.stdout + result.stderr
        self.assertEqual(result.returncode, 0, output)
        return output

    def check(self, schedule, fault):
        with self.subTest(schedule=schedule, fault=fault):
            (self.path / "one.jsonl").unlink(missing_ok=True)
            expected = self.undisturbed(schedule)
            self.assertEqual(len(expected), self.STEPS)
            output = self.disturbed(schedule, fault)
            rank = fault.split(":")[1]
            self.assertRegex(output, rf"piper: process {rank} is lost: .*\npiper: process 4 takes the place of rank {rank}\n")
            self.assertRegex(output, r"goes on after step \d+")
            self.assertEqual(self.steps("m.jsonl"), expected, output)

    def test_a_killed_process(self):
        """Whose state only its neighbour has; whose state replicas have; which is rank 0."""
        for schedule, fault in (("1f1b", "kill:2:150"), ("zero3", "kill:3:500"), ("dualpipev_experts", "kill:1:700"), ("cut", "kill:0:300"),
                                ("replicas", "kill:2:250")):
            self.check(schedule, fault)

    def test_a_stopped_process_and_one_that_fails(self):
        self.check("1f1b", "stop:1:150")
        self.check("zero2", "throw:3:300")

    def setUp(self):
        super().setUp()
        (self.path / "replicas.piper").write_text(jobs.SCHEDULES["zero2"].replace("zero=2", "zero=0"))

    def test_without_spares_the_job_ends(self):
        result = self.run_command([*self.line("1f1b", 0, "--on-fault", "replace"), "--fault", "kill:2:150"])
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("1 process is lost, and there are 0 spares", result.stderr)

    def test_other_backends_do_not_survive(self):
        result = self.run_command([jobs.PIPER, "train", "c.toml", "--on-fault", "replace"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("E105]: --on-fault replace goes with --backend tcp", result.stderr)

    def test_spares_that_are_not_needed(self):
        result = self.run_command(self.line("1f1b", 2))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotIn("lost", result.stderr)


if __name__ == "__main__":
    jobs.PIPER = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
