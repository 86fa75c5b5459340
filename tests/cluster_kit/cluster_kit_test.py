#!/usr/bin/env python3
"""The validation kit for clusters in small: two processes, replicas with and without ZeRO, beside PyTorch's."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "bench" / "cluster_kit"))


def run(folder, *options):
    command = [sys.executable, root / "bench/cluster_kit/kit.py", PROGRAM, "-n", "2", "--size", "tiny", "--rounds", "1", "--steps", "1", "-o", folder, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return done, json.loads((pathlib.Path(folder) / "report.json").read_text())


class Kit(unittest.TestCase):
    def test_replicas(self):
        with tempfile.TemporaryDirectory() as folder:
            done, report = run(folder, "--strategies", "dp 2, zero 3")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual([row["verdict"] for row in report["correctness"]], ["right"])
            ours, theirs = report["speed"]
            self.assertEqual((ours["system"], theirs["system"], theirs["name"]), ("Piper", "PyTorch", "fsdp2"))
            for row in (ours, theirs):  # both train the same model
                self.assertGreater(row["seconds"], 0)
                for loss, published in zip(row["losses"], [5.554103, 5.533968, 5.510856]):
                    self.assertAlmostEqual(loss, published, delta=2e-5)
            self.assertGreater(ours["predicted"], 0)
            page = (pathlib.Path(folder) / "report.html").read_text()
            for text in ("1 of 1", "dp 2, zero 3", "fsdp2", "mean error of predicted step times"):
                self.assertIn(text, page)

    def test_a_wrong_loss_is_told(self):
        import kit

        published = kit.PUBLISHED
        kit.PUBLISHED = {"tiny": [loss + 1e-3 for loss in published["tiny"]]}
        try:
            with tempfile.TemporaryDirectory() as folder:
                sys.argv = ["kit.py", PROGRAM, "-n", "1", "--only", "correctness", "--strategies", "one device", "-o", folder]
                self.assertEqual(kit.main(), 1)
                rows = json.loads((pathlib.Path(folder) / "report.json").read_text())["correctness"]
                self.assertEqual([row["verdict"] for row in rows], ["wrong"])
        finally:
            kit.PUBLISHED = published

    def test_every_strategy_computes_all_slices(self):
        from strategies import strategies

        for devices in (2, 3, 4, 6, 8, 16):
            for slices, layers, heads in ((16, 16, 4), (8, 8, 8)):
                found = strategies(devices, slices, layers, heads)
                self.assertEqual(len({s.name for s in found}), len(found))
                for strategy in found:
                    sizes = dict(part.split("=") for part in strategy.text.split("mesh(")[1].split(")")[0].split(", "))
                    parts = int(strategy.text.split("parts=")[1].split(",")[0])
                    self.assertEqual(parts * int(sizes.get("dp", 1)), slices, strategy.text)


if __name__ == "__main__":
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("numpy"):
        print("skipped: PyTorch cannot be imported")
        sys.exit(77)
    PROGRAM = sys.argv.pop(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    unittest.main()
