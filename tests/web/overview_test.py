"""What the page says first: the numbers, what the step time consists of, the schedule."""
from browser_case import PageCase
from pages import milliseconds, page_of, trace_file


class Overview(PageCase):
    """The first tab of the panel, and the panel itself."""

    def test_shares_of_the_critical_path_add_up_to_the_step(self):
        self.open(self.page)
        rows = self.table("#view-overview .shares")
        self.assertAlmostEqual(sum(milliseconds(seconds) for _, seconds, _ in rows), max(e["end"] for e in self.events), delta=2e-5)
        path, event = [], max(self.events, key=lambda e: e["end"])
        by_place = {(e["lane"], e["op"]): e for e in self.events}
        while event:
            path.append(event)
            event = event["cause"] and by_place[tuple(event["cause"])]
        forward = sum(e["end"] - e["start"] for e in path if e["pass_"] == "F" and e["kind"] == "run")
        self.assertAlmostEqual(milliseconds(dict((name, seconds) for name, seconds, _ in rows)["F"]), forward, delta=1e-5)
        self.shot("overview")

    def test_schedule_is_shown_in_its_order(self):
        self.open(self.page)
        self.assertEqual(self.driver.find_element("css selector", "#view-overview .schedule").text.split("\n"), [
            "place({}, along=pp, stages=8, transfers=p2p)", "replicate({}, along=dp, zero=1, bucket=25MB, reduce_stream=dp)"])
        self.assertIn("Schedule pipeline", self.find("view-overview").text)

    def test_panel_can_be_folded_away(self):
        self.open(self.page)
        width = self.state("view.width")
        self.find("show-panel").click()
        self.assertFalse(self.find("panel").is_displayed())
        self.assertGreater(self.state("view.width"), width + 300, "the timeline has its room")
        self.find("canvas").send_keys("b")
        self.assertTrue(self.find("panel").is_displayed())
        self.assertEqual(self.state("view.width"), width)

    def test_critical_path_of_many_operations_is_one_line(self):
        """A chain that changes between computing and sending four thousand times: in every column it runs where it spends most of its time."""
        def alternate(text):
            head, _ = text.split('"traceEvents": [\n')
            event = '{"ph": "X", "pid": 1, "tid": %d, "name": "a F", "cat": "%s", "ts": %.6f, "dur": 1, "args": {"op": %d, "end": %.9f%s}}'
            def line(i):
                begin, end = (i // 2) * 10 + 9 * (i % 2), (i // 2) * 10 + 9 + i % 2
                return event % (1 + i % 2, ("run", "send")[i % 2], begin, i, end * 1e-6, f', "cause": [0, {i - 1}]' if i else "")
            return head + '"traceEvents": [\n' + ",\n".join(line(i) for i in range(4000)) + "\n]}\n"
        path, _, _ = trace_file("chain", "--ranks", "1", "--microbatches", "1", change=alternate)
        self.open(page_of("chain", path))
        self.press("c")
        self.assertEqual(self.js("return piper.state.path[0].events.length"), 4000)
        heights = self.js("""const {context} = piper.timeline, own = CanvasRenderingContext2D.prototype.lineTo, ys = [];
            CanvasRenderingContext2D.prototype.lineTo = function (x, y) { ys.push(y); own.call(this, x, y); };
            piper.draw();
            CanvasRenderingContext2D.prototype.lineTo = own;
            const middle = (e) => { const block = piper.blockOf(0, e); return block.y + block.height / 2; };
            return [0, 1].map((row) => { const y = middle(piper.state.traces[0].rows[row].first); return ys.filter((at) => at === y).length; })""")
        self.assertGreater(heights[0], 100)
        self.assertEqual(heights[1], 0, "not to and fro")
