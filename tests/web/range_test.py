"""A range of time and its totals, the ruler, the minimap, folded lanes."""
import pages
from browser_case import PageCase
from pages import bytes_text, milliseconds, page_of, trace_file


class Range(PageCase):
    """What is measured is what the trace says."""

    def drag(self, x0, y, x1):
        canvas = self.find("canvas")
        at = lambda x: (round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2))
        self.actions().move_to_element_with_offset(canvas, *at(x0)).click_and_hold().move_to_element_with_offset(canvas, *at((x0 + x1) / 2)) \
            .move_to_element_with_offset(canvas, *at(x1)).release().perform()

    def test_the_whole_step_has_the_numbers_of_the_step(self):
        self.open(self.page)
        step = max(e["end"] for e in self.events)
        self.js("piper.setRange({from: 0, to: arguments[0]})", step)
        lanes = self.js("return piper.state.traces[0].summary[0].lanes")
        rows = self.table("#view-operation table:first-of-type")
        self.assertEqual([row[0] for row in rows], ["0", "1", "2", "3", "mean"])
        for row, lane in zip(rows, lanes):
            for cell, name in zip(row[1:], ("compute", "exposed", "idle")):
                self.assertAlmostEqual(milliseconds(cell.split(" (")[0]), lane[name], delta=1e-5)
        sent = [e for e in self.events if e["kind"] == "send"]
        kinds = {kind: rest for kind, *rest in self.table("#view-operation table:last-of-type")}
        self.assertEqual(kinds["send"], [f"{len(sent)}", bytes_text(sum(e["bytes"] for e in sent))])
        self.assertEqual(set(kinds), {"send", "recv", "all_reduce"})

    def test_a_drag_on_the_axis_measures(self):
        self.open(self.page)
        self.drag(pages.GUTTER + 200, 10, pages.GUTTER + 500)
        begin, end = self.view()
        pixel = (end - begin) / self.state("view.width")
        found = self.state("range")
        self.assertAlmostEqual(found["from"], begin + 200 * pixel, delta=2 * pixel)
        self.assertAlmostEqual(found["to"], begin + 500 * pixel, delta=2 * pixel)
        self.assertEqual(self.view(), [begin, end], "nothing moves")
        inside = [e for e in self.events if e["lane"] == 1 and e["kind"] in ("run", "update")]
        busy = sum(max(0, min(e["end"], found["to"]) - max(e["start"], found["from"])) for e in inside)
        row = self.table("#view-operation table:first-of-type")[1]
        self.assertAlmostEqual(milliseconds(row[1].split(" (")[0]), busy, delta=1e-5)
        self.assertTrue(any(text == self.find("view-operation").find_element("tag name", "h2").text.split(" from")[0] for text in self.texts()), "its length stands on the axis")
        self.shot("range")
        self.press("f")
        begin, end = self.view()
        self.assertAlmostEqual(end - begin, (found["to"] - found["from"]) * 1.02, delta=1e-9)
        self.press("\ue00c")
        self.assertIsNone(self.state("range"))

    def test_the_ruler_tells_the_time(self):
        self.open(self.page)
        self.point_at(pages.GUTTER + 300, 200)
        begin, end = self.view()
        self.assertAlmostEqual(milliseconds(self.find("ruler").text), begin + 300 * (end - begin) / self.state("view.width"), delta=2e-4)
        self.point_at(20, 200)
        self.assertFalse(self.find("ruler").is_displayed())

    def test_keys_of_games_move_too(self):
        self.open(self.page)
        whole = self.view()
        self.press("w", "w")
        near = self.view()
        self.assertLess(near[1] - near[0], (whole[1] - whole[0]) / 2)
        self.press("d")
        self.assertGreater(self.view()[0], near[0])
        self.press("a", "a")
        self.assertLess(self.view()[0], near[0])
        self.press("s")
        self.assertGreater(self.view()[1] - self.view()[0], (near[1] - near[0]) * 1.4)

    def test_the_minimap_leads_anywhere(self):
        self.open(self.page)
        blue = self.js("""const c = document.getElementById('minimap'), {data} = c.getContext('2d').getImageData(0, 0, c.width, c.height);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) count += data[i] === 86 && data[i + 1] === 180 && data[i + 2] === 233;
            return count""")
        self.assertGreater(blue, 200, "forwards")
        self.press("w", "w", "w", "w")
        minimap, length = self.find("minimap"), self.view()[1] - self.view()[0]
        x = pages.GUTTER + self.state("view.width") * 0.75
        self.actions().move_to_element_with_offset(minimap, round(x - minimap.size["width"] / 2), 0).click().perform()
        begin, end = self.view()
        self.assertAlmostEqual(end - begin, length)
        self.assertAlmostEqual((begin + end) / 2, self.state("view.end") * (0.75 * 1.02 - 0.01), delta=self.state("view.end") * 0.005)

    def test_rows_without_operations_take_no_room(self):
        path, _, _ = trace_file("sparse", "--ranks", "2", "--microbatches", "4", "--steps", "2")
        self.open(page_of("sparse", path))
        rows = lambda: self.js("return piper.timeline.bands.filter((b) => b.type === 'row').map((b) => b.trace.streams[b.trace.rows[b.row].stream])")
        self.assertEqual(rows().count("p2p.send"), 2)
        self.find("kind-menu").click()
        kinds = self.js("return piper.state.traces[0].kinds")
        self.driver.find_elements("css selector", "#kinds input")[kinds.index("send")].click()
        self.assertNotIn("p2p.send", rows())
        self.find("kind-menu").click()

    def test_lanes_can_be_folded(self):
        self.open(self.page)
        bands = lambda: self.js("return piper.timeline.bands.filter((b) => b.lane === 1 && b.type !== 'gap').map((b) => b.type)")
        self.assertEqual(bands(), ["row"] * 4 + ["memory"])
        block = self.block(self.event_at(1, self.first_op(1, 0)))
        self.point_at(60, block["y"] + 4)
        self.actions().click().perform()
        self.assertEqual(bands(), ["row"])
        self.press("z")
        self.assertEqual([bands(), self.js("return piper.state.folded.size")], [["row"] * 4 + ["memory"], 0], "some are folded: all are unfolded")
        self.press("z")
        self.assertEqual(self.js("return piper.state.folded.size"), 4)
        self.shot("folded")
