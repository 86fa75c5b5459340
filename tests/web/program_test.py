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
        self.assertEqual(piper("view", path, "--svg", "-o", picture).returncode, 0)
        self.assertLess(os.path.getsize(picture), 300_000)
        root = ElementTree.parse(picture).getroot()
        space = "{http://www.w3.org/2000/svg}"
        numbers = [text.text for text in root.iter(space + "text")]
        self.assertEqual(sum(text.startswith("device ") for text in numbers), 16)
        blocks = sum(path.get("d").count("M") for path in root.iter(space + "path") if path.get("fill") == "#56b4e9")
        self.assertEqual(blocks, 16 * 64, "a block for every forward")
