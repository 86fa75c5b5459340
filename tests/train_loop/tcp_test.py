#!/usr/bin/env python3
"""Jobs of `piper launch --backend tcp`, which need no MPI: the numbers of one process bit by bit, also where processes are lost and replaced.

    tcp_test.py PIPER [Tcp|Recovery]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import processes_test as jobs  # noqa: E402


def on_hosts(path, text):
    """Options: a list of hosts, and in place of ssh something that runs commands here, under the host's name."""
    (path / "hosts").write_text(text)
    shell = path / "shell"
    shell.write_text('#!/bin/sh\necho "$1" >> started\nexec setsid unshare --uts sh -c \'hostname "$0"; eval "$1"\' "$1" "$2"\n')
    shell.chmod(0o755)
    return ["--hosts", "hosts", "--launcher", "./shell"]


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
        for option in (("--launcher", "mpirun"), ("--interface", "eth0", "--hosts", "hosts")):
            result = self.run_command([jobs.PIPER, "launch", "--backend", "tcp", "-n", "2", *option, "c.toml"])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(re.sub(r"\s+", " ", result.stderr), rf"{option[0]}.*goes with --backend mpi")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give hosts names")
    def test_processes_on_other_hosts(self):
        """Each at an address of its own; the numbers are those of one process, and a fault on one of them is named."""
        command = self.command(3, "1f1b")
        command[2:2] = on_hosts(self.path, "127.0.0.2 slots=2\n127.0.0.3:1\n")
        result = self.run_command([*command, "--metrics", "m.jsonl"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(sorted((self.path / "started").read_text().split()), ["127.0.0.2", "127.0.0.2", "127.0.0.3"])
        lines = [json.loads(line) for line in (self.path / "m.jsonl").read_text().splitlines()]
        self.assertEqual([(line["loss"], line["gradient_norm"]) for line in lines if "loss" in line], self.numbers(0, "1f1b")[0])
        result = self.run_command([*command, "--steps", "100000", "--timeout", "3", "--fault", "throw:2:200"])
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("a planted fault", result.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give hosts names")
    def test_a_signal_reaches_other_hosts(self):
        command = self.command(2, "1f1b", "--steps", "100000", "--metrics", "m.jsonl")
        command[2:2] = on_hosts(self.path, "127.0.0.2\n127.0.0.3\n")
        job = subprocess.Popen(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for_steps(job)
        job.send_signal(signal.SIGINT)
        output = job.communicate(timeout=600)[0]
        self.assertEqual(job.returncode, 128 + signal.SIGINT, output)
        self.assertRegex(output, r"stopped after \d+ of 100000 steps: \w+")

    def test_hosts_with_too_few_places(self):
        command = self.command(3, "1f1b")
        command[2:2] = on_hosts(self.path, "127.0.0.2\n127.0.0.3\n")
        result = self.run_command(command)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the hosts take 2 processes, and the job has 3", result.stderr)


def number_of(process):
    """Of a process that `piper launch` has started; none: it is another one."""
    with contextlib.suppress(OSError):
        for word in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"PIPER_RANK="):
                return int(word[11:])
    return None


def started_by(launcher):
    """Their process ids, by number."""
    out = {}
    for child in jobs.children(launcher):
        if (number := number_of(child)) is None:
            out.update(started_by(child))
        else:
            out[number] = child
    return out


class Recovery(jobs.Jobs):
    """Processes are lost, spares take their places: losses and norms of all steps are those of a run that nobody disturbed."""

    STEPS = 12
    options = ()  # of piper launch

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
        return [jobs.PIPER, "launch", "--backend", "tcp", *self.options, "--spares", str(spares), "-n", "4", "c.toml", "--schedule", f"{schedule}.piper",
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

    def struck(self, schedule, spares, numbers, *more, steps=STEPS):
        """These processes are killed at once, when the job has taken some steps; its code and output."""
        (self.path / "m.jsonl").unlink(missing_ok=True)
        with open(self.path / "output", "w") as output:
            job = subprocess.Popen(self.line(schedule, spares, "--steps", str(steps), *more), cwd=self.path, stdout=output, stderr=output,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"})
        self.addCleanup(lambda: job.poll() is None and job.kill())
        self.wait_for_steps(job)
        processes = started_by(job.pid)
        for number in numbers:
            os.kill(processes[number], signal.SIGKILL)
        code = job.wait(900)
        return code, (self.path / "output").read_text()

    def test_two_lost_at_once_that_are_no_neighbours(self):
        self.STEPS = 60
        expected = self.undisturbed("1f1b")
        code, output = self.struck("1f1b", 2, (0, 2), steps=self.STEPS)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.steps("m.jsonl"), expected, output)
        for number in (0, 2):
            self.assertRegex(output, rf"piper: process {number} is lost: ended by signal 9")

    def test_owner_and_holder_of_a_copy_lost_at_once(self):
        """The end: it says what is lost, and where the job goes on, with the losses that it would have had."""
        checkpoints = ("--checkpoints", "run", "--checkpoint-every", "1")
        code, output = self.struck("1f1b", 2, (1, 2), *checkpoints, steps=1000000)
        self.assertEqual(code, 3, output)
        self.assertRegex(output, r"E805\]: what device 1 held after step \d+ is lost: no process is left that has a copy")
        newest = re.search(r"piper: the newest checkpoint is run/step-(\d+); --resume takes it", output)
        self.assertTrue(newest, output)
        self.STEPS = int(newest[1]) + 3
        expected = self.undisturbed("1f1b")
        result = self.run_command(self.line("1f1b", 0, *checkpoints, "--resume", "--steps", str(self.STEPS)))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = self.steps("m.jsonl")
        self.assertEqual({step: found[step] for step in expected}, expected)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give hosts names")
    def test_a_lost_host(self):
        """Both of its processes, which are neighbours: their copies are on the other host."""
        self.STEPS = 60
        expected = self.undisturbed("1f1b")
        self.options = on_hosts(self.path, "127.0.0.2 slots=2\n127.0.0.3 slots=2\n127.0.0.4 slots=2\n")
        code, output = self.struck("1f1b", 2, (2, 3), steps=self.STEPS)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.steps("m.jsonl"), expected, output)

    def test_all_lost_at_once(self):
        code, output = self.struck("1f1b", 1, range(4), steps=1000000)
        self.assertEqual(code, 3, output)
        self.assertIn("all its processes are lost, and what the devices held with them", output)

    def test_a_fault_while_another_is_made_good(self):
        """Of the spare, before it has a plan and before it has a state; of a process whose state another has."""
        expected = self.undisturbed("1f1b")
        for second in ("kill:4:forming", "kill:4:restoring", "throw:4:restoring", "kill:0:restoring"):
            with self.subTest(second=second):
                (self.path / "m.jsonl").unlink(missing_ok=True)
                result = self.run_command(self.line("1f1b", 2, "--steps", str(self.STEPS), "--fault", "kill:2:150", "--fault", second))
                output = result.stdout + result.stderr
                self.assertEqual(result.returncode, 0, output)
                self.assertRegex(output, rf"process {second.split(':')[1]} is lost")
                self.assertRegex(output, r"process 5 takes the place of rank \d")
                self.assertEqual(self.steps("m.jsonl"), expected, output)

    def test_nothing_begins_anew_where_all_that_knew_the_steps_are_lost(self):
        """The last that had a state is lost before it has given it to the spare."""
        line = self.line("1f1b", 2, "--steps", "1000000", "--fault", "kill:1:4000", "--fault", "kill:0:restoring")
        line[line.index("-n") + 1] = "2"
        result = self.run_command(line)
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"E805\]: what devices \[0..3\] held after \d+ updates is lost")

    def test_a_process_that_cannot_be_started(self):
        """The system starts no further one: the job ends, or goes on with fewer spares; both is said."""
        library = self.path / "no_fork.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            self.skipTest("there is no compiler here")
        source = pathlib.Path(__file__).resolve().parent / "no_fork.c"
        subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        for fork, number, code in ((4, 2, 1), (6, 4, 0)):  # the first is of the launcher itself
            with self.subTest(number=number):
                result = self.run_command(self.line("1f1b", 1), LD_PRELOAD=str(library), PIPER_NO_FORK=str(fork))
                self.assertEqual(result.returncode, code, result.stdout + result.stderr)
                self.assertIn(f"piper: process {number} cannot be started: Resource temporarily unavailable", result.stderr)

    def test_one_process_has_no_use_for_spares(self):
        result = self.run_command([jobs.PIPER, "launch", "--backend", "tcp", "-n", "1", "--spares", "1", "c.toml"])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(re.sub(r"\s+", " ", result.stderr), r"--spares.*nobody else has what one process holds")

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
