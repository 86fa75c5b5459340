"""`piper data prepare` and `piper data verify`, and a tokenizer that answers. The only argument is what is wanted, as JSON."""
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time

from prepare.answering import answer_all
from prepare.conversations import FIELDS, texts_of
from prepare.data_folder import DataFolder, packed, verify
from prepare.documents import pieces, read
from prepare.encoding import open_encoding
from prepare.refusal import Refusal

AT_ONCE = 256  # documents that a tokenizer is given


class Work:
    """What every process needs; they are copies of the first."""

    def __init__(self, options):
        self.encoding = open_encoding(options["tokenizer"])
        self.end = self.encoding.end(options["end"])
        self.what = options["as"]
        self.fields = (options["field"],) if options["field"] else FIELDS[self.what]
        self.text_of = texts_of(self.what, self.encoding)
        self.dtype = "uint16" if self.encoding.vocabulary <= 1 << 16 else "uint32"
        self.folder = DataFolder(options["out"])


work = None


def shard_name(index):
    return f"{index:05}"


def make_shard(index, piece):
    """One piece as a shard; its record."""
    tokens, ends, counted, empty, documents = [], [], [], [], []
    continues = piece["kind"] == "text" and piece["begin"] > 0  # the document of the piece before

    def encode():
        for (place, _, parts), (ids, begins) in zip(documents, work.encoding.encode([text for _, text, _ in documents])):
            if not ids and not continues:
                empty.append(str(place))
                continue
            add_document(ids, begins, parts)
        documents.clear()

    def add_document(ids, begins, parts):
        tokens.extend(ids)
        if parts is not None:
            counted.extend(int(any(begin <= at < end for begin, end in parts)) for at in begins)
        if work.end is not None and not piece.get("goes_on") and (parts is None or ids[-1] != work.end):
            tokens.append(work.end)
            if parts is not None:
                counted.append(counted[-1])
        if not piece.get("goes_on"):
            ends.append(len(tokens))

    for place, values in read(piece, work.fields):
        documents.append((place, *work.text_of(place, values)))
        if len(documents) == AT_ONCE:
            encode()
    encode()
    files = {"tokens": packed(tokens, work.dtype), "documents": packed(ends, "uint64")}
    if work.what != "documents":
        files["loss"] = packed(counted, "uint8")
    record = {"tokens": len(tokens), "documents": len(ends), "counted": sum(counted) if work.what != "documents" else len(tokens)}
    return work.folder.write_shard(shard_name(index), files, {**record, "empty": len(empty), **({"first_empty": empty[0]} if empty else {})})


def begin_process(parent):
    """Ends with the process that started it, and on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


class Progress:
    """A line that is written again and again on a terminal; elsewhere one every so often."""

    def __init__(self, shards, found):
        self.shards, self.done, self.tokens, self.begin, self.shown = shards, found, 0, time.monotonic(), 0.0
        self.found, self.terminal = found, sys.stderr.isatty()
        if not self.terminal:
            self.shown = self.begin

    def add(self, record):
        self.done, self.tokens, now = self.done + 1, self.tokens + record["tokens"], time.monotonic()
        if now - self.shown > (0.2 if self.terminal else 30) or self.done == self.shards:
            seconds, self.shown = max(now - self.begin, 1e-9), now
            left = seconds / (self.done - self.found) * (self.shards - self.done)
            line = f"{self.done}/{self.shards} shards, {self.tokens:,} tokens, {self.tokens / seconds:,.0f} tokens/s, {left:.0f} s left"
            print(f"\r\x1b[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def close(self):
        if self.terminal and self.shown:
            print(file=sys.stderr)


def make_shards(plan, processes):
    """The records of all shards. Of several pieces that are refused, the first is reported."""
    records = {index: record for index in range(len(plan)) if (record := work.folder.finished(shard_name(index)))}
    if records:
        print(f"{len(records)} of {len(plan)} shards are there already", file=sys.stderr)
    progress = Progress(len(plan), len(records))
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), begin_process, (os.getpid(),)) as pool:
        running = {pool.submit(make_shard, index, piece): index for index, piece in enumerate(plan) if index not in records}
        try:
            for future in concurrent.futures.as_completed(running):
                if future.exception():
                    break
                records[running[future]] = future.result()
                progress.add(future.result())
        finally:
            progress.close()
            pool.shutdown(cancel_futures=True)
    for future in sorted(running, key=running.get):
        if not future.cancelled() and future.exception():
            raise future.exception()
    return [records[index] for index in range(len(plan))]


def plan_of(options):
    if not options["inputs"]:
        raise Refusal("E705", "", "there is nothing to prepare", "name files, folders or patterns")
    out = pieces(options["inputs"], options["shard_size"])
    if work.what != "documents":
        for piece in out:
            if piece["kind"] in ("text", "texts"):
                raise Refusal("E705", piece.get("file") or piece["files"][0], f"a text file has no {' and '.join(work.fields)}",
                              f"--as {work.what} reads JSONL, Parquet and Arrow")
    return out


def facts_of(path):
    """Of an input: what differs if it is another one. Folders count by their files."""
    files = sorted(os.path.join(path, name) for name in os.listdir(path)) if os.path.isdir(path) else [path]
    return [[file, os.path.getsize(file), os.stat(file).st_mtime_ns] for file in files]


def prepare(options):
    global work
    work = Work(options)
    plan = plan_of(options)
    facts = {"inputs": [facts_of(path) for path in options["inputs"]], "tokenizer": work.encoding.sha256, "pieces": plan, "end": work.end,
             "as": work.what, "fields": work.fields, "template": work.encoding.settings.get("chat_template")}
    work.folder.begin(facts)
    shards = make_shards(plan, options["processes"] or os.cpu_count())
    total = {what: sum(shard[what] for shard in shards) for what in ("tokens", "documents", "counted", "empty")}
    if total["tokens"] == 0:
        raise Refusal("E701", "", "all documents are empty", "are these the files you meant?")
    work.folder.end({"dtype": work.dtype, "vocabulary": work.encoding.vocabulary, "end": work.end, "tokenizer": work.encoding.sha256,
                     "loss": "all" if work.what == "documents" else "completions", **total}, shards)
    counted = "" if work.what == "documents" else f", {total['counted']:,} of them counted by the loss"
    print(f"{options['out']}: {total['documents']:,} documents, {total['tokens']:,} tokens of {work.dtype}{counted}")
    if total["empty"]:
        first = next(shard["first_empty"] for shard in shards if "first_empty" in shard)
        print(f"{total['empty']:,} empty documents are left out, the first is {first}")


def main():
    options = json.loads(sys.argv[1])
    try:
        if options["command"] == "verify":
            description = verify(options["folder"])
            print(f"{options['folder']}: sound, {description['documents']:,} documents, {description['tokens']:,} tokens")
        elif options["command"] == "tokens":
            answer_all(options["tokenizer"])
        else:
            prepare(options)
        return 0
    except Refusal as problem:
        print(problem, file=sys.stderr)
        return 1
    except OSError as problem:
        print(Refusal("E108", problem.filename or "", problem.strerror or str(problem)), file=sys.stderr)
        return 1
    except concurrent.futures.process.BrokenProcessPool:
        print("piper: a process that tokenizes was ended from outside, for lack of memory perhaps\n"
              "help: the same command resumes; fewer --processes or a smaller --shard-size take less memory", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\npiper: stopped; the same command resumes", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
