"""One rank of torch.distributed.pipelining on gloo: trains when it is told to, and waits without burning a core meanwhile.

    torch_worker.py RANK WORLD PORT CONFIG    rank 0 reads lines `SCHEDULE STEPS` and answers each with a line of JSON

The model, its data and the schedules are those of the kit in ../shared/peers. A schedule keeps its weights from line to line.
"""
import datetime
import json
import os
import pathlib
import sys

os.environ["OMP_NUM_THREADS"] = "1"
root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root.parent / "shared" / "peers"))

import peer  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from model import CONFIGS  # noqa: E402


def spec_of(name, world):
    """`1F1B`: a pipeline of all ranks; `1F1B+fsdp`, `1F1B+ddp`: of half of them, with two replicas; `ddp`, `fsdp`: replicas only."""
    if name in ("ddp", "fsdp"):
        return dict(mode=name, dp=world)
    schedule, _, kind = name.partition("+")
    return dict(mode="pp", schedule=schedule, pp=world // 2 if kind else world, **({"dp": 2, "dp_kind": kind} if kind else {}))


def main():
    rank, world, port, config = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), CONFIGS[sys.argv[4]]
    torch.set_num_threads(1)
    address = os.environ.get("PIPER_BENCH_ADDRESS", "127.0.0.1")
    store = dist.TCPStore(address, port, world, rank == 0, timeout=datetime.timedelta(seconds=120))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    trainers, done = {}, {}
    while True:
        line = [sys.stdin.readline().split() if rank == 0 else None]
        dist.broadcast_object_list(line)
        if not line[0]:
            break
        name, steps = line[0][0], int(line[0][1])
        if name not in trainers:
            trainers[name], done[name] = peer.build(config, spec_of(name, world)), 0
        rows = [peer.timed_step(trainers[name], done[name] + i) for i in range(steps)]
        done[name] += steps
        if rank == 0:
            print(json.dumps([{key: row[key] for key in ("loss", "wall", "cpu")} for row in rows]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
