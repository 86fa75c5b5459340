"""What the page draws and writes: operations, header, axis, marks, colours."""
import pages
from browser_case import PageCase
from pages import milliseconds, page_of, trace_file


class Drawing(PageCase):
    """What is drawn is what the trace says."""

    def test_blocks_stand_where_the_trace_says(self):
        self.open(self.page)
        self.js("document.querySelector('#theme').textContent === 'Light' && document.querySelector('#theme').click()")
        begin, end = self.view()
        width = self.js("return piper.state.view.width")
        rows = {}
        for e in self.events:
            block = self.block(self.event_at(e["lane"], e["op"]))
            left = pages.GUTTER + (e["start"] - begin) / (end - begin) * width
            self.assertAlmostEqual(block["x"], left, places=6)
            self.assertAlmostEqual(block["width"], (e["end"] - e["start"]) / (end - begin) * width, places=6)
            rows.setdefault((e["lane"], e["stream"]), set()).add(block["y"])
        self.assertTrue(all(len(ys) == 1 for ys in rows.values()), "a row has one height")
        tops = [min(rows[key]) for key in sorted(rows)]
        self.assertEqual(tops, sorted(tops), "rows stand in the order of lanes and streams")

    def test_pixels_have_the_colour_of_the_pass(self):
        self.open(self.page)
        forward = self.block(self.event_at(0, 0))
        self.assertEqual(self.pixel(forward["x"] + 3, forward["y"] + 3), pages.BLUE)
        idle = self.pixel(forward["x"] - 4, forward["y"] + 3)
        track = self.js("return piper.timeline.palettes.get(piper.state.traces[0]).trackColor")
        self.assertEqual(idle, track)

    def test_narrow_operations_show_their_density(self):
        """A thousand operations in ten pixels that fill half of the time are half of the colour."""
        def squeeze(text):
            head, _ = text.split('"traceEvents": [\n')
            event = ('{"ph": "X", "pid": 1, "tid": 1, "name": "a F", "cat": "run", "ts": %.6f, "dur": 1, "args": {"op": %d, "end": %.9f, "pass": "F"}}')
            lines = [event % (i * 1e-2, i, i * 1e-8 + 5e-9) for i in range(1000)]
            lines.append(event % (1000, 1000, 0.00101))
            return head + '"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
        path, _, _ = trace_file("dense", "--ranks", "1", "--microbatches", "1", change=squeeze)
        self.open(page_of("dense", path))
        self.js("const v = piper.state.view; v.begin = 0; v.end = 1e-3; v.from = 0; v.to = 1e-3; piper.draw()")
        block = self.block(0)
        track = self.js("return piper.timeline.palettes.get(piper.state.traces[0]).trackColor")
        for found, blue, grey in zip(self.pixel(pages.GUTTER + 4, block["y"] + 2), pages.BLUE, track):
            self.assertAlmostEqual(found, (blue + grey) / 2, delta=4)

    def test_numbers_are_those_of_the_trace(self):
        self.open(self.page)
        step = max(e["end"] for e in self.events)
        self.assertAlmostEqual(milliseconds(self.number("step")), step, delta=1e-5)
        computing = sum(e["end"] - e["start"] for e in self.events if e["kind"] in ("run", "update"))
        self.assertEqual(self.number("bubble"), f"{100 * (1 - computing / (4 * step)):.1f} %")
        self.assertEqual(self.number("tokens/s"), f"{8 * 4096 / step:,.0f}")
        peak = max(self.js("return piper.state.traces[0].summary[0].lanes.map((l) => l.peak_bytes)"))
        self.assertEqual(peak, (9 << 30) + 4 * (3 << 28))
        self.assertEqual(self.number("peak memory"), "12.0 GiB of 40.0 GiB")
        self.find("tab-devices").click()
        rows = self.driver.find_elements("css selector", "#view-devices tbody tr")
        self.assertEqual(len(rows), 4)
        busy = sum(e["end"] - e["start"] for e in self.events if e["lane"] == 2 and e["kind"] in ("run", "update"))
        self.assertEqual(rows[2].find_elements("tag name", "td")[1].text, f"{100 * busy / step:.1f} %")
        self.shot("devices")

    def test_names_axis_and_marks_are_written(self):
        self.open(self.page)
        texts = self.texts()
        self.assertLessEqual({"device 0", "device 3", "compute", "p2p.send", "dp", "memory", "0", "5 ms", "35 ms", "peak 12.0 GiB", "capacity 40.0 GiB", "stage.0"}, set(texts))
        self.press("+", "+", "+", "+", "+")
        self.assertTrue(any(text.endswith("…") for text in self.texts()), "a name that is cut off says so")
        top, height = self.memory_band(0)
        self.press("0")
        peak = self.x_of(self.state("traces[0].summary[0].lanes[0].peak_time"))
        self.assertGreater(self.painted("text", peak - 4, top, 8, height), 10, "the mark of the peak")

    def with_capacity(self, name, capacity):
        path, _, _ = trace_file(name, "--ranks", "4", "--microbatches", "8", change=lambda text: text.replace(f"{40 << 30}", f"{capacity}"))
        self.open(page_of(name, path))

    def test_memory_has_one_scale_and_its_capacity(self):
        self.with_capacity("near", 20 << 30)
        top, height = self.memory_band(0)
        line = self.js("""const rows = [], [top, height, width] = arguments, {timeline} = piper, r = timeline.ratio;
            const {theme} = await import('piper/colors'), hex = theme(piper.state.dark).path, want = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
            const {data} = timeline.context.getImageData(170 * r, top * r, 60, height * r);
            for (let row = 0; row < height * r; row++) for (let x = 0; x < 60; x++)
              if (want.every((value, c) => Math.abs(data[(row * 60 + x) * 4 + c] - value) < 60)) { rows.push(row / r); break; }
            return rows""", top, height, 0)
        self.assertTrue(line, "the capacity is drawn")
        self.assertAlmostEqual(1 - line[0] / height, 1 / 1.12, delta=0.05, msg="at its height of the scale")
        heights = [self.curve_height(lane) for lane in range(4)]
        peaks = self.js("return piper.state.traces[0].summary[0].lanes.map((lane) => lane.peak_bytes)")
        for height, peak in zip(heights, peaks):
            self.assertAlmostEqual(height / heights[0], peak / peaks[0], delta=0.06, msg="lanes have one scale")

    def curve_height(self, lane):
        """Pixels of the curve of a lane at its peak."""
        top, height = self.memory_band(lane)
        return self.js("""const [lane, top, height] = arguments, {timeline, state} = piper, {trackColor} = timeline.palettes.get(state.traces[0]);
            const {data, width} = timeline.raster.image, view = state.view, r = timeline.ratio;
            const x = Math.round((state.traces[0].summary[0].lanes[lane].peak_time - view.from) / (view.to - view.from) * width) + 1;
            let count = 0;
            for (let y = Math.round((top - 26) * r); y < Math.round((top - 26 + height) * r) - 2; y++)
              count += trackColor.some((value, c) => data[(y * width + x) * 4 + c] !== value);
            return count""", lane, top, height)

    def test_a_far_capacity_is_named_off_the_scale(self):
        self.with_capacity("far", 80 << 30)
        self.assertIn("capacity 80.0 GiB, off the scale", self.texts())

    def test_what_does_not_fit_is_red_and_said(self):
        self.open(self.page)
        self.assertEqual(self.driver.find_elements("css selector", '[data-number="fits"]'), [])
        self.with_capacity("over", 10 << 30)
        self.assertEqual([self.number("fits"), self.number("peak memory")], ["does not fit", "12.0 GiB of 10.0 GiB"])
        red = self.js("""const {timeline, state} = piper, {theme} = await import('piper/colors'), [r, g, b] = theme(state.dark).over, {data, width} = timeline.raster.image;
            const rows = timeline.bands.filter((band) => band.type === 'memory').map((band) => {
              let count = 0;
              for (let y = band.y; y < band.y + band.h; y++) for (let x = 0; x < width; x++) {
                const at = (Math.round(y * timeline.ratio) * width + x) * 4;
                count += data[at] === r && data[at + 1] === g && data[at + 2] === b;
              }
              return count;
            });
            return rows""")
        self.assertGreater(red[0], 50, "12 GiB of 10")
        self.assertEqual(red[3], 0, "the last rank keeps one microbatch: 9.75 GiB")
        self.shot("does_not_fit")

    def test_packed_operations_do_not_look_idle(self):
        """Forty operations without a gap, four pixels each: no pixel has the colour of idle time, and microbatches are told apart."""
        def pack(text):
            head, _ = text.split('"traceEvents": [\n')
            event = '{"ph": "X", "pid": 1, "tid": 1, "name": "a F mb=%d", "cat": "run", "ts": %.6f, "dur": 1, "args": {"op": %d, "end": %.9f, "pass": "F", "slice": %d}}'
            return head + '"traceEvents": [\n' + ",\n".join(event % (i // 4, i * 10, i, (i + 1) * 1e-5, i // 4) for i in range(40)) + "\n]}\n"
        path, _, _ = trace_file("packed", "--ranks", "1", "--microbatches", "1", change=pack)
        self.open(page_of("packed", path))
        width = self.state("view.width")
        self.js("const v = piper.state.view; v.begin = 0; v.end = v.to = arguments[0]; v.from = 0; piper.draw()", width / 4 * 1e-5)
        line = self.js("""const {timeline} = piper, {data, width} = timeline.raster.image, y = Math.round((timeline.bands[0].y + 1) * timeline.ratio);
            return Array.from({length: 160}, (_, x) => [...data.slice((y * width + x) * 4, (y * width + x) * 4 + 3)])""")
        track = self.js("return piper.timeline.palettes.get(piper.state.traces[0]).trackColor")
        self.assertNotIn(track, line)
        edges = [x for x, color in enumerate(line) if color != pages.BLUE]
        self.assertEqual(edges, list(range(15, 160, 16)), "a darker line where a microbatch ends, and nowhere else")
        self.assertTrue(all(value < blue for x in edges for value, blue in zip(line[x], pages.BLUE)))

    def test_communication_has_the_colour_of_its_kind(self):
        self.open(self.page)
        colors = {}
        for kind in ("send", "recv", "all_reduce"):
            event = next(e for e in self.events if e["kind"] == kind)
            self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(event["lane"], event["op"]))
            self.press("f", "\ue00c")
            block = self.block(self.event_at(event["lane"], event["op"]))
            colors[kind] = self.pixel(block["x"] + block["width"] / 4, block["y"] + 2)
        self.assertEqual(colors["send"], colors["recv"])
        self.assertEqual([colors["send"], colors["all_reduce"]], [[204, 121, 167], [176, 58, 82]])

    def test_selection_and_path_are_drawn_over_the_operations(self):
        self.open(self.page)
        area = pages.GUTTER, 26, self.state("view.width"), self.state("view.height")
        marks = self.painted("text", *area)
        self.assertEqual([self.painted("strong", *area), self.painted("path", *area)], [0, 0])
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(1, self.first_op(1, 0)))
        self.assertGreater(self.painted("strong", *area), 20, "an arrow from what it waited for")
        self.assertGreater(self.painted("text", *area), marks + 40, "its outline")
        self.press("c")
        self.assertGreater(self.painted("path", *area), 500)
        self.press("c", "x")
        self.await_text("view-operation", "Peak of device 1")
        top, height = self.memory_band(1)
        self.assertGreaterEqual(self.painted("strong", pages.GUTTER, top, area[2], height), height, "a line through the moment, from top to bottom")

    def test_title_and_legend(self):
        self.open(self.page)
        self.assertEqual([self.find("title").text, self.find("about").text, self.driver.title], ["Qwen3-1.7B", "simulated with pipeline on 8x H100", "Qwen3-1.7B – Piper"])
        self.assertEqual([entry.text for entry in self.driver.find_elements("css selector", "#legend > span")], [
            "F forward", "BI backward, inputs", "BW backward, weights", "update", "send, recv", "all_reduce", "Memory", "weights", "gradients", "activations"])

    def test_light_and_dark(self):
        self.open(self.page)
        before = self.js("return document.documentElement.dataset.theme")
        self.find("theme").click()
        self.assertNotEqual(self.js("return document.documentElement.dataset.theme"), before)
        self.shot("dark" if before == "light" else "light")
