"""Documents in files of all kinds, cut into pieces that can be read apart from each other.

A piece is a dictionary that JSON can hold. What it is depends on the inputs and the size of pieces alone, so a second run has the same ones.
"""
import json
import os

from prepare.refusal import Refusal, needed

LINES = (".jsonl", ".ndjson", ".json")


def pieces(inputs, size):
    """All inputs in their order, in pieces of about `size` bytes. Small text files share one."""
    out, texts = [], []

    def end_texts():
        if texts:
            out.append({"kind": "texts", "files": [path for path, _ in texts]})
            texts.clear()

    for path in inputs:
        ending = os.path.splitext(path)[1].lower()
        if not os.path.isdir(path) and ending not in (*LINES, ".parquet", ".arrow"):
            bytes = os.path.getsize(path)
            if bytes <= size:
                if sum(of for _, of in texts) + bytes > size:
                    end_texts()
                texts.append((path, bytes))
                continue
        end_texts()
        if os.path.isdir(path):
            for file in dataset_files(path):
                out += arrow_pieces(file, size)
        elif ending in LINES:
            out += [{"kind": "lines", "file": path, "begin": begin, "end": end} for begin, end in ranges_of_lines(path, size)]
        elif ending == ".parquet":
            out += parquet_pieces(path, size)
        elif ending == ".arrow":
            out += arrow_pieces(path, size)
        else:
            ranges = ranges_of_lines(path, size)
            out += [{"kind": "text", "file": path, "begin": begin, "end": end, "goes_on": (begin, end) != ranges[-1]} for begin, end in ranges]
    end_texts()
    return out


def ranges_of_lines(path, size):
    """Of a file, each up to the end of a line."""
    bytes, out, begin = os.path.getsize(path), [], 0
    with open(path, "rb") as file:
        while begin < bytes:
            file.seek(min(begin + size, bytes))
            file.readline()
            out.append((begin, file.tell()))
            begin = file.tell()
    return out


def dataset_files(folder):
    """Of a folder that `save_to_disk` of Hugging Face's datasets wrote."""
    splits = os.path.join(folder, "dataset_dict.json")
    if os.path.exists(splits):
        with open(splits) as file:
            names = json.load(file)["splits"]
        raise Refusal("E705", folder, f"the dataset has several splits: {', '.join(names)}", f"name one of them: {os.path.join(folder, names[0])}")
    with open(os.path.join(folder, "state.json")) as file:
        return [os.path.join(folder, of["filename"]) for of in json.load(file)["_data_files"]]


def parquet_pieces(path, size):
    rows = needed("pyarrow.parquet", "Parquet").ParquetFile(path).metadata
    return [{"kind": "parquet", "file": path, "begin": begin, "end": end}
            for begin, end in runs([rows.row_group(i).total_byte_size for i in range(rows.num_row_groups)], size)]


def arrow_pieces(path, size):
    return [{"kind": "arrow", "file": path, "begin": begin, "end": end} for begin, end in runs([batch.nbytes for batch in arrow_batches(path)], size)]


def runs(sizes, size):
    """Consecutive ones that are `size` together, or one that is larger: from, and up to."""
    out, begin, sum = [], 0, 0
    for index, of in enumerate(sizes):
        if index > begin and sum + of > size:
            out.append((begin, index))
            begin, sum = index, 0
        sum += of
    return out + [(begin, len(sizes))] if sizes else out


def arrow_batches(path):
    pyarrow = needed("pyarrow", "a dataset in Arrow's format")
    with pyarrow.memory_map(path) as file:
        try:
            yield from pyarrow.ipc.open_stream(file)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def read(piece, fields):
    """The documents of a piece: (place, values of the fields). Of a text there is one value, the whole text."""
    return {"texts": read_texts, "text": read_text, "lines": read_lines, "parquet": read_parquet, "arrow": read_arrow}[piece["kind"]](piece, fields)


def read_texts(piece, fields):
    for path in piece["files"]:
        yield from read_text({"file": path, "begin": 0, "end": os.path.getsize(path)}, fields)


def read_text(piece, fields):
    yield piece["file"], [decode(piece["file"], range_of(piece), piece["begin"])]


def range_of(piece):
    with open(piece["file"], "rb") as file:
        file.seek(piece["begin"])
        return file.read(piece["end"] - piece["begin"])


def decode(path, bytes, begin):
    try:
        return bytes.decode()
    except UnicodeDecodeError as problem:
        raise Refusal("E705", path, f"byte {begin + problem.start} is not UTF-8", "convert the file, for example with iconv, or leave it out")


def read_lines(piece, fields):
    path, at = piece["file"], piece["begin"]
    for line in range_of(piece).splitlines(keepends=True):
        begin, at = at, at + len(line)
        if line.strip():
            yield Line(path, begin), values_of_line(Line(path, begin), line, fields)


class Line:
    """A place in a file; the number of the line is counted when somebody asks for it."""

    def __init__(self, path, begin):
        self.path, self.begin = path, begin

    def __str__(self):
        with open(self.path, "rb") as file:
            before = file.read(self.begin)
        return f"{self.path}:{before.count(10) + 1}"


def values_of_line(place, line, fields):
    text = line.decode(errors="replace").rstrip("\r\n")
    try:
        row = json.loads(line)
    except ValueError as problem:
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else "it is not UTF-8"
        raise Refusal("E705", str(place), f"the line is not JSON: {reason}", "every line is an object: {\"text\": \"…\"}", text)
    if not isinstance(row, dict):
        raise Refusal("E705", str(place), "the line is not an object", "every line is an object: {\"text\": \"…\"}", text)
    for field in fields:
        if field not in row:
            raise unknown_field(place, field, row, text)
    return [row[field] for field in fields]


def unknown_field(place, field, known, excerpt=""):
    return Refusal("E705", str(place), f"there is no field \"{field}\"; there are {', '.join(known) or 'none'}", "--field names the field of the text", excerpt)


def read_parquet(piece, fields):
    parquet = needed("pyarrow.parquet", "Parquet").ParquetFile(piece["file"])
    check_columns(piece["file"], fields, parquet.schema_arrow.names)
    first = sum(parquet.metadata.row_group(i).num_rows for i in range(piece["begin"]))
    for batch in parquet.iter_batches(row_groups=range(piece["begin"], piece["end"]), columns=list(fields)):
        yield from rows_of(piece["file"], batch, fields, first)
        first += batch.num_rows


def read_arrow(piece, fields):
    first = 0
    for index, batch in enumerate(arrow_batches(piece["file"])):
        if piece["begin"] <= index < piece["end"]:
            check_columns(piece["file"], fields, batch.schema.names)
            yield from rows_of(piece["file"], batch, fields, first)
        first += batch.num_rows


def check_columns(path, fields, known):
    for field in fields:
        if field not in known:
            raise unknown_field(path, field, known)


def rows_of(path, batch, fields, first):
    columns = [batch.column(batch.schema.names.index(field)).to_pylist() for field in fields]
    for row, values in enumerate(zip(*columns)):
        yield f"{path}, row {first + row + 1}", list(values)
