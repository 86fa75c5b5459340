"""Folders of tokens, as docs/data.md describes them.

A shard is three files: its tokens, where its documents end, and, where not all count, which tokens the loss counts. While a folder is being made,
`progress/` has the plan and a record of every shard that is complete; `data.json` is written last.
"""
import hashlib
import json
import os
import shutil
from array import array

from prepare.refusal import Refusal

CODES = {"uint16": "H", "uint32": "I", "uint64": "Q", "uint8": "B"}


def packed(numbers, dtype):
    """Little-endian bytes."""
    import sys

    out = array(CODES[dtype], numbers)
    if sys.byteorder == "big":
        out.byteswap()
    return out.tobytes()


def write_file(path, bytes):
    """All of it or nothing, whatever happens."""
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(bytes)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def write_json(path, value):
    write_file(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def file_sum(path):
    sum = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            sum.update(block)
    return sum.hexdigest()


class DataFolder:
    def __init__(self, path):
        self.path, self.progress = path, os.path.join(path, "progress")

    def file(self, name, what):
        return os.path.join(self.path, f"{name}.{what}")

    def begin(self, plan):
        """Resumes where a run with the same plan has stopped."""
        sum = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
        known = read_json(os.path.join(self.path, "data.json")) or read_json(os.path.join(self.progress, "plan.json"))
        if known and known["plan"] != sum and os.listdir(self.path) == ["progress"] and os.listdir(self.progress) == ["plan.json"]:
            known = None  # there is nothing of it
            os.remove(os.path.join(self.progress, "plan.json"))
            os.rmdir(self.progress)
        if known and known["plan"] != sum:
            raise Refusal("E705", self.path, "the folder was made from other files, with another tokenizer or other options",
                          "choose another folder, or remove this one")
        if not known and os.path.isdir(self.path) and os.listdir(self.path):
            raise Refusal("E705", self.path, "the folder is not empty, and its files are not data of Piper", "choose another folder")
        os.makedirs(self.progress, exist_ok=True)
        if not known:
            write_json(os.path.join(self.progress, "plan.json"), {"plan": sum})
        self.plan, self.complete = sum, {of["name"]: of for of in (known or {}).get("shards", [])}

    def write_shard(self, name, files, record):
        """`files`: bytes by what they are."""
        for what, bytes in files.items():
            write_file(self.file(name, what), bytes)
        sums = {what: hashlib.sha256(bytes).hexdigest() for what, bytes in files.items()}
        record = {"name": name, **record, "sha256": sums}
        write_json(os.path.join(self.progress, f"{name}.json"), record)
        return record

    def finished(self, name):
        """The record of a shard whose files are all there and sound; None: it must be made."""
        record = self.complete.get(name) or read_json(os.path.join(self.progress, f"{name}.json"))
        return record if record and not damaged(self, record) else None

    def end(self, description, shards):
        write_json(os.path.join(self.path, "data.json"), {"format": "piper-data", "version": 1, **description, "plan": self.plan, "shards": shards})
        shutil.rmtree(self.progress)


def damaged(folder, record):
    """The first file of a shard that is not what was written; None: all are."""
    for what, sum in record["sha256"].items():
        path = folder.file(record["name"], what)
        if not os.path.isfile(path) or file_sum(path) != sum:
            return path
    return None


def verify(path):
    """Reads everything and compares the sums."""
    description = read_json(os.path.join(path, "data.json"))
    if not isinstance(description, dict) or description.get("format") != "piper-data":
        unfinished = os.path.isdir(os.path.join(path, "progress"))
        raise Refusal("E703", path, "the folder is not complete" if unfinished else "the folder has no data.json of Piper",
                      "run piper data prepare again: it resumes where it stopped" if unfinished else "piper data prepare makes such folders")
    for record in description["shards"]:
        if file := damaged(DataFolder(path), record):
            raise Refusal("E703", file, "the file is not what was written: its checksum differs", "run piper data prepare again: it makes this shard anew")
    return description
