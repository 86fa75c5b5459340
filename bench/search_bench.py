#!/usr/bin/env python3
"""What `piper search` finds in a budget: prints a table.

A budget counts work, so that a busy machine finds the same; CPU seconds say how long two free cores take at least.
"""
import argparse
import json
import os
import subprocess
import tempfile

# model, devices, batch, sequence, budget in seconds
CASES = [
    ("Llama-3-8B", 64, 256, 4096, 30),
    ("Qwen3-30B-A3B", 64, 256, 4096, 30),
    ("Llama-3-70B", 512, 1024, 4096, 60),
    ("DeepSeek-V3", 2048, 15360, 4096, 120),
]


def measure(piper, model, devices, batch, sequence, budget):
    """CPU seconds, bytes of memory, and the answer."""
    command = [piper, "search", f"analytic:{model}", "--cluster", "h100", "--devices", str(devices), "--batch",
               str(batch), "--sequence", str(sequence), "--budget", f"{budget}s", "--time", "1000000s", "--format", "json"]
    with tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(command, stdout=answer)
        _, _, usage = os.wait4(process.pid, 0)
        answer.seek(0)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, json.load(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("piper", help="the program")
    parser.add_argument("models", nargs="*", help="some of the models; otherwise all")
    parser.add_argument("--budget", type=int, help="seconds, instead of each model's own")
    options = parser.parse_args()
    print("| model | GPUs | budget | CPU s | memory | candidates | simulated | end | step | MFU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for model, devices, batch, sequence, budget in CASES:
        if options.models and model not in options.models:
            continue
        budget = options.budget or budget
        cpu, memory, found = measure(options.piper, model, devices, batch, sequence, budget)
        best = found.get("best")
        answer = f"{best['seconds']:.3g} s | {100 * best['mfu']:.1f} %" if best else "nothing fits | "
        print(f"| {model} | {devices} | {budget} s | {cpu:.1f} | {memory / 1e6:.0f} MB | {found['candidates']} | "
              f"{found['simulated']} | {found['end']} | {answer} |", flush=True)


if __name__ == "__main__":
    main()
