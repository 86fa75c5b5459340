"""Several processes that train together: how this one was started, and how it finds the others."""
from __future__ import annotations

import hmac
import ipaddress
import os
import socket
import time
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


def join(backend: str, timeout: float) -> None:
    """Returns when all processes have come, within thirty times the timeout; once in the life of a process."""
    if backend == "local" or _piper.joined():
        return
    if backend == "mpi":
        return _piper.join_mpi(30 * timeout)
    try:
        _join_tcp(30 * timeout)
    except (OSError, RuntimeError, ValueError) as problem:
        raise refused(RunError, "E805", f"the processes do not find each other: {problem}",
                      "start the script with torchrun --nproc-per-node N script.py, or with mpirun -n N python script.py; or "
                      "backend=\"local\": every process trains alone") from problem


def _join_tcp(limit: float) -> None:
    """Doors are announced through the store of torch.distributed, which torchrun has, or rank 0."""
    global _store
    deadline, key = time.monotonic() + limit, _key()
    store, rank, ranks = next(torch.distributed.rendezvous("env://", timeout=timedelta(seconds=limit)))
    _store = torch.distributed.PrefixStore(f"piper {_attempt()}", store)
    door = _piper.Door(_own_address())
    _store.set(f"door {rank}", _sealed(key, rank, door.address))
    doors = [_opened(key, other, _announced(other, deadline)) for other in range(ranks)]
    alone = [ipaddress.ip_address(door.split()[0]).is_loopback for door in doors]
    if any(alone) and not all(alone):
        raise ValueError(f"rank {alone.index(True)} is reached from its own host only: there, MASTER_ADDR={os.environ['MASTER_ADDR']} is an "
                         "address of this kind; give one that all hosts know it by")
    _piper.join_tcp(rank, door, doors, max(deadline - time.monotonic(), 0.1))


def _attempt() -> str:
    """torchrun starts the processes again with the same store, in which the doors of those that are gone still stand. Its count is that of
    one host; on several it may differ."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if _on_one_host() else "0"


def _announced(rank: int, deadline: float) -> str:
    """What a rank has put into the store."""
    try:
        _store.wait([f"door {rank}"], timedelta(seconds=max(deadline - time.monotonic(), 0.1)))
    except RuntimeError as problem:
        raise OSError(f"rank {rank} does not come") from problem
    return _store.get(f"door {rank}").decode()


def _on_one_host() -> bool:
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]


def _key() -> Optional[bytes]:
    """What the processes of the job know and strangers do not, for everybody can read the store: PIPER_SECRET; or, on one host, the name
    of the folder that torchrun has made for them, which is random, and which other users cannot see."""
    if "PIPER_SECRET" in os.environ:
        return os.environ["PIPER_SECRET"].encode()
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return os.path.dirname(os.path.dirname(file)).encode() if file and _on_one_host() else None


def _sealed(key: Optional[bytes], rank: int, address: str) -> str:
    """The address of a door as it stands in the store: its secret can be read, and another put in its place, only by who has the key."""
    if key is None:
        return address
    host, port, secret = address.split()
    place = f"door {rank} {host} {port}"
    hidden = int(secret) ^ int.from_bytes(hmac.digest(key, place.encode(), "sha256")[:8], "big")
    return f"{host} {port} {hidden} {hmac.digest(key, f'{place} {hidden}'.encode(), 'sha256').hex()}"


def _opened(key: Optional[bytes], rank: int, text: str) -> str:
    """The address, if it is one of this job."""
    if key is None and len(text.split()) == 3:
        return text
    host, port, hidden = text.split()[:3]
    if key is not None:
        secret = int(hidden) ^ int.from_bytes(hmac.digest(key, f"door {rank} {host} {port}".encode(), "sha256")[:8], "big")
        if hmac.compare_digest(_sealed(key, rank, f"{host} {port} {secret}"), text):
            return f"{host} {port} {secret}"
    raise ValueError(f"rank {rank} does not have the secret of this job: PIPER_SECRET must be the same in all processes")


def _own_address() -> str:
    """Of this host, on the network that leads to MASTER_ADDR; nobody else need reach it where all processes are here."""
    if _on_one_host():
        return "127.0.0.1"
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
