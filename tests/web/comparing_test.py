"""Several traces on one page, and several steps of one."""
import pages
from browser_case import PageCase
from pages import milliseconds, page_of, trace_file


class Comparing(PageCase):
    """Traces side by side, steps one at a time."""

    def test_comparison(self):
        self.open(self.two)
        self.assertLess(milliseconds(self.number("step", 0)), milliseconds(self.number("step", 1)))
        self.find("tab-compare").click()
        self.assertEqual(self.head("#view-compare"), ["", "predicted", "measured", "difference", ""])
        rows = self.driver.find_elements("css selector", "#view-compare tr[tabindex]")
        self.assertEqual(len(rows), 40)
        self.shot("comparison")
        name = rows[0].text
        rows[0].click()
        self.assertIn(self.find("view-operation").find_element("tag name", "h2").text, name)
        self.assertIn("measured", self.details())
        self.assertEqual(self.js("return piper.state.matched.length"), 1)
        self.find("pair").click()
        order = self.js("return piper.timeline.bands.filter((b) => b.opens).map((b) => [b.trace.lanes[b.lane][0], b.trace.index])")
        self.assertEqual(order, [[d, t] for d in range(4) for t in range(2)])
        self.find("theme").click()
        self.shot("comparison_paired")

    def test_other_plans_are_shown_but_not_matched(self):
        other, _, _ = trace_file("other", "--ranks", "4", "--microbatches", "6", change=lambda text: text.replace("00000000000000aa", "00000000000000bb"))
        self.open(page_of("plans", self.small, other))
        self.find("tab-compare").click()
        self.assertIn("Operations are not compared", self.find("view-compare").text)
        self.assertIn("other", self.find("numbers").text)

    def head(self, selector):
        return self.js("return [...document.querySelector(arguments[0] + ' thead tr').cells].map((cell) => cell.textContent)", selector)

    def test_two_schedules_are_named_and_every_number_is_compared(self):
        other, _, _ = trace_file("schedule", "--ranks", "4", "--microbatches", "8", "--slow", "1.25",
                                 change=lambda text: text.replace("00000000000000aa", "00000000000000cc").replace("pipeline.piper", "other/faster.piper"))
        self.open(page_of("schedules", self.small, other))
        self.assertEqual([row.text.split("\n")[0].split(" ")[0] for row in self.driver.find_elements("css selector", ".numbers-row .of")], ["pipeline", "faster"])
        self.find("tab-compare").click()
        self.assertIn("faster against pipeline", self.find("view-compare").text)
        self.assertEqual(self.head("#view-compare"), ["", "pipeline", "faster", "difference", ""])
        rows = {name: cells for name, *cells in self.table("#view-compare")}
        self.assertLessEqual({"step", "tokens/s", "bubble", "exposed communication", "computes", "idle", "peak memory", "devices", "F", "send, recv", "all_reduce"}, set(rows))
        steps = [self.js("return piper.state.traces[arguments[0]].summary[0].seconds", i) for i in (0, 1)]
        self.assertAlmostEqual(milliseconds(rows["step"][2][1:]), steps[1] - steps[0], delta=1e-5)
        self.assertEqual(rows["step"][3], f"+{100 * (steps[1] / steps[0] - 1):.1f} %")
        self.assertEqual(rows["peak memory"][2:], ["0 B", "0.0 %"])
        self.find("canvas").send_keys("g")
        self.shot("schedules")

    def test_steps_can_be_picked(self):
        path, header, events = trace_file("steps", "--ranks", "2", "--microbatches", "4", "--steps", "3", "--noise", "0.5")
        self.open(page_of("steps", path))
        self.assertEqual(self.find("step").text.split(), ["10", "11", "12", "all"])
        self.assertLess(self.view()[1], header["steps"][0][2] * 1.05, "the first is shown")
        for number, (_, begin, end) in enumerate(header["steps"]):
            self.js("const s = document.getElementById('step'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", f"{number}")
            self.assertAlmostEqual(milliseconds(self.number("step")), end - begin, delta=1e-5)
            self.assertIn(f"step {number + 10}", self.find("numbers").text)
            first = self.block(self.event_at(0, 0, step=number))
            self.assertAlmostEqual(first["x"], self.js("return arguments[0] + (0 - piper.state.view.from) / (piper.state.view.to - piper.state.view.from) * piper.state.view.width", pages.GUTTER), places=3)
        self.shot("steps")
        self.find("path").click()
        self.search("kind=update")
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(0, 0, step=1))
        self.assertEqual([self.find("step").get_attribute("value"), self.details()["step"]], ["1", "11"], "its step is shown")
        self.assertEqual(self.js("const {trace, events} = piper.state.path[0]; return [...new Set(events.map((e) => trace.step[e]))]"), [1])
        self.assertEqual(self.find("matches").text, "2 operations")
        self.press("x")
        self.await_text("view-operation", "Peak of")
        self.js("const s = document.getElementById('step'); s.value = '-1'; s.dispatchEvent(new Event('change'))")
        self.assertIsNone(self.state("moment"), "it was one of another step")
        mean = sum(end - begin for _, begin, end in header["steps"]) / 3
        self.assertAlmostEqual(milliseconds(self.number("step")), mean, delta=1e-5)
        self.assertIn("mean of 3 steps", self.find("numbers").text)
        self.assertEqual(self.find("matches").text, "6 operations")
        self.assertGreater(self.view()[1], header["seconds"])
