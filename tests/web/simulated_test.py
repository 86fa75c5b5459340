"""Pages of real simulations."""
import json
import os
import subprocess

import browser
import pages
from browser_case import BrowserCase
from pages import page_of


class Simulated(BrowserCase):
    """They show what the simulator and the plan say."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = os.path.join(pages.FOLDER, "simulated.json")
        inputs = ["examples/moe.toml", "examples/dualpipe.piper", "--cluster", "clusters/h100.toml"]
        result = subprocess.run([pages.PIPER, "simulate", *inputs, "--trace", cls.path, "--format", "json"], capture_output=True, text=True, cwd=browser.ROOT)
        assert result.returncode == 0, result.stderr
        cls.report = json.loads(result.stdout)
        with open(cls.path) as file:
            cls.trace = json.load(file)
        cls.page = page_of("simulated", cls.path)

    def test_numbers_equal_the_simulators(self):
        self.open(self.page)
        shown, report = self.js("return piper.state.traces[0].summary[0]"), self.report
        self.assertEqual(shown["seconds"], report["seconds"])
        self.assertEqual(shown["tokens_per_second"], report["tokens_per_second"])
        self.assertEqual(shown["bubble"], report["bubble"])
        self.assertAlmostEqual(shown["mfu"], report["mfu"], places=12)
        self.assertEqual(self.number("MFU"), f"{100 * report['mfu']:.1f} %")
        self.assertEqual(shown["exposed"], report["exposed_communication"])
        self.assertEqual(shown["peak_bytes"], report["peak_bytes"])
        self.assertEqual(len(shown["lanes"]), len(report["devices"]))
        for lane, device in zip(shown["lanes"], report["devices"]):
            self.assertEqual(lane["compute"], device["compute_seconds"])
            self.assertEqual(lane["exposed"], device["exposed_seconds"])
            self.assertEqual(lane["idle"], device["idle_seconds"])
            self.assertEqual(lane["peak_bytes"], device["peak_bytes"])
        self.assertEqual(self.number("bubble"), f"{100 * report['bubble']:.1f} %")
        self.shot("simulated")

    def test_operations_are_the_traces(self):
        self.open(self.page)
        spans = [e for e in self.trace["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(self.js("return piper.state.traces[0].count"), len(spans))
        wanted = next(e for e in spans if e["cat"] == "all_to_all" and e["args"].get("waits"))
        event = self.event_at(wanted["pid"] - 1, wanted["args"]["op"])
        self.assertEqual(self.js("return piper.state.traces[0].end[arguments[0]]", event), wanted["args"]["end"])
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", event)
        self.assertEqual(self.details()["kind"], "all_to_all")
        self.shot("simulated_selection")

    def test_owners_at_the_peak_are_those_of_the_plans_report(self):
        result = subprocess.run([pages.PIPER, "check", "examples/moe.toml", "examples/dualpipe.piper", "--cluster", "clusters/h100.toml"],
                                capture_output=True, text=True, cwd=browser.ROOT)
        line = next(line for line in result.stdout.splitlines() if line.startswith("largest on device "))
        device, owners = line.removeprefix("largest on device ").split(": ")
        self.open(self.page)
        self.find("canvas").send_keys("x")  # of the fullest device
        self.await_text("view-operation", "Peak of")
        self.assertIn(f"devices {device}, ", self.find("view-operation").find_element("tag name", "h2").text)
        rows = {f"{bytes_} {owner}" for owner, _, bytes_ in self.table("#view-operation .owners")[:-1]}
        self.assertLessEqual(set(owners.split(", ")), rows)
        self.shot("simulated_peak")

    def test_shares_of_the_path_are_the_simulators(self):
        """Communications of one kind over several links are one row here."""
        self.open(self.page)
        wanted = {}
        for share in self.report["critical_path"]:
            name = {"transfer": "send, recv", "issue": "no operation", "every step": "no operation"}.get(share["what"].split(",")[0], share["what"].split(",")[0])
            wanted[name] = wanted.get(name, 0) + share["seconds"]
        shown = {name: share for name, _, share in self.table("#view-overview .shares")}
        for name, seconds in wanted.items():
            self.assertEqual(shown[name], f"{100 * seconds / self.report['seconds']:.1f} %", name)

    def test_path_lasts_as_long_as_the_step(self):
        self.open(self.page)
        self.find("path").click()
        begin, end = self.js("const {trace, events} = piper.state.path[0]; return [trace.start[events[0]], trace.end[events.at(-1)]]")
        self.assertAlmostEqual(end, self.report["seconds"], places=12)
        self.assertLess(begin, self.report["seconds"] * 0.01)
        self.shot("simulated_path")
