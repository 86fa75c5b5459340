#!/usr/bin/env python3
"""Steps as the simulator predicts them with costs from `piper profile --on cuda`, beside steps of `piper train --on cuda`.

    python bench/gpu/prediction_bench.py build/release/piper [--steps 12] [--timelines 1f1b,zb-h1,dualpipev] [--graphs chunk]

Four devices share the GPU. What the GPU does with several computations at once (`together`) is measured under the first timeline only, and used
for all: so the others are predicted with nothing that was measured in a step of theirs but computations alone. The last column is the prediction with
what was measured under the timeline itself.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

SHAPES = {  # hidden, layers, heads, feed-forward, tokens, samples of a microbatch
    "S": (256, 8, 4, 1024, 256, 1),
    "M": (1024, 16, 16, 4096, 1024, 4),
    "L": (2048, 8, 16, 8192, 2048, 2),
}
VOCABULARY, MICROBATCHES, DEVICES = 8192, 8, 4
PLACES = {"dualpipev": f"stages={2 * DEVICES}, shape=v", "zb-v": f"stages={2 * DEVICES}, shape=v"}


def write_inputs(folder, shape, timeline):
    hidden, layers, heads, width, tokens, samples = SHAPES[shape]
    (folder / "model.toml").write_text(
        f'[model]\nname = "bench"\narch = "llama3"\nhidden = {hidden}\nlayers = {layers}\nheads = {heads}\nffn = {width}\n'
        f'vocab = {VOCABULARY}\nseq = {tokens}\n[step]\nbatch = {samples * MICROBATCHES}\nweights = "bfloat16"\n'
        '[data]\nkind = "synthetic"\n[run]\nschedule = "s.piper"\n'
    )
    place = PLACES.get(timeline, f"stages={DEVICES}")
    (folder / "s.piper").write_text(
        f"mesh(pp={DEVICES})\nsplit(batch, parts={MICROBATCHES}, as=mb)\nplace({{}}, along=pp, {place}, transfers=p2p)\n"
        f"use {timeline}(stages=stage, microbatches=mb)\n"
    )


def run(*command):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def predicted_seconds(piper, folder, cluster):
    inputs = [folder / "profile/model.piper", folder / "s.piper", "--costs", folder / "profile/costs.txt", "--cluster", cluster]
    return json.loads(run(piper, "simulate", *inputs, "--format", "json"))["seconds"]


def measured_seconds(piper, folder, cluster, graphs, steps, on):
    (folder / "m.jsonl").unlink(missing_ok=True)
    run(piper, "train", folder / "model.toml", "--on", on, "--graphs", graphs, "--steps", steps, "--metrics", folder / "m.jsonl",
        "--costs", folder / "profile/costs.txt", "--cluster", cluster)
    lines = [json.loads(line) for line in (folder / "m.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if "seconds" in line][steps // 3 :]
    return statistics.median(seconds), min(seconds), max(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("piper")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--shape", default="M")
    parser.add_argument("--timelines", default="1f1b,zb-h1,dualpipev")
    parser.add_argument("--graphs", default="chunk")
    parser.add_argument("--on", default="cuda")
    options = parser.parse_args()
    together = None
    print(f"{'timeline':<12} {'predicted':>12} {'measured':>12} {'least .. most':>20} {'ratio':>7} {'together':>9} {'own ratio':>10}")
    for timeline in options.timelines.split(","):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_inputs(folder, options.shape, timeline)
            run(options.piper, "profile", folder / "model.toml", "--on", options.on, "--graphs", options.graphs, "-o", folder / "profile")
            own = folder / "profile/cluster.toml"
            here = re.search(r"^together = .*$", own.read_text(), re.M)
            here = here.group() if here else ""
            together = together or here
            first = folder / "cluster.toml"
            first.write_text(own.read_text().replace(here, together) if here else own.read_text())
            measured, least, most = measured_seconds(options.piper, folder, first, options.graphs, options.steps, options.on)
            predicted, with_own = predicted_seconds(options.piper, folder, first), predicted_seconds(options.piper, folder, own)
            print(
                f"{timeline:<12} {predicted * 1e3:>9.2f} ms {measured * 1e3:>9.2f} ms {least * 1e3:>9.2f} .. {most * 1e3:<7.2f}"
                f" {predicted / measured:>7.3f} {here.split(' ')[-1]:>9} {with_own / measured:>10.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
