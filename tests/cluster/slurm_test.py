#!/usr/bin/env python3
"""A job that Slurm's srun starts on two hosts of an emulated cluster: the numbers of one process bit by bit; a killed process ends it; the
script of docs/checkpoints.md saves, puts itself back into the queue, and resumes.

    slurm_test.py [--mpirun=PROGRAM] PIPER    exit 77 where clusters cannot be made, or there is no Slurm
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train_loop"))
import processes_test as jobs  # noqa: E402

CLUSTER = str(HERE / "cluster")
HOSTS = 2
INSIDE = "PIPER_CLUSTER_HOSTS"
PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sinfo", "sbatch", "scancel", "scontrol"]

# Everything lives in /run, which is the cluster's own. One munged is enough: hosts share files. A job that is put back into the queue waits
# until its credential has expired.
SETTINGS = """ClusterName=emulated
SlurmctldHost=head
SlurmUser=root
AuthInfo=socket=/run/munge/socket,cred_expire=10
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
DebugFlags=NO_CONF_HASH
StateSaveLocation=/run/slurm/state
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdPidFile=/run/slurm/%n.pid
SlurmdSpoolDir=/run/slurm/%n
SlurmdLogFile=/run/slurm/%n.log
NodeName=host[0-{last}] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def configure(host):
    """Hosts share files, so each has folders of its own. The cgroups of version 1 are those that need not be there."""
    folder = Path("/run/slurm") / host
    folder.mkdir(parents=True)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}\n")
    (folder / "slurm.conf").write_text(SETTINGS.format(last=HOSTS - 1))
    return str(folder / "slurm.conf")


def logs():
    return "\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in Path("/run/slurm").glob("*.log"))


def idle_hosts():
    return int(subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True).stdout.strip() or 0)


def start_slurm():
    for folder in ["/run/munge", "/run/slurm/state"]:
        os.makedirs(folder, mode=0o755)
    Path("/run/munge/key").write_bytes(os.urandom(128))
    os.chmod("/run/munge/key", 0o600)
    subprocess.run(["munged", "--force", "--key-file=/run/munge/key", "--socket=/run/munge/socket", "--pid-file=/run/munge/pid",
                    "--log-file=/run/munge/log", "--seed-file=/run/munge/seed"], check=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    os.environ["SLURM_CONF"] = configure("head")
    subprocess.Popen(["slurmctld", "-D", "-c"], **quiet)
    for host in range(HOSTS):
        environment = {**os.environ, "SLURM_CONF": configure(f"host{host}")}
        subprocess.Popen([CLUSTER, "exec", str(host), "slurmd", "-D", "-N", f"host{host}"], env=environment, **quiet)
    until = time.monotonic() + 300
    while idle_hosts() != HOSTS:
        if time.monotonic() > until:
            sys.exit(f"Slurm does not start:\n{logs()}")
        time.sleep(0.2)


def srun(folder, kind, processes, *words):
    """The job; Slurm's own hosts and addresses, the cluster's network."""
    line = [CLUSTER, "launch", "srun", f"--mpi={kind}", "-n", str(processes), "--ntasks-per-node", str(processes // HOSTS), "--overcommit",
            PIPER, "train", "c.toml", "--backend", "mpi", "--threads", "1", *words]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"})


def losses(path):
    return [record["loss"] for record in map(json.loads, path.read_text().splitlines()) if "loss" in record]


def check_equal(folder, kind):
    local = [PIPER, "train", "c.toml", "--schedule", "zero_bubble.piper", "--metrics", "local.jsonl", "--threads", "1"]
    subprocess.run(local, cwd=folder, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    for processes in [2, 4]:
        (folder / "slurm.jsonl").unlink(missing_ok=True)
        job = srun(folder, kind, processes, "--schedule", "zero_bubble.piper", "--metrics", "slurm.jsonl")
        output = job.communicate(timeout=900)[0]
        if job.returncode or f"4 devices in {processes} processes" not in output:
            sys.exit(f"the job of {processes} processes ends with code {job.returncode}:\n{output}")
        if losses(folder / "slurm.jsonl") != losses(folder / "local.jsonl"):
            sys.exit(f"other losses in {processes} processes:\n{(folder / 'slurm.jsonl').read_text()}")
        print(f"{processes} processes under srun --mpi={kind}: equal to one")


def check_fault(folder, kind):
    job = srun(folder, kind, 4, "--schedule", "zero_bubble.piper", "--steps", "1000000", "--fault", "throw:2:700")
    output = job.communicate(timeout=900)[0]
    if job.returncode != 3 or not re.search(r"E801\]: device 2: op .*a planted fault", output):
        sys.exit(f"a fault in rank 2 ends with code {job.returncode}:\n{output}")
    print("a fault in rank 2 is named, and ends the job with code 3")


def wait_for(what, happened, state):
    until = time.monotonic() + 300
    while not happened():
        if time.monotonic() > until:
            sys.exit(f"not seen: {what}\n{state()}\n{logs()}")
        time.sleep(0.2)


def check_requeue(folder, kind):
    """As the documentation has it, but for names; Slurm's signal comes from scancel, not from the end of the time."""
    recipe = re.search(r"^(#!/bin/bash\n#SBATCH.*?)^```", (HERE.parents[1] / "docs/checkpoints.md").read_text(), re.M | re.S).group(1)
    train = f"srun --mpi={kind} --overcommit {PIPER} train c.toml --schedule zero_bubble.piper --threads 1 --steps 1000000 --metrics s.jsonl"
    script = recipe.replace("srun piper train CONFIG.toml", train)
    if script == recipe or "--resume" not in script:
        sys.exit(f"the recipe has changed:\n{recipe}")
    (folder / "script").write_text(script)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    job = subprocess.run([CLUSTER, "launch", "sbatch", "--parsable", "-n", "2", "-N", "2", "--overcommit", "--time", "60", "--output", "log",
                          "script"], cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout.strip()
    log, metrics, show = folder / "log", folder / "s.jsonl", ["scontrol", "show", "job", job]

    def state():
        return subprocess.run(show, capture_output=True, text=True).stdout + (log.read_text() if log.exists() else "")

    wait_for("the first steps", lambda: metrics.exists() and len(losses(metrics)) > 3, state)
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    wait_for("the job in the queue again", lambda: "Restarts=1" in state() and "JobState=PENDING" in state(), state)
    if not re.search(r"stopped after (\d+) of 1000000 steps", log.read_text()):
        sys.exit(f"the run did not end by the signal:\n{state()}")
    wait_for("the job to resume", lambda: re.search(r"resumed from run/step-\d+", log.read_text()), state)
    subprocess.run(["scancel", job], check=True)
    print("the script of the documentation saves, is put back into the queue, and resumes")


def main():
    global PIPER
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("piper")
    arguments = parser.parse_args()
    PIPER = str(Path(arguments.piper).resolve())
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        print(f"skipped: there is no {missing[0]} here")
        return 77
    if INSIDE not in os.environ:
        os.execv(CLUSTER, [CLUSTER, "run", str(HOSTS), "--", sys.executable, __file__, *sys.argv[1:]])
    version = subprocess.run([arguments.mpirun, "--version"], capture_output=True, text=True).stdout
    kind = "pmi2" if "HYDRA" in version else "pmix"  # MPICH, Open MPI
    start_slurm()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # daemons of Slurm still write while they end
        path = Path(folder)
        (path / "c.toml").write_text(jobs.CONFIG)
        (path / "zero_bubble.piper").write_text(jobs.SCHEDULES["zero_bubble"])
        check_equal(path, kind)
        check_fault(path, kind)
        check_requeue(path, kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
