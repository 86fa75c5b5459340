"""Runs a script in several processes that find each other as under torchrun: forked.py PROCESSES SCRIPT. Ends with 1 if one of them fails.

Importing PyTorch takes longer than most scripts, so the processes are copies of one that has done it.
"""
import os
import runpy
import sys
from datetime import timedelta

import piper  # noqa: F401
import torch._dynamo  # noqa: F401  FakeTensorMode needs it
import torch.distributed


def run(rank, processes, port_of_store, script):
    local = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=processes, LOCAL_WORLD_SIZE=processes, MASTER_ADDR="127.0.0.1", MASTER_PORT=port_of_store)
    os.environ.update({name: str(value) for name, value in local.items()}, TORCHELASTIC_USE_AGENT_STORE="True")
    runpy.run_path(script, run_name="__main__")


def main():
    processes, script = int(sys.argv[1]), sys.argv[2]
    started = []
    for rank in range(processes):
        end, begin = os.pipe()
        if (process := os.fork()) == 0:
            os.close(begin)
            return run(rank, processes, int(os.read(end, 16)), script)
        started.append((process, begin))
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(hours=1))
    for _, begin in started:  # only now, because a copy of a process has no copy of the store's thread
        os.write(begin, str(store.port).encode())
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process, _ in started]
    sys.exit(1 if any(codes) else 0)


main()
