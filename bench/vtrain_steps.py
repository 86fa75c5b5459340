#!/usr/bin/env python3
"""Turns the measured steps of vTrain's validation set into a table for `piper calibrate`, with a model and a schedule for every row.

    bench/vtrain_steps.py FOLDER OUT     FOLDER has single_node.csv and multi_node.csv; OUT gets steps.csv, models/ and schedules/

What the publication says, and what Megatron-DeepSpeed does: 1F1B, layers recomputed, one all-reduce of all gradients behind the last
backward, tensor-parallel sums in line with the computations, a vocabulary of 51,200 that is divided too. Every device sends its share of
the activations to the next stage, which joins them: sequence=on says that. It also divides norms and residuals, which were not divided.
"""
import csv
import os
import sys

MODEL = """[model]
name = "{name}"
arch = "gpt"
hidden = {hidden}
layers = {layers}
heads = {heads}
ffn = {ffn}
vocab = 51200
seq = {sequence}

[step]
sequence = {sequence}
weights = "float16"
gradients = "float16"
master = "float32"
optimizer = "adamw"
"""


def model_of(row):
    name = f"gpt-{row['hidden']}-{row['heads']}-{row['layers']}-{row['sequence']}"
    return name, MODEL.format(name=name, ffn=4 * int(row["hidden"]), **row)


def schedule_of(row):
    pp, dp, tp = (int(row[key]) for key in ("pp", "dp", "tp"))
    microbatches = int(row["global_batch"]) // dp // int(row["micro_batch"])
    lines = [f"mesh(pp={pp}, dp={dp}, tp={tp})", f"split(batch, parts={microbatches}, as=mb)",
             f"place({{}}, along=pp, stages={pp}, transfers=p2p)", "replicate({}, along=dp, zero=0, bucket=1TB)"]
    if tp > 1:
        lines.append("shard({}, along=tp, vocabulary=on, sequence=on, stream=compute)")
    lines += ["recompute({layer=*})", "use 1f1b(stages=stage, microbatches=mb)"]
    return f"pp{pp}-dp{dp}-tp{tp}-mb{microbatches}", "\n".join(lines) + "\n"


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def main(folder, out):
    for part in ("models", "schedules"):
        os.makedirs(os.path.join(out, part), exist_ok=True)
    with open(os.path.join(out, "steps.csv"), "w", newline="") as file:
        steps = csv.writer(file, lineterminator="\n")
        steps.writerow(["set", "model", "schedule", "batch", "seconds"])
        for name in ("single node", "multi node"):
            with open(os.path.join(folder, name.replace(" ", "_") + ".csv")) as rows:
                for row in csv.DictReader(rows):
                    model, model_text = model_of(row)
                    schedule, schedule_text = schedule_of(row)
                    write(os.path.join(out, "models", model + ".toml"), model_text)
                    write(os.path.join(out, "schedules", schedule + ".piper"), schedule_text)
                    steps.writerow([name, f"models/{model}.toml", f"schedules/{schedule}.piper", row["global_batch"],
                                    f"{float(row['milliseconds']) / 1000:.7g}"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
