"""Measures kernels on one GPU and prints them as a table for `piper calibrate`: matrix products of the shapes that decoders have, and operators
that are bound by memory.

usage: python bench/gpu/kernel_table.py > kernels.csv; piper calibrate kernels.csv --cluster h200 -o mine.toml
Each is launched many times in a row, on random numbers, with its inputs taken in turn from more memory than the cache holds; the time of one is
the median of several such runs, by the GPU's clock.
"""
import itertools
import statistics

import torch

RUNS, CACHE = 7, 256 << 20  # bytes that no cache holds


def seconds(launch, inputs):
    """Of one launch, which is given each of the inputs in turn."""
    taken = itertools.cycle(inputs)
    for _ in range(5):
        launch(next(taken))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    launch(next(taken))
    end.record()
    end.synchronize()
    launches = max(10, min(500, int(20 / max(start.elapsed_time(end), 1e-3))))
    measured = []
    for _ in range(RUNS):
        start.record()
        for _ in range(launches):
            launch(next(taken))
        end.record()
        end.synchronize()
        measured.append(start.elapsed_time(end) / launches / 1e3)
    return statistics.median(measured)


def sets(bytes_of_one, make):
    return [make() for _ in range(max(1, min(64, CACHE // bytes_of_one)))]


def products():
    for tokens, hidden in itertools.product((512, 4096, 16384), (1024, 2048, 4096, 8192)):
        for columns in (hidden, 3 * hidden, 4 * hidden):
            yield tokens, columns, hidden  # forward
            yield tokens, hidden, columns  # and the gradient of what goes in
            yield columns, hidden, tokens  # and of the weight
    yield from ((4096, 32768, 2048), (4096, 128256, 2048))


def main():
    print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bfloat16")
    print("set,dtype,product,bytes,seconds")
    for rows, columns, depth in dict.fromkeys(products()):
        make = lambda: (torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16), torch.randn(depth, columns, device="cuda", dtype=torch.bfloat16))
        took = seconds(lambda given: torch.mm(*given), sets(2 * (rows * depth + depth * columns), make))
        print(f"products,bfloat16,{rows}x{columns}x{depth},,{took:.4g}", flush=True)
    for numbers in (1 << power for power in range(10, 30, 2)):
        make = lambda: torch.randn(numbers, device="cuda", dtype=torch.bfloat16)
        took = seconds(lambda given: torch.mul(given, 2), sets(4 * numbers, make))
        print(f"streamed,bfloat16,,{4 * numbers},{took:.4g}", flush=True)


if __name__ == "__main__":
    main()
