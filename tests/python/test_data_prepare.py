"""`piper data prepare`: tokens of text of all kinds, the same bytes however they are made; `piper data verify`."""
import array
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = os.environ.get("PIPER_PROGRAM")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="PIPER_PROGRAM does not say where the program is")
ROOT = pathlib.Path(__file__).parents[2] / "src/train/data"
ANSWERING = "import sys; sys.path.insert(0, '.'); from prepare.answering import answer_all; answer_all(sys.argv[1])"
TEXTS = [f"Document {i} says: the quick brown fox jumps over {'lazy dogs ' * (i % 5)}and is number {i * i}." for i in range(40)]
TEMPLATE = ("{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder as transformers saves it."""
    import tokenizers

    folder = tmp_path_factory.mktemp("tokenizer")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(TEXTS, trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE,
                                                              "tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def piper(folder, *words):
    done = subprocess.run([PROGRAM, "data", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def prepare(folder, tokenizer, *words):
    code, out, problem = piper(folder, "prepare", "--tokenizer", tokenizer, "-o", "data", *words)
    assert code == 0, problem
    return out


def refusal(folder, tokenizer, *words):
    out = f"refused{len(list(folder.glob('refused*')))}"
    code, said, problem = piper(folder, "prepare", "--tokenizer", tokenizer, "-o", out, *words)
    assert code == 1 and not (folder / out / "data.json").exists(), (code, said, problem)
    return problem


class Data:
    """A folder as docs/data.md describes it, read by that description."""

    def __init__(self, folder):
        self.description = json.loads((folder / "data.json").read_text())
        code, self.tokens, self.documents, self.counted = {"uint16": "H", "uint32": "I"}[self.description["dtype"]], [], [], []
        for shard in self.description["shards"]:
            def read(what, of):
                numbers = array.array(of)
                numbers.frombytes((folder / f"{shard['name']}.{what}").read_bytes())
                return list(numbers)

            tokens, begin = read("tokens", code), 0
            self.tokens += tokens
            self.counted += read("loss", "B") if self.description["loss"] == "completions" else []
            for end in read("documents", "Q"):
                self.documents.append(tokens[begin:end])
                begin = end


def encode(tokenizer, text):
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json")).encode(text, add_special_tokens=False).ids


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def test_text_is_one_document_a_file(tmp_path, tokenizer):
    (tmp_path / "in").mkdir()
    for i, text in enumerate(TEXTS):
        (tmp_path / f"in/{i:02}.txt").write_text(text)
    (tmp_path / "in/99.txt").write_text("")
    out = prepare(tmp_path, tokenizer, "in")
    assert "1 empty documents are left out, the first is in/99.txt" in out
    data = Data(tmp_path / "data")
    assert data.documents == [encode(tokenizer, text) + [0] for text in TEXTS]
    assert data.description["end"] == 0 and data.description["vocabulary"] == 400 and data.description["loss"] == "all"
    assert piper(tmp_path, "verify", "data")[0] == 0


def test_all_formats_give_the_same_tokens(tmp_path, tokenizer):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow need pyarrow; scripts/setup --tests installs it")
    import pyarrow.parquet

    rows = pyarrow.table({"number": list(range(len(TEXTS))), "text": TEXTS})
    pyarrow.parquet.write_table(rows, tmp_path / "x.parquet", row_group_size=7)
    dataset = tmp_path / "dataset"  # as `save_to_disk` of datasets writes it
    dataset.mkdir()
    with pyarrow.ipc.new_stream(dataset / "data-00000-of-00001.arrow", rows.schema) as stream:
        stream.write_table(rows, max_chunksize=9)
    (dataset / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}))
    (dataset / "dataset_info.json").write_text("{}")
    lines(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])
    expected = [encode(tokenizer, text) + [0] for text in TEXTS]
    for path in ("x.parquet", "dataset", "x.jsonl"):
        out = f"data-{path}"
        code, _, problem = piper(tmp_path, "prepare", path, "--tokenizer", tokenizer, "-o", out, "--shard-size", "1000B")
        assert code == 0, problem
        data = Data(tmp_path / out)
        assert data.documents == expected, path
        assert len(data.description["shards"]) > 2, path
    assert 'there is no field "content"; there are number, text' in refusal(tmp_path, tokenizer, "x.parquet", "--field", "content")
    splits = tmp_path / "splits"
    splits.mkdir()
    (splits / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert "several splits: train, test" in refusal(tmp_path, tokenizer, "splits")


def test_a_long_text_goes_on_in_the_next_shard(tmp_path, tokenizer):
    text = "".join(text + "\n" for text in TEXTS)
    (tmp_path / "long.txt").write_text(text)
    prepare(tmp_path, tokenizer, "long.txt", "--shard-size", "500B")
    data = Data(tmp_path / "data")
    assert len(data.description["shards"]) > 3 and data.description["documents"] == 1
    assert data.tokens == encode(tokenizer, text) + [0]


def test_bytes_do_not_depend_on_processes(tmp_path, tokenizer):
    lines(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])
    made = []
    for processes in (1, 3):
        out = f"data{processes}"
        assert piper(tmp_path, "prepare", "x.jsonl", "--tokenizer", tokenizer, "-o", out, "--shard-size", "300B", "--processes", processes)[0] == 0
        made.append(contents(tmp_path / out))
    assert made[0] == made[1] and len(made[0]) > 20


def test_a_run_that_is_killed_goes_on(tmp_path, tokenizer):
    lines(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS * 100])
    words = ["prepare", "x.jsonl", "--tokenizer", str(tokenizer), "--shard-size", "2000B", "--processes", "2"]
    code, _, problem = piper(tmp_path, *words, "-o", "whole")
    assert code == 0, problem
    shards = len(json.loads((tmp_path / "whole/data.json").read_text())["shards"])
    killed = 0
    for wanted in (3, shards // 2):  # when so many shards are there
        running = subprocess.Popen([PROGRAM, "data", *words, "-o", "data"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        while running.poll() is None and len(list((tmp_path / "data/progress").glob("[0-9]*.json"))) < wanted:
            time.sleep(0.001)
        running.send_signal(signal.SIGKILL)
        killed += running.wait() == -signal.SIGKILL
        if not (tmp_path / "data/data.json").exists():
            assert 'error[E703]: the folder is not complete' in piper(tmp_path, "verify", "data")[2]
    code, _, problem = piper(tmp_path, *words, "-o", "data")
    assert code == 0, problem
    assert killed == 0 or "shards are there already" in problem
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


def test_what_is_damaged_is_found_and_made_again(tmp_path, tokenizer):
    lines(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])
    words = ["x.jsonl", "--shard-size", "1000B"]
    prepare(tmp_path, tokenizer, *words)
    before = contents(tmp_path / "data")
    file = tmp_path / "data/00001.tokens"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    code, _, problem = piper(tmp_path, "verify", "data")
    assert code == 1 and problem.startswith("data/00001.tokens: error[E703]: the file is not what was written: its checksum differs\n")
    prepare(tmp_path, tokenizer, *words)
    assert contents(tmp_path / "data") == before
    assert "made from other files" in piper(tmp_path, "prepare", *words, "--end", "none", "--tokenizer", tokenizer, "-o", "data")[2]


def test_completions(tmp_path, tokenizer):
    rows = [{"prompt": "Question: what jumps?\nAnswer:", "completion": " the quick brown fox"}, {"prompt": "", "completion": "dogs"}]
    lines(tmp_path / "x.jsonl", rows)
    out = prepare(tmp_path, tokenizer, "x.jsonl", "--as", "completions")
    data = Data(tmp_path / "data")
    assert data.description["loss"] == "completions" and "counted by the loss" in out
    at = 0
    for row, document in zip(rows, data.documents):
        prompt, answer = encode(tokenizer, row["prompt"]), encode(tokenizer, row["completion"])
        assert document == prompt + answer + [0]  # this prompt ends where a token does
        assert data.counted[at:at + len(document)] == [0] * len(prompt) + [1] * (len(answer) + 1)
        at += len(document)


def test_chats_are_those_of_transformers(tmp_path, tokenizer):
    transformers = pytest.importorskip("transformers")
    chats = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who jumps?"}, {"role": "assistant", "content": "The fox."},
              {"role": "user", "content": "Over?"}, {"role": "assistant", "content": "Dogs."}],
             [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello, quick fox"}]]
    lines(tmp_path / "x.jsonl", [{"messages": chat} for chat in chats])
    prepare(tmp_path, tokenizer, "x.jsonl", "--as", "chat")
    data, theirs = Data(tmp_path / "data"), transformers.AutoTokenizer.from_pretrained(tokenizer)
    at = 0
    for chat, document in zip(chats, data.documents):
        assert document == theirs.apply_chat_template(chat, tokenize=True, return_dict=False)  # which ends with the token that ends documents
        counted = [token for token, counts in zip(document, data.counted[at:at + len(document)]) if counts]
        assert theirs.decode(counted) == "".join(message["content"] + "<|end|>" for message in chat if message["role"] == "assistant")
        at += len(document)


def test_sentencepiece(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="models of SentencePiece need sentencepiece; scripts/setup --tests installs it")
    (tmp_path / "text").write_text("\n".join(TEXTS * 5))
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "spm"), vocab_size=70, minloglevel=2)
    lines(tmp_path / "x.jsonl", [{"prompt": "a café, the quick", "completion": " brown fox"}])
    prepare(tmp_path, tmp_path / "spm.model", "x.jsonl", "--as", "completions")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    data = Data(tmp_path / "data")
    assert data.documents == [processor.encode("a café, the quick brown fox") + [processor.eos_id()]]
    asked = subprocess.run([sys.executable, "-c", ANSWERING, str(tmp_path / "spm.model")], input=json.dumps({"encode": ["a café"]}) + "\n" + json.dumps(
        {"decode": [processor.encode("the quick")]}) + "\n", cwd=ROOT, capture_output=True, text=True)
    assert list(map(json.loads, asked.stdout.splitlines())) == [{"end": processor.eos_id()}, {"found": [processor.encode("a café")]}, {"found": ["the quick"]}]
    counted = [token for token, counts in zip(data.tokens, data.counted) if counts]
    assert processor.decode(counted[:-1]) == "brown fox" and counted[-1] == processor.eos_id()


SPEAKING = """
[model]
name = "small"
arch = "llama3"
hidden = 32
layers = 2
heads = 2
ffn = 64
vocab = 400
[step]
batch = 4
sequence = 16
weights = "float32"
[optimizer]
learning_rate = 0.01
[data]
kind = "tokens"
paths = "data"
[evaluation]
prompts = ["Document 3", "the quick brown", "lazy"]
max_new_tokens = 5
tokenizer = "{tokenizer}"
[run]
steps = 60
metrics = "metrics.jsonl"
"""


def test_prompts_are_continued_by_the_tokenizer_of_the_data(tmp_path, tokenizer):
    lines(tmp_path / "x.jsonl", [{"text": text} for text in TEXTS])
    prepare(tmp_path, tokenizer, "x.jsonl")

    def train(tokenizer, *changes):
        text = SPEAKING.format(tokenizer=tokenizer)
        for old, new in changes:
            text = text.replace(old, new)
        (tmp_path / "run.toml").write_text(text)
        return subprocess.run([PROGRAM, "train", "run.toml"], cwd=tmp_path, capture_output=True, text=True)

    done = train(tokenizer)
    assert done.returncode == 0, done.stderr
    samples = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["evaluation"]["samples"]
    assert [sample["prompt"] for sample in samples] == ["Document 3", "the quick brown", "lazy"]
    assert samples[1]["text"].startswith(" fox jumps over")  # learned by heart
    assert f'  "the quick brown" -> "{samples[1]["text"]}"\n' in done.stderr
    for changes, problem in (((('400', '300'),), "error[E702]"), ((("lazy", "lazy dogs, " * 20),), "error[E111]: the prompt has")):
        done = train(tokenizer, *changes)
        assert done.returncode == 1 and problem in done.stderr, done.stderr
    done = train("no_such_folder")
    assert done.returncode == 1 and "error[E705]" in done.stderr and "the tokenizer is not there" in done.stderr
    assert 'tokenizer = "no_such_folder"' in done.stderr


def test_refusals(tmp_path, tokenizer, golden):
    good = '{"text": "a"}\n'
    (tmp_path / "bad.jsonl").write_text(good * 2 + '{"text": "a" "b"}\n' + good)
    (tmp_path / "field.jsonl").write_text(good + '{"txt": "b"}\n')
    (tmp_path / "number.jsonl").write_text(good + '{"text": 3}\n')
    (tmp_path / "list.jsonl").write_text('["text"]\n')
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n' * 3)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    (tmp_path / "completion.jsonl").write_text('{"prompt": "a", "completion": ""}\n')
    cases = [["bad.jsonl"], ["field.jsonl"], ["number.jsonl"], ["list.jsonl"], ["latin.txt"],
             ["chat.jsonl", "--as", "chat"], ["completion.jsonl", "--as", "completions"], ["latin.txt", "--as", "chat"],
             ["field.jsonl", "--end", "<|stop|>"], ["nothing.jsonl"]]
    golden("E705_prepare.txt", "\n".join(f"$ piper data prepare {' '.join(case)}\n{refusal(tmp_path, tokenizer, *case)}" for case in cases))
    assert "error[E701]: all documents are empty" in refusal(tmp_path, tokenizer, "empty.jsonl")
    assert "the tokenizer is not there" in refusal(tmp_path, "no_such_folder", "field.jsonl")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("")
    assert "is not empty, and its files are not data" in piper(tmp_path, "prepare", "bad.jsonl", "--tokenizer", tokenizer, "-o", "mine")[2]
    # lines are counted from the beginning of the file, whatever shard they are in; a folder in which something is complete is kept
    shards = ["prepare", "bad.jsonl", "--tokenizer", tokenizer, "-o", "shards", "--shard-size", "14B"]
    assert piper(tmp_path, *shards)[2].startswith("bad.jsonl:3: error[E705]: the line is not JSON")
    assert "made from other files" in piper(tmp_path, *shards, "--end", "none")[2]
    # one in which nothing is complete is begun anew
    begun = ["prepare", "--tokenizer", tokenizer, "-o", "begun"]
    assert piper(tmp_path, *begun, "bad.jsonl")[0] == 1 and (tmp_path / "begun/progress/plan.json").exists()
    (tmp_path / "bad.jsonl").write_text(good)
    assert piper(tmp_path, *begun, "bad.jsonl")[0] == 0
