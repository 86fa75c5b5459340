"""The memory of a lane, read from its trace file."""
import json

from pages import bytes_text


class Memory:
    """What a trace file says about the memory of a lane."""

    def __init__(self, path, lane):
        with open(path) as file:
            trace = json.load(file)
        header = trace["otherData"]
        self.categories = header["categories"]
        self.samples = [(e["ts"] * 1e-6, e["args"], e.get("op", -1)) for e in trace["traceEvents"] if e["ph"] == "C" and e["pid"] == lane + 1]
        lists = [e["args"]["buffers"] for e in trace["traceEvents"] if e["name"] == "piper_buffers" and e["pid"] == lane + 1]
        self.buffers = [[lane, *b, *[-1, -1][:5 - len(b)]] for b in sum(lists, [])]

    def fullest(self, begin, end):
        before = [s for s in self.samples if s[0] < begin][-1:]
        return max(before + [s for s in self.samples if begin <= s[0] <= end], key=lambda s: sum(s[1].values()))

    def alive(self, op):
        """The largest first; of equal size, those taken first."""
        taken_first = sorted((b for b in self.buffers if b[4] < 0 or b[4] <= op <= b[5]), key=lambda b: b[4])
        return sorted(taken_first, key=lambda b: -b[2])

    def rows_of_categories(self, sample):
        return [[c, bytes_text(sample[1][c])] for c in reversed(self.categories) if sample[1][c] > 0]

    def rows_of_buffers(self, op, most):
        alive = self.alive(op)
        rows = [[f"{self.categories[b[1]]} {b[3]}", bytes_text(b[2])] for b in alive[:most]]
        rest = alive[most:]
        return rows + ([[f"and {len(rest)} more", bytes_text(sum(b[2] for b in rest))]] if rest else [])

    def owners(self, op):
        out = {}
        for _, category, bytes_, name, _, _ in self.alive(op):
            count, sum_ = out.get((self.categories[category], name.split(" ")[0]), (0, 0))
            out[(self.categories[category], name.split(" ")[0])] = (count + 1, sum_ + bytes_)
        return sorted(([f"{category} {name}", f"{count}", bytes_text(sum_)] for (category, name), (count, sum_) in out.items()))
