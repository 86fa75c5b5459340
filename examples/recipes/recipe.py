"""What the recipes have in common: commands that are printed and run, tokenizers, comparison with transformers."""
import argparse
import array
import itertools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(os.environ.get("PIPER_PROGRAM") or shutil.which("piper") or ROOT / "build/release/piper")


def piper(*words, folder):
    """Runs the program in a folder, as you would in a shell."""
    words = [str(word) for word in words]
    print("$ piper", " ".join(words), flush=True)
    subprocess.run([PROGRAM, *words], cwd=folder, check=True)


def train_tokenizer(files, size, folder, special=("<|end|>", "<|user|>", "<|assistant|>")):
    """Byte-level BPE, trained on files, in a folder as transformers saves it."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train([str(file) for file in files], tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": special[0],
        "chat_template": "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
                         "{% if add_generation_prompt %}<|assistant|>{% endif %}"}))
    print(f"tokenizer: {made.get_vocab_size()} tokens")
    return made.get_vocab_size()


def metrics(path):
    """The steps of a run, by number."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return {row["step"]: row for row in rows if "step" in row}


def loss_in_transformers(folder, samples, first):
    """Of an exported model, on the samples of a step: what the next step of the run must report."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens, targets = samples.at(first)
    with torch.no_grad():
        logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


SCORES = """
[step]
batch = 1
sequence = {sequence}
weights = "float32"

[optimizer]
learning_rate = 1e-30   # nothing changes

[data]
kind = "tokens"
paths = "scored"
packing = "none"
loss = "completions"
shuffle = "none"

[run]
steps = {count}
"""


def must_have_the_logits_of_transformers(folder, model, tokens, out, count=64):
    """Opens an exported model in transformers: its scores must be those that the program computes with these weights. `model`: the section
    [model] of a configuration. The program prints losses: of samples that are the beginning of a text and one more token, the only one that
    counts, they are the scores of these tokens (log-probabilities: logits but for a constant)."""
    import torch
    import transformers

    length, vocabulary = tokens.numel(), tomllib.loads(model)["model"]["vocab"]
    generator = torch.Generator().manual_seed(0)
    asked = [(1 + i * 7 % length, int(torch.randint(vocabulary, (1,), generator=generator))) for i in range(count)]
    write_data(out / "scored", [[*tokens[:begin].tolist(), token] for begin, token in asked], lambda document: [0] * (len(document) - 1) + [1])
    (out / "scores.toml").write_text(model + SCORES.format(sequence=length, count=count))
    (out / "scores.jsonl").unlink(missing_ok=True)
    piper("train", "scores.toml", "--init", folder, "--metrics", "scores.jsonl", folder=out)
    here = torch.tensor([-row["loss"] for row in metrics(out / "scores.jsonl").values()])
    opened = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        scores = opened(tokens[None]).logits[0].log_softmax(-1)
    there = torch.stack([scores[begin - 1, token] for begin, token in asked])
    must_be_equal(f"{folder} in transformers: {count} scores", here, there)


def must_be_equal(what, here, there, tolerance=1e-5):
    """Logits, or what is made of them; relative to the largest."""
    difference = (here - there).abs().max().item()
    largest = max(there.abs().max().item(), 1.0)
    print(f"{what} differ by {difference:.2g}, the largest is {largest:.2g}")
    if not difference < tolerance * largest:
        sys.exit(f"{what}: they must not differ by more than {tolerance} of the largest")


def write_data(folder, documents, counted):
    """A data folder, as docs/data.md describes it. `counted`: of a document, 1 where the loss counts a token."""
    folder.mkdir(exist_ok=True)
    (folder / "00000.tokens").write_bytes(array.array("H", itertools.chain(*documents)).tobytes())
    (folder / "00000.documents").write_bytes(array.array("Q", itertools.accumulate(map(len, documents))).tobytes())
    (folder / "00000.loss").write_bytes(bytes(itertools.chain(*map(counted, documents))))
    (folder / "data.json").write_text(json.dumps({
        "format": "piper-data", "version": 1, "dtype": "uint16", "loss": "completions",
        "shards": [{"name": "00000", "tokens": sum(map(len, documents)), "documents": len(documents)}]}))


def model_of(config):
    """The section [model] of a configuration."""
    return config[:config.index("[step]")]


def report(steps):
    """Loss, speed."""
    first, last = steps[min(steps)], steps[max(steps)]
    speed = sorted(row["tokens_per_second"] for row in steps.values())[len(steps) // 2]
    print(f"loss {first['loss']:.3f} -> {last['loss']:.3f}, {speed:,.0f} tokens/s (median)")
    assert last["loss"] < first["loss"], "nothing was learned"


def must_be_close(what, a, b, relative=1e-4):
    print(f"{what}: {a:.6f} here, {b:.6f} in transformers")
    if abs(a - b) > relative * abs(b):
        sys.exit(f"{what} differs")


def follow(recipe, description, **options):
    """The recipe in the folder that the command line names, in its full or small form. `options`: further ones, which name files, with their
    help."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, required=True, help="folder of the run")
    arguments.add_argument("--small", action="store_true", help="seconds instead of minutes")
    for name, meaning in options.items():
        arguments.add_argument(f"--{name}", type=lambda path: Path(path).resolve(), help=meaning)
    given = arguments.parse_args()
    recipe(given.out.resolve(), given.small, **{name: getattr(given, name) for name in options})
