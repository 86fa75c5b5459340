"""Several processes that train together: how this one was started, and how it finds the others."""
from __future__ import annotations

import ipaddress
import os
import socket
from datetime import timedelta
from typing import Optional

import torch.distributed

from . import _piper
from .errors import RunError, check_word, refused

_store = None  # kept: rank 0's may be what the others ask


def backend(wanted: Optional[str]) -> str:
    """Where the devices are: as it is wanted, or as this process was started."""
    if wanted is not None:
        check_word("backend", wanted, ("local", "mpi", "tcp"))
        return wanted
    if any(int(os.environ.get(name, "1")) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        return "mpi"
    return "tcp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "local"


def join(backend: str) -> None:
    """Returns when all processes have come; once in the life of a process."""
    if backend == "local" or _piper.joined():
        return
    if backend == "mpi":
        return _piper.join_mpi()
    try:
        _join_tcp()
    except (OSError, RuntimeError, ValueError) as problem:
        raise refused(RunError, "E805", f"the processes do not find each other: {problem}",
                      "start the script with torchrun --nproc-per-node N script.py, or with mpirun -n N python script.py; or "
                      "backend=\"local\": every process trains alone") from problem


def _join_tcp() -> None:
    """Doors are announced through the store of torch.distributed, which torchrun has, or rank 0."""
    global _store
    store, rank, ranks = next(torch.distributed.rendezvous("env://", timeout=timedelta(minutes=5)))
    _store = torch.distributed.PrefixStore("piper", store)
    door = _piper.Door(_own_address())
    _store.set(f"door {rank}", door.address)
    doors = [_store.get(f"door {other}").decode() for other in range(ranks)]
    alone = [ipaddress.ip_address(door.split()[0]).is_loopback for door in doors]
    if any(alone) and not all(alone):
        raise ValueError(f"rank {alone.index(True)} is reached from its own host only: there, MASTER_ADDR={os.environ['MASTER_ADDR']} is an "
                         "address of this kind; give one that all hosts know it by")
    _piper.join_tcp(rank, door, doors)


def _own_address() -> str:
    """Of this host, on the network that leads to MASTER_ADDR."""
    problem: Optional[OSError] = None
    where = socket.getaddrinfo(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), type=socket.SOCK_DGRAM)
    for family, kind, protocol, _, address in where:
        try:
            with socket.socket(family, kind, protocol) as asked:
                asked.connect(address)  # sends nothing
                return asked.getsockname()[0]
        except OSError as refusal:
            problem = refusal
    raise problem or OSError("MASTER_ADDR has no address")
