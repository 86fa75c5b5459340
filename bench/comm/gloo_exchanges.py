"""How long exchanges take over gloo, as PyTorch has it; started by bench/comm_bench.py. Rank 0 prints lines of JSON.

    gloo_exchanges.py RANK RANKS ADDRESS BYTES...
"""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist

RECOVERY, LATE = 0.005, 0.003  # as in mpi_exchanges.cc


def core_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(what, size, halves, run, times=None, late=0):
    times = times or min(30, max(3, (64 << 20) // max(size, 1)))
    seconds, cores, wall = [], 0, 0
    for i in range(times + 1):  # once for nothing
        time.sleep(RECOVERY)
        dist.barrier()
        time.sleep(late)
        used, start = core_seconds(), time.monotonic()
        run()
        took = time.monotonic() - start
        cores += core_seconds() - used
        wall += took
        if i > 0:
            seconds.append(took / halves)
    share = cores / wall
    if dist.get_rank() == 0:
        print(json.dumps({"what": what, "bytes": size, "seconds": sorted(seconds)[len(seconds) // 2], "core": share}), flush=True)


def transfer(rank, size):
    data = torch.zeros(size // 4)

    def run():
        if rank == 0:
            dist.send(data, 1)
            dist.recv(data, 1)
        elif rank == 1:
            dist.recv(data, 0)
            dist.send(data, 0)

    measure("p2p", size, 2, run)


def wait(rank):
    def run():
        if rank == 1:
            time.sleep(1)
            dist.send(torch.zeros(1), 0)
        elif rank == 0:
            dist.recv(torch.zeros(1), 1)

    measure("wait", 0, 1, run, 1)


def main():
    rank, ranks, address, *sizes = sys.argv[1:]
    os.environ.update(MASTER_ADDR=address, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0", TORCH_CPP_LOG_LEVEL="ERROR")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(rank), world_size=int(ranks))
    for size in map(int, sizes):
        transfer(int(rank), size)
    for size in map(int, sizes):
        data = torch.zeros(size // 4)
        measure("all_reduce", size, 1, lambda: dist.all_reduce(data))
    for size in map(int, sizes):
        out, into = torch.zeros(size // 4), torch.zeros(size // 4)
        measure("all_to_all", size, 1, lambda: dist.all_to_all_single(into, out), late=LATE if rank == "0" else 0)
    wait(int(rank))
    dist.destroy_process_group()


main()
