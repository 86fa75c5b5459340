"""Samples of files in Python; batches that are fetched ahead; losses of configurations that leave targets out."""
import array
import itertools
import json
import os
import random
import subprocess
import threading

import pytest
import torch

import piper
import small

PROGRAM = os.environ.get("PIPER_PROGRAM")


def write_folder(folder, documents, counted=None):
    """As docs/data.md describes it."""
    folder.mkdir()
    tokens, ends = [token for document in documents for token in document], list(itertools.accumulate(map(len, documents)))
    (folder / "00000.tokens").write_bytes(array.array("H", tokens).tobytes())
    (folder / "00000.documents").write_bytes(array.array("Q", ends).tobytes())
    if counted is not None:
        (folder / "00000.loss").write_bytes(bytes(counted))
    (folder / "data.json").write_text(json.dumps({
        "format": "piper-data", "version": 1, "dtype": "uint16", "loss": "all" if counted is None else "completions",
        "shards": [{"name": "00000", "tokens": len(tokens), "documents": len(documents)}]}))


def test_labels_are_those_of_transformers(tmp_path):
    write_folder(tmp_path / "data", [[1, 2, 3], [4, 5, 6, 7, 8]], [0, 1, 1, 0, 0, 1, 1, 1])
    samples = piper.Samples(tmp_path / "data", sequence=4, batch=2, packing="none", loss="completions", shuffle="none")
    batch = next(iter(samples))
    assert batch["input_ids"].tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert batch["labels"].tolist() == [[-100, 2, 3, -100], [-100, -100, 6, 7]]
    tokens, targets = samples.at(0)
    assert targets.tolist() == [[2, 3, -100, -100], [-100, 6, 7, 8]]


def test_documents_that_do_not_see_each_other(tmp_path):
    """Each has the loss that it has alone, in a model of transformers that is told the places in documents."""
    transformers = pytest.importorskip("transformers")
    import language_models

    generator = random.Random(0)
    documents = [[generator.randrange(1, 32) for _ in range(generator.randrange(2, 9))] for _ in range(40)]
    write_folder(tmp_path / "data", documents)
    samples = piper.Samples(tmp_path / "data", sequence=12, batch=8, attention="document", shuffle="none")
    batch = next(iter(samples))
    firsts = [place == 0 for row in batch["position_ids"].tolist() for place in row]
    assert 8 < sum(firsts) < 8 * 6 and batch["labels"][batch["position_ids"] == 0].eq(-100).all()

    model = language_models.build(transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=4,
                                                           num_attention_heads=2, max_position_embeddings=16), torch.float64)
    total, counted = 0.0, 0
    for ids, places in zip(batch["input_ids"], batch["position_ids"]):
        begins = [at for at in range(12) if places[at] == 0] + [12]
        for begin, end in zip(begins, begins[1:]):
            if end - begin > 1:
                alone = ids[None, begin:end]
                total += model(input_ids=alone, labels=alone, use_cache=False).loss.item() * (end - begin - 1)
                counted += end - begin - 1
    together = model(input_ids=batch["input_ids"], labels=batch["labels"], use_cache=False).loss.item()
    assert together != pytest.approx(total / counted, rel=1e-5)
    integration = pytest.importorskip("piper.integrations.transformers")
    integration.use(model)
    integration.annotate(model)
    graph = piper.capture(model, batch, loss=lambda model, batch: model(**batch, use_cache=False).loss)
    with piper.Trainer(graph, piper.schedules.one_f_one_b(ranks=2, microbatches=2, replicas=2, zero=2)) as trainer:
        assert trainer.step(batch).loss == pytest.approx(total / counted, rel=1e-6)  # transformers takes logits as float32


def test_batches_of_any_size_are_the_same_samples(tmp_path):
    (tmp_path / "a.bin").write_bytes(array.array("H", range(400)).tobytes())
    (tmp_path / "b.bin").write_bytes(array.array("H", range(1000, 1100)).tobytes())
    sources = [piper.Source(tmp_path / "a.bin", 3), piper.Source([tmp_path / "b.bin"])]

    def rows(batch, count, begin=0):
        samples = piper.Samples(sources, sequence=7, batch=batch, seed=5)
        samples.load_state_dict({"samples": begin})
        return [row for of in itertools.islice(samples, count // batch) for row in of["input_ids"].tolist()]

    assert rows(1, 120) == rows(12, 120) and rows(4, 60, 60) == rows(1, 120)[60:]
    assert sum(row[0] >= 1000 for row in rows(1, 120)) == 30


def test_wrong_arguments(tmp_path):
    write_folder(tmp_path / "data", [[1, 2, 3]])
    good = dict(sequence=2, batch=1)
    for wrong, code in (({"packing": "yes"}, "E105"), ({"attention": "none"}, "E105"), ({"shuffle": 0}, "E105"), ({"sequence": 0}, "E105"), ({"sequence": 5}, "E701"),
                        ({"vocabulary": 3}, "E702"), ({"loss": "completions"}, "E111")):
        with pytest.raises(piper.Error) as refused:
            piper.Samples(tmp_path / "data", **{**good, **wrong})
        assert refused.value.code == code, wrong
    with pytest.raises(piper.Error) as refused:
        piper.Samples(tmp_path / "nothing", **good)
    assert refused.value.code == "E108"


# ---- fetched ahead


def test_fetches_ahead_and_not_further():
    fetched, enough = [], threading.Event()

    def batches():
        for i in range(100):
            fetched.append(i)
            if i == 3:
                enough.set()
            yield i

    with piper.FetchAhead(batches(), ahead=2) as ahead:
        assert next(ahead) == 0
        assert enough.wait(60)  # 1 and 2 wait, and 3 was fetched for the next place
        assert len(fetched) == 4
        assert list(itertools.islice(ahead, 3)) == [1, 2, 3]
    assert len(fetched) < 100 and list(ahead) == []


def test_failures_come_after_the_batches_before():
    def batches():
        yield 1
        raise OSError("the disk is gone")

    with piper.FetchAhead(batches()) as ahead:
        assert next(ahead) == 1
        with pytest.raises(OSError, match="the disk is gone"):
            next(ahead)
        assert list(ahead) == []
    with pytest.raises(piper.Error, match="batches are an iterable, not int"):
        piper.FetchAhead(3)


class Stateful:
    """As torchdata's StatefulDataLoader."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        while self.next < 10:
            self.next += 1
            yield self.next - 1

    def state_dict(self):
        return {"next": self.next}


def test_the_state_is_that_of_what_was_given_out():
    loader = Stateful()
    with piper.FetchAhead(loader, ahead=4) as ahead:
        assert ahead.state_dict() == {"next": 0}
        assert list(itertools.islice(ahead, 3)) == [0, 1, 2]
        assert ahead.state_dict() == {"next": 3}  # although more were fetched
    with piper.FetchAhead([1, 2]) as ahead, pytest.raises(piper.Error, match="has no state_dict"):
        ahead.state_dict()


@pytest.mark.parametrize("workers", [0, 1])
def test_torchdata_itself(workers):
    """A run that stops after a batch goes on with the next, although later ones had been fetched."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader():
        return stateful(list(range(24)), batch_size=2, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(1))

    whole = [batch.tolist() for batch in loader()]
    with piper.FetchAhead(loader(), ahead=4) as ahead:
        first = [batch.tolist() for batch in itertools.islice(ahead, 5)]
        state = ahead.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    with piper.FetchAhead(resumed, ahead=4) as ahead:
        assert first + [batch.tolist() for batch in ahead] == whole


def test_trains_on_a_data_loader():
    batches = [small.batch(seed=seed) for seed in range(4)]
    schedule = piper.schedules.one_f_one_b(ranks=2, microbatches=2)

    def graph():
        torch.manual_seed(0)
        model = small.Stack()
        piper.annotate_modules(model, {"layer": "layers.*"})
        return piper.capture(model, batches[0], loss=small.loss)

    with piper.Trainer(graph(), schedule) as trainer:
        expected = [trainer.step(batch).loss for batch in batches]
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    with piper.Trainer(graph(), schedule) as trainer:
        assert [result.loss for result in trainer.train(loader)] == expected
    with piper.Trainer(graph(), schedule) as trainer:
        for result in trainer.train(itertools.cycle(batches), steps=3):
            if trainer.steps == 2:
                break
        assert trainer.steps == 2 and result.loss == expected[1]


# ---- configurations

CONFIG = """
[model]
name = "x"
arch = "llama3"
layers = 4
hidden = 16
heads = 2
ffn = 24
vocab = 32
[step]
batch = 8
sequence = 6
weights = "float64"
gradients = "float64"
[optimizer]
learning_rate = 1e-2
[data]
kind = "tokens"
paths = "data"
packing = "none"
loss = "completions"
[run]
steps = 3
metrics = "{name}.jsonl"
checkpoints = "{name}"
checkpoint_every = 1
"""
SCHEDULES = {
    "1f1b x dp 2 x zero 2": "mesh(pp=2, dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, along=dp, zero=2)\n"
                            "use 1f1b(stages=stage, microbatches=mb)\n",
    "dualpipev": "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4, shape=v)\nuse dualpipev(stages=stage, microbatches=mb)\n",
    "tp 2": "mesh(tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nshard({layer=*}, along=tp)\n",
}


@pytest.mark.skipif(not PROGRAM, reason="PIPER_PROGRAM does not say where the program is")
def test_losses_count_what_is_not_left_out(tmp_path):
    transformers = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(1)
    documents = [torch.randint(1, 32, (int(length),), generator=generator).tolist() for length in torch.randint(2, 10, (60,), generator=generator)]
    write_folder(tmp_path / "data", documents, [int(i % 3 > 0 or i % 7 == 0) for i in range(sum(map(len, documents)))])

    def losses(name, schedule):
        (tmp_path / f"{name}.toml").write_text(CONFIG.format(name=name))
        words = [PROGRAM, "train", f"{name}.toml"]
        if schedule:
            (tmp_path / f"{name}.piper").write_text(schedule)
            words += ["--schedule", f"{name}.piper"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        return [row["loss"] for row in rows if "step" in row]

    samples = piper.Samples(tmp_path / "data", sequence=6, batch=8, packing="none", loss="completions")
    one = losses("one", None)
    for step in (1, 2):  # with the weights before it, in plain PyTorch
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f"one/step-{step:08}", dtype=torch.float64)
        tokens, targets = samples.at(8 * step)
        counted = (targets != -100).sum(1)
        assert counted.min() < counted.max(), "samples count differently"
        with torch.no_grad():
            logits = model(tokens).logits
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
        assert one[step] == pytest.approx(expected, rel=1e-6)  # rotary positions are float32 there
    for number, (what, schedule) in enumerate(SCHEDULES.items()):
        assert losses(f"schedule{number}", schedule) == pytest.approx(one, rel=1e-11), what
