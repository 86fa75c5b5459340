"""What `piper view` refuses, and its picture. Needs no browser."""
import os
import unittest
import xml.etree.ElementTree as ElementTree

import pages
from pages import piper, trace_file


class Program(unittest.TestCase):
    """The program alone."""

    def refused(self, name, text, code):
        path, page = os.path.join(pages.FOLDER, name), os.path.join(pages.FOLDER, name + ".html")
        with open(path, "w") as file:
            file.write(text)
        result = piper("view", path, "-o", page)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"error[{code}]", result.stderr)
        self.assertFalse(os.path.exists(page), "no broken page is left")

    def test_refuses_what_is_no_trace(self):
        path, _, _ = trace_file("whole", "--ranks", "2", "--microbatches", "2")
        with open(path) as file:
            whole = file.read()
        self.refused("nothing.json", "", "E501")
        self.refused("other_tool.json", '{"traceEvents": []}', "E501")
        self.refused("old.json", whole.replace('"version": 1', '"version": 0'), "E502")
        self.refused("cut.json", whole[:len(whole) // 2], "E106")
        self.refused("negative.json", whole.replace('"ts": 0.0', '"ts": -5'), "E503")
        self.refused("no_lanes.json", '{"otherData": {"format": "piper-trace", "version": 1, "source": "", "model": "", "cluster": "", "plan": "", '
                     '"seconds": 0, "lanes": [], "streams": [], "categories": [], "origins": []}, "traceEvents": []}', "E503")
        self.assertEqual(piper("view", os.path.join(pages.FOLDER, "missing.json"), "-o", "x.html").returncode, 1)
        self.assertEqual(piper("view", path, "-o", os.path.join(pages.FOLDER, "no", "such", "folder.html")).returncode, 3)

    def test_picture_for_papers(self):
        path, _, _ = trace_file("sixteen", "--ranks", "16", "--microbatches", "64")
        picture = os.path.join(pages.ARTEFACTS, "sixteen.svg")
        self.assertEqual(piper("view", path, "-o", picture, "--width", "1400").returncode, 0)
        self.assertLess(os.path.getsize(picture), 300_000)
        self.assertEqual(ElementTree.parse(picture).getroot().get("width"), "1400")
        root = ElementTree.parse(picture).getroot()
        space = "{http://www.w3.org/2000/svg}"
        numbers = [text.text for text in root.iter(space + "text")]
        self.assertEqual(sum(text.startswith("device ") for text in numbers), 16)
        blocks = sum(path.get("d").count("M") for path in root.iter(space + "path") if path.get("fill") == "#56b4e9")
        self.assertEqual(blocks, 16 * 64, "a block for every forward")

    def test_the_ending_decides(self):
        path, _, _ = trace_file("ending", "--ranks", "2", "--microbatches", "2")
        for output, more, message in (("x.png", (), "only a card can be a .png"), ("x", (), "must end in .html or .svg"), ("x.html", ("--card",), "must end in .svg"),
                                      ("x.html", ("--width", "900"), "goes with a picture"), ("x.svg", (path,), "--card shows two"),
                                      ("x.svg", ("--card", path, path), "one trace or two")):
            result = piper("view", path, *more, "-o", os.path.join(pages.FOLDER, output))
            self.assertEqual(result.returncode, 2)
            self.assertIn(message, result.stderr)
            self.assertFalse(os.path.exists(os.path.join(pages.FOLDER, output)))

    def test_a_pass_is_one_block_and_a_pair_two_halves(self):
        """Parts of a pass with waits between them; a forward and a backward that take turns."""
        def turns(text):
            head, _ = text.split('"traceEvents": [\n')
            event = '{"ph": "X", "pid": 1, "tid": 1, "name": "a", "cat": "run", "ts": %d, "dur": 1, "args": {"op": %d, "end": %.6f, "pass": "%s", "slice": %d}}'
            parts = [(0, 10, "F", 0), (14, 20, "F", 0), (30, 34, "F", 1), (34, 42, "B", 0), (42, 46, "F", 1), (46, 54, "B", 0)]
            lines = [event % (begin, i, end * 1e-6, pass_, slice_) for i, (begin, end, pass_, slice_) in enumerate(parts)]
            return head + '"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
        path, _, _ = trace_file("turns", "--ranks", "1", "--microbatches", "1", change=turns)
        picture = os.path.join(pages.ARTEFACTS, "turns.svg")
        self.assertEqual(piper("view", path, "-o", picture).returncode, 0)
        paths = {node.get("fill"): node.get("d") for node in ElementTree.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}path")}
        heights = {fill: sorted(part.split("v")[1].split("h")[0] for part in paths[fill].split("M")[1:]) for fill in ("#56b4e9", "#e69f00")}
        self.assertEqual(heights, {"#56b4e9": ["12", "24"], "#e69f00": ["12"]})

    def test_card_has_schedule_numbers_and_both_pipelines(self):
        before, _, _ = trace_file("before", "--ranks", "4", "--microbatches", "8", "--slow", "1.25")
        after, _, _ = trace_file("after", "--ranks", "4", "--microbatches", "8",
                                 change=lambda text: text.replace("pipeline.piper", "better.piper").replace(f"{40 << 30}", f"{10 << 30}"))
        card = os.path.join(pages.ARTEFACTS, "card.svg")
        self.assertEqual(piper("view", before, after, "--card", "-o", card).returncode, 0)
        root = ElementTree.parse(card).getroot()
        texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertLessEqual({"Qwen3-1.7B", "pipeline", "better", "place({}, along=pp, stages=8, transfers=p2p)", "12.0 GiB", "peak memory of 40.0 GiB", "38.9 ms"}, set(texts))
        self.assertTrue(any(text.startswith("step  -1") for text in texts), "how much less the second takes")
        self.assertTrue(any(text.startswith("does not fit in 10.0 GiB") for text in texts))
        self.assertEqual(sum(text == "device 3" for text in texts), 2)
        self.assertEqual(root.get("width"), "1200")
