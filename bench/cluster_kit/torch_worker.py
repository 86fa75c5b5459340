"""One rank of a job of PyTorch that trains the reference decoder: DDP, FSDP2, or a schedule of torch.distributed.pipelining.

    torch_worker.py CONFIG SYSTEM MICROBATCHES STEPS cpu|cuda      SYSTEM: ddp, fsdp2, 1F1B, Interleaved1F1B, ZBVZeroBubble, …

Rank and number of processes come from RANK and WORLD_SIZE, or from what MPI or Slurm set. Rank 0 prints a line of JSON: the losses, the seconds
of every step (those of the slowest rank), the most bytes a GPU had.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from decoder import ADAMW, Decoder, Sizes, batch_of, loss_of
from torch.distributed.device_mesh import init_device_mesh


def of_environment(*names):
    return next(int(os.environ[name]) for name in names if name in os.environ)


class Replicas:
    """Each rank has its share of every batch."""

    def __init__(self, sizes, system, microbatches, device):
        world, rank = dist.get_world_size(), dist.get_rank()
        share = sizes.batch // world
        self.sizes, self.device, self.system = sizes, device, system
        self.rows, self.microbatches = slice(rank * share, (rank + 1) * share), microbatches // world
        self.model = Decoder(sizes).to(device, sizes.dtype)
        if system == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        else:
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(device.type, (world,))
            for layer in self.model.layers.values():
                fully_shard(layer, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.parts = [self.model]

    def run(self, step):
        x, y = (t.to(self.device) for t in batch_of(self.sizes, step, self.rows))
        total = 0.0
        for i, (xs, ys) in enumerate(zip(x.chunk(self.microbatches), y.chunk(self.microbatches))):
            last = i == self.microbatches - 1
            if self.system == "ddp":
                self.model.require_backward_grad_sync = last
            else:
                self.model.set_requires_gradient_sync(last)
            loss = loss_of(self.model(xs), ys) / self.microbatches
            loss.backward()
            total = total + loss.detach()
        return total


class Pipeline:
    """All ranks are a pipeline."""

    def __init__(self, sizes, system, microbatches, device):
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import get_schedule_class

        world, rank = dist.get_world_size(), dist.get_rank()
        self.sizes, self.device = sizes, device
        turns = system in ("ZBVZeroBubble", "DualPipeV")
        stages = world if system in ("1F1B", "GPipe") else 2 * world
        mine = [rank] if stages == world else [rank, stages - 1 - rank if turns else rank + world]
        cuts = [sizes.layers * s // stages for s in range(stages + 1)]
        self.parts = [Decoder(sizes, cuts[s], cuts[s + 1]).to(device, sizes.dtype) for s in mine]
        made = [PipelineStage(part, s, stages, device) for part, s in zip(self.parts, mine)]
        if turns and device.type == "cpu":
            for stage in made:  # gloo cannot send to itself, and needs no handshake
                stage._get_init_p2p_neighbors_ops = lambda: []
        self.schedule = get_schedule_class(system)(made[0] if len(made) == 1 else made, microbatches, loss_fn=loss_of)
        self.begins, self.ends = 0 in mine, stages - 1 in mine

    def run(self, step):
        x, y = (t.to(self.device) for t in batch_of(self.sizes, step, slice(None)))
        losses = []
        self.schedule.step(*([x] if self.begins else []), **(dict(target=y, losses=losses) if self.ends else {}))
        return sum(loss.detach() for loss in losses) / len(losses) if self.ends else None


def main():
    path, system, microbatches, steps, kind = sys.argv[1:]
    rank = of_environment("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    world = of_environment("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    device = torch.device(kind)
    if kind == "cuda":
        local = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("SLURM_LOCALID", rank))))
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    sizes = Sizes(pathlib.Path(path))
    trainer = (Replicas if system in ("ddp", "fsdp2") else Pipeline)(sizes, system, int(microbatches), device)
    parameters = [p for part in trainer.parts for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True, **ADAMW)
    losses, seconds = [], []
    for step in range(int(steps)):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = trainer.run(step)
        optimizer.step()
        if kind == "cuda":
            torch.cuda.synchronize()
        mine = (None if loss is None else float(loss), time.perf_counter() - start)
        every = [None] * world
        dist.all_gather_object(every, mine)
        known = [loss for loss, _ in every if loss is not None]
        losses.append(sum(known) / len(known))
        seconds.append(max(taken for _, taken in every))
    peaks = [None] * world
    dist.all_gather_object(peaks, torch.cuda.max_memory_allocated() if kind == "cuda" else 0)
    if rank == 0:
        print(json.dumps({"losses": losses, "seconds": seconds, "peak_bytes": max(peaks)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
