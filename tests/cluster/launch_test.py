#!/usr/bin/env python3
"""Jobs that `piper launch` starts on an emulated cluster: a cable is pulled, a process or the launcher is stopped or killed, a link
becomes slow. A job that fails ends with code 3, names the culprit, and nothing of it is left on any host. `piper doctor` on all hosts.

    launch_test.py [--trials=N] [--only=FAULT]... PIPER    exit 77 where clusters cannot be made; N: random faults of each kind
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train_loop"))
import processes_test as jobs  # noqa: E402

CLUSTER = str(HERE / "cluster")
HOSTS = 4
TIMEOUT = 3
DAEMON = ("orted", "hydra_pmi_proxy")  # of Open MPI, of MPICH


def cluster(*arguments):
    return subprocess.run([CLUSTER, *arguments], check=True, capture_output=True, text=True).stdout


def survivors():
    """Processes of the job: all that are called like our program or a launcher, on all hosts and the head."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and re.match(r"piper|orted|orterun|mpirun|mpiexec|hydra", name):
            found.append((int(process.name), name))
    return found


class Job:
    def __init__(self, piper, folder, processes=HOSTS, launching=(), more=()):
        self.output = tempfile.TemporaryFile("w+")
        line = [CLUSTER, "launch", piper, "launch", *launching, "-n", str(processes), "--hosts", "/run/hostfile", "c.toml", "--schedule", "s.piper",
                "--steps", "1000000", "--timeout", str(TIMEOUT), "--metrics", "m.jsonl", *more]
        self.process = subprocess.Popen(line, cwd=folder, stdout=self.output, stderr=subprocess.STDOUT,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"})

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def wait_for(self, pattern, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if re.search(pattern, self.text()):
                return True
            time.sleep(0.1)
        return bool(re.search(pattern, self.text()))

    def end(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def on_host(host, name):
    """The process with this name, on a host."""
    for line in cluster("status").splitlines():
        if line.startswith(f"host{host} "):
            for pid in line.partition("processes: ")[2].split():
                try:
                    if Path(f"/proc/{pid}/comm").read_text().strip().startswith(name):
                        return int(pid)
                except (OSError, ValueError):
                    pass
    raise RuntimeError(f"there is no {name} on host{host}")


def named(host):
    """Rank and host are numbered alike: one slot on every host."""
    return (rf"rank {host} on host{host}\) gives no sign of life|process rank {host} |Remote daemon: .* on node host{host}\b|"
            rf"MPI cannot send to rank {host}:")


def cut(host):
    cluster("link", str(host), "down")
    return lambda: cluster("link", str(host), "up")


def signal_to(host, name, what):
    os.kill(on_host(host, name), what)
    return lambda: None


FAULTS = {
    "cut": lambda host: cut(host),
    "stop": lambda host: signal_to(host, "piper", signal.SIGSTOP),
    "kill": lambda host: signal_to(host, "piper", signal.SIGKILL),
    "kill the daemon": lambda host: signal_to(host, DAEMON, signal.SIGKILL),
}


def run_fault(piper, folder, fault, host, after):
    """What is wrong with the end of a job."""
    job = Job(piper, folder)
    if not job.wait_for(r"step +\d", 900):
        job.process.kill()
        return [f"it did not start:\n{job.text()}"]
    time.sleep(after)
    start = time.monotonic()
    repair = FAULTS[fault](host)
    problems = []
    if not job.end(600):
        problems.append("it does not end")
        job.process.kill()
        job.process.wait()
    seconds, text = time.monotonic() - start, job.text()
    deadlines = [float(number) for number in re.findall(r"E802\]: .*?([\d.]+) s", text)]
    if seconds > max(deadlines, default=0) + jobs.SLACK:
        problems.append(f"it took {seconds:.1f} s")
    if job.process.returncode != 3:
        problems.append(f"exit code {job.process.returncode}")
    # a host that is cut off ends by itself, but has nobody to tell; MPICH's launcher does not know which daemon it has lost
    nameless = "gives no sign of life" in text if host == 0 else "process manager error" in text
    if not re.search(named(host), text) and not nameless:
        problems.append(f"host{host} is not named")
    left_behind(problems)
    repair()
    print(f"  {fault} host{host}: {seconds:.1f} s", flush=True)
    return [f"{problem}\n{text}" for problem in problems]


def run_spare(piper, folder):
    """A job of two processes loses one of them with its host, and there are more hosts: it resumes without that one."""
    job = Job(piper, folder, 2, ("--restarts", "1"), ("--checkpoints", "run", "--checkpoint-every", "2", "--keep", "2"))
    if not job.wait_for(r"step +[3-9]\d*", 900):
        job.process.kill()
        return [f"it did not start:\n{job.text()}"]
    repair = cut(1)
    problems = []
    if not job.wait_for(r"restart 1 of 1: resumes after step \d+", 600):
        problems.append("it does not start again")
    else:
        for host, has_one in ((0, True), (1, False), (2, True)):
            try:
                on_host(host, "piper")
                runs = True
            except RuntimeError:
                runs = False
            if runs != has_one:
                problems.append(f"host{host} has {'a' if runs else 'no'} process")
    job.process.send_signal(signal.SIGINT)
    if not job.end(600):
        problems.append("it does not end")
        job.process.kill()
        job.process.wait()
    if job.process.returncode != 128 + signal.SIGINT:
        problems.append(f"exit code {job.process.returncode}")
    repair()
    left_behind(problems)
    print("  resume without host1", flush=True)
    return [f"{problem}\n{job.text()}" for problem in problems]


def run_replaced(piper, folder):
    """Without MPI: the cable of a host is pulled, a spare on another one takes the place of its process, and the job goes on."""
    job = Job(piper, folder, 2, ("--backend", "tcp", "--spares", "1", "--launcher", str(HERE / "rsh")))
    problems = []
    if not job.wait_for(r"step +[3-9]\d*", 900):
        job.process.kill()
        return [f"it did not start:\n{job.text()}"]
    repair = cut(1)
    if not job.wait_for(r"goes on after step \d+\n[^\x00]*back: ", 900):
        problems.append("it does not go on")
    for expected in (r"piper: process 1 is lost: it does not answer", r"piper: process 2 takes the place of rank 1", r"goes on after step \d+"):
        if not re.search(expected, job.text()):
            problems.append(f"it does not say {expected}")
    repair()
    job.process.send_signal(signal.SIGINT)
    if not job.end(600):
        problems.append("it does not end")
        job.process.kill()
        job.process.wait()
    if job.process.returncode != 128 + signal.SIGINT:
        problems.append(f"exit code {job.process.returncode}")
    left_behind(problems)
    print("  host1 replaced", flush=True)
    return [f"{problem}\n{job.text()}" for problem in problems]


def run_slow(piper, folder):
    """Links that become five hundred times slower, and steps with them: no fault."""
    job = Job(piper, folder)
    if not job.wait_for(r"step +\d", 900):
        return [f"it did not start:\n{job.text()}"]
    cluster("rate", "all", "2mbit")
    time.sleep(30)
    alive = job.process.poll() is None
    cluster("rate", "all", "1gbit")
    job.process.send_signal(signal.SIGINT)
    ended = job.end(600)
    if not ended:
        job.process.kill()
    problems = [] if ended and job.process.returncode == 128 + signal.SIGINT else [f"exit code {job.process.returncode}"]
    if "E802" in job.text():
        problems.append("a false alarm")
    if not alive:
        problems.append("it ended while links were slow")
    print(f"  slow links: {len((Path(folder) / 'm.jsonl').read_text().splitlines()) - 1} steps", flush=True)
    return [f"{problem}\n{job.text()}" for problem in problems]


def left_behind(problems):
    """After a while: what is left, which is removed."""
    until = time.monotonic() + jobs.SLACK
    while survivors() and time.monotonic() < until:
        time.sleep(0.2)
    if left := survivors():
        problems.append(f"left: {left}")
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)


def run_stopped_launcher(piper, folder, host):
    """The launcher is stopped at the head: code 3. Its daemon on a host: nobody needs it until Ctrl-C, after which all ends as usual."""
    job = Job(piper, folder)
    if not job.wait_for(r"step +\d", 900):
        job.process.kill()
        return [f"it did not start:\n{job.text()}"]
    problems, start = [], time.monotonic()
    if host is None:
        os.kill(next(pid for pid, name in survivors() if re.match("mpi|orterun", name)), signal.SIGSTOP)
    else:
        os.kill(on_host(host, DAEMON), signal.SIGSTOP)
        time.sleep(5)
        if job.process.poll() is not None:
            problems.append("a stopped daemon has ended the job")
        job.process.send_signal(signal.SIGINT)
    if not job.end(600):
        problems.append("it does not end")
        job.process.kill()
        job.process.wait()
    seconds, text = time.monotonic() - start, job.text()
    if job.process.returncode != (3 if host is None else 128 + signal.SIGINT):
        problems.append(f"exit code {job.process.returncode}")
    if host is not None and not re.search(r"stopped after \d+ of", text):
        problems.append("the run did not end after its step")
    left_behind(problems)
    print(f"  stop the launcher {'at the head' if host is None else f'on host{host}'}: {seconds:.1f} s", flush=True)
    return [f"{problem}\n{text}" for problem in problems]


def run_doctor(piper):
    """Every host answers, and the links of all pairs are measured."""
    done = subprocess.run([CLUSTER, "launch", piper, "doctor", "--hosts", "/run/hostfile", "--format", "json"],
                          capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return [f"piper doctor ends with {done.returncode}:\n{done.stdout}{done.stderr}"]
    found = json.loads(done.stdout)
    hosts = {host["host"] for host in found["hosts"]}
    pairs = {frozenset((link["from"], link["to"])) for link in found["links"]}
    problems = []
    if len(found["hosts"]) != HOSTS:
        problems.append(f"hosts: {hosts}")
    if len(found["links"]) != HOSTS * (HOSTS - 1) // 2 or len(hosts) == HOSTS and len(pairs) != len(found["links"]):
        problems.append(f"links: {found['links']}")
    if not all(0 < link["latency_seconds"] < 60 and 0 < link["bytes_per_second"] < 1.3e8 for link in found["links"]):  # of 1 Gbit
        problems.append(f"what was measured cannot be: {found['links']}")
    if found["differences"]:
        problems.append(f"one program, and differences: {found['differences']}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", action="append", choices=[*FAULTS, "stopped launcher", "spare", "replaced", "slow", "doctor"], help="some of them")
    parser.add_argument("piper")
    arguments = parser.parse_args()
    if "PIPER_CLUSTER_HOSTS" not in os.environ:  # again, in a cluster that ends with this process
        os.execv(CLUSTER, [CLUSTER, "run", str(HOSTS), "1gbit", "--", sys.executable, *sys.argv])
    piper = str(Path(arguments.piper).resolve())
    dice = random.Random(arguments.seed)
    print(f"seed {arguments.seed}")
    wanted = arguments.only or [*FAULTS, "stopped launcher", "spare", "replaced", "slow", "doctor"]
    faults = [fault for fault in FAULTS if fault in wanted]
    if arguments.trials:
        trials = [(fault, dice.randrange(HOSTS), dice.random() * 2) for fault in faults for _ in range(arguments.trials)]
    else:
        trials = [(fault, host, 0.5) for fault, host in zip(FAULTS, (1, 2, 3, 1)) if fault in faults]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "c.toml").write_text(jobs.MODEL)
        (Path(folder) / "s.piper").write_text(jobs.SCHEDULES["dualpipev_experts"])
        runs = [lambda t=trial: run_fault(piper, folder, *t) for trial in trials]
        if "stopped launcher" in wanted:
            runs += [lambda h=host: run_stopped_launcher(piper, folder, h) for host in (None, 2)]
        if "spare" in wanted:
            runs.append(lambda: run_spare(piper, folder))
        if "replaced" in wanted:
            runs.append(lambda: run_replaced(piper, folder))
        if "slow" in wanted:
            runs.append(lambda: run_slow(piper, folder))
        if "doctor" in wanted:
            runs.append(lambda: run_doctor(piper))
        for run in runs:
            for problem in run():
                failed += 1
                print(problem, flush=True)
    print(f"{len(runs)} jobs, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
