"""The page of `piper view` in a real browser: what is shown is what the trace says.

    python3 page_test.py PIPER ARTEFACTS [unittest arguments]     screenshots go to ARTEFACTS
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import make_trace

PIPER = ARTEFACTS = FOLDER = None
BLUE = [86, 180, 233]  # forward
GUTTER = 160  # pixels left of the time axis, as in web/layout.js


def piper(*arguments):
    return subprocess.run([PIPER, *arguments], capture_output=True, text=True)


def page_of(name, *traces):
    path = os.path.join(FOLDER, name + ".html")
    result = piper("view", *traces, "-o", path)
    assert result.returncode == 0, result.stderr
    return path


def trace_file(name, *arguments, change=None):
    """Writes a trace; the header and the events it has."""
    path = os.path.join(FOLDER, name + ".json")
    options = make_trace.options_of(arguments)
    header, events = make_trace.write(path, options)
    if change:
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(change(text))
    return path, header, events


def milliseconds(text):
    """12.35 ms, 600.0 µs -> seconds"""
    value, unit = text.split(" ")
    return float(value) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def bytes_text(count):
    """1536 -> 1.50 KiB, as the page writes it"""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count} B" if unit == "B" else f"{count:.{0 if count >= 100 else 1 if count >= 10 else 2}f} {unit}"


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


class BrowserCase(unittest.TestCase):
    """A browser, and what tests ask of a page. No error may be left on its console."""

    @classmethod
    def setUpClass(cls):
        cls.driver = browser.open_browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def setUp(self):
        self.driver.get_log("browser")

    def tearDown(self):
        errors = [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(errors, [])

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def open(self, page):
        browser.open_page(self.driver, page)

    def shot(self, name):
        time.sleep(0.15)  # two frames
        self.driver.save_screenshot(os.path.join(ARTEFACTS, name + ".png"))

    def find(self, id_):
        return self.driver.find_element("id", id_)

    def actions(self):
        from selenium.webdriver.common.action_chains import ActionChains
        return ActionChains(self.driver)

    def number(self, name, trace=0):
        return self.driver.find_element("css selector", f'[data-trace="{trace}"] [data-number="{name}"]').text

    def event_at(self, lane, op, trace=0, step=0):
        """Number of an operation on the page."""
        return self.js("""const t = piper.state.traces[arguments[0]];
            for (let e = 0; e < t.count; e++)
              if (t.rows[t.rowOf[e]].lane === arguments[1] && t.op[e] === arguments[2] && t.step[e] === arguments[3]) return e;
            return -1;""", trace, lane, op, step)

    def block(self, event, trace=0):
        return self.js("return piper.blockOf(arguments[0], arguments[1])", trace, event)

    def pixel(self, x, y):
        """Colour on the canvas, in pixels of the page."""
        return self.js("""const c = document.getElementById('canvas'), r = piper.timeline.ratio;
            piper.draw();
            return [...c.getContext('2d').getImageData(Math.round(arguments[0] * r), Math.round(arguments[1] * r), 1, 1).data].slice(0, 3);""", x, y)

    def painted(self, color, x, y, width, height):
        """How many pixels of a part of the canvas have a colour of the theme, after a frame that the page drew itself."""
        return self.js("""const [name, ...box] = arguments, {timeline, state} = piper, {theme} = await import('piper/colors');
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            const {data} = timeline.context.getImageData(...box.map((n) => Math.round(n * timeline.ratio))), hex = theme(state.dark)[name];
            const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
            let count = 0;
            for (let i = 0; i < data.length; i += 4) count += data[i] === red && data[i + 1] === green && data[i + 2] === blue;
            return count""", color, x, y, width, height)

    def texts(self):
        """All texts that a drawing of the canvas writes."""
        return self.js("""const own = CanvasRenderingContext2D.prototype.fillText, out = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) { out.push(text); own.call(this, text, ...rest); };
            piper.draw();
            CanvasRenderingContext2D.prototype.fillText = own;
            return out""")

    def press(self, *keys):
        for key in keys:
            self.find("canvas").send_keys(key)

    def wheel(self, x, **event):
        self.js("""document.getElementById('canvas').dispatchEvent(new WheelEvent('wheel',
            {clientX: arguments[0], clientY: 300, bubbles: true, cancelable: true, ...arguments[1]}))""", x, event)

    def state(self, what):
        return self.js(f"return piper.state.{what}")

    def click_block(self, event, trace=0):
        block, canvas = self.block(event, trace), self.find("canvas")
        x, y = block["x"] + block["width"] / 2, block["y"] + block["height"] / 2
        self.actions().move_to_element_with_offset(
            canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)).click().perform()

    def details(self):
        """The table of the panel."""
        return self.js("""const out = {};
            for (const dt of document.querySelectorAll('#view-operation dt')) out[dt.textContent] = dt.nextElementSibling.textContent;
            return out;""")

    def table(self, selector):
        """Rows of text; those of a buffer's lifetime left out."""
        return self.js("""return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map((row) => [...row.cells].map(
            (cell) => [...cell.childNodes].filter((node) => node.nodeName !== 'DIV').map((node) => node.textContent).join('')));""", selector)

    def memory_band(self, lane):
        """Top and height of a lane's memory on the canvas."""
        return self.js("""const b = piper.timeline.bands.find((b) => b.type === 'memory' && b.lane === arguments[0]);
            return [26 + b.y - piper.state.view.scroll, b.h]""", lane)

    def point_at(self, x, y):
        canvas = self.find("canvas")
        self.actions().move_to_element_with_offset(canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)).perform()

    def point_at_memory(self, lane, x):
        top, height = self.memory_band(lane)
        self.point_at(x, top + height / 2)

    def await_text(self, id_, text):
        end = time.monotonic() + 60
        while text not in self.find(id_).get_attribute("textContent") and time.monotonic() < end:
            time.sleep(0.02)
        self.assertIn(text, self.find(id_).get_attribute("textContent"))

    def view(self):
        return self.js("const v = piper.state.view; return [v.from, v.to]")

    def search(self, text):
        box = self.find("search")
        box.clear()
        box.send_keys(text)
        return self.find("matches").text


class Simulated(BrowserCase):
    """Pages of real simulations."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = os.path.join(FOLDER, "simulated.json")
        inputs = ["examples/moe.toml", "examples/dualpipe.piper", "--cluster", "clusters/h100.toml"]
        result = subprocess.run([PIPER, "simulate", *inputs, "--trace", cls.path, "--format", "json"], capture_output=True, text=True, cwd=browser.ROOT)
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
        result = subprocess.run([PIPER, "check", "examples/moe.toml", "examples/dualpipe.piper", "--cluster", "clusters/h100.toml"],
                                capture_output=True, text=True, cwd=browser.ROOT)
        line = next(line for line in result.stdout.splitlines() if line.startswith("largest on device "))
        device, owners = line.removeprefix("largest on device ").split(": ")
        self.open(self.page)
        self.find("canvas").send_keys("a")  # of the fullest device
        self.await_text("view-operation", "Peak of")
        self.assertIn(f"devices {device}, ", self.find("view-operation").find_element("tag name", "h2").text)
        rows = {f"{bytes_} {owner}" for owner, _, bytes_ in self.table("#view-operation .owners")[:-1]}
        self.assertLessEqual(set(owners.split(", ")), rows)
        self.shot("simulated_peak")

    def test_path_lasts_as_long_as_the_step(self):
        self.open(self.page)
        self.find("path").click()
        begin, end = self.js("const {trace, events} = piper.state.path[0]; return [trace.start[events[0]], trace.end[events.at(-1)]]")
        self.assertAlmostEqual(end, self.report["seconds"], places=12)
        self.assertLess(begin, self.report["seconds"] * 0.01)
        self.shot("simulated_path")


class Page(BrowserCase):
    """Pages of traces whose every number the test knows."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.small, cls.header, cls.events = trace_file("small", "--ranks", "4", "--microbatches", "8")
        cls.measured, _, cls.measured_events = trace_file(
            "measured", "--ranks", "4", "--microbatches", "8", "--slow", "1.1", "--noise", "0.2", "--source", "measured")
        cls.page = page_of("small", cls.small)
        cls.two = page_of("two", cls.small, cls.measured)

    # ---- what is drawn

    def test_blocks_stand_where_the_trace_says(self):
        self.open(self.page)
        self.js("document.querySelector('#theme').textContent === 'Light' && document.querySelector('#theme').click()")
        begin, end = self.view()
        width = self.js("return piper.state.view.width")
        rows = {}
        for e in self.events:
            block = self.block(self.event_at(e["lane"], e["op"]))
            left = GUTTER + (e["start"] - begin) / (end - begin) * width
            self.assertAlmostEqual(block["x"], left, places=6)
            self.assertAlmostEqual(block["width"], (e["end"] - e["start"]) / (end - begin) * width, places=6)
            rows.setdefault((e["lane"], e["stream"]), set()).add(block["y"])
        self.assertTrue(all(len(ys) == 1 for ys in rows.values()), "a row has one height")
        tops = [min(rows[key]) for key in sorted(rows)]
        self.assertEqual(tops, sorted(tops), "rows stand in the order of lanes and streams")

    def test_pixels_have_the_colour_of_the_pass(self):
        self.open(self.page)
        forward = self.block(self.event_at(0, 0))
        self.assertEqual(self.pixel(forward["x"] + 3, forward["y"] + 3), BLUE)
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
        for found, blue, grey in zip(self.pixel(GUTTER + 4, block["y"] + 2), BLUE, track):
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
        self.assertEqual(self.number("peak memory"), "12.0 GiB")
        self.find("tab-devices").click()
        rows = self.driver.find_elements("css selector", "#view-devices tbody tr")
        self.assertEqual(len(rows), 4)
        busy = sum(e["end"] - e["start"] for e in self.events if e["lane"] == 2 and e["kind"] in ("run", "update"))
        self.assertEqual(rows[2].find_elements("tag name", "td")[1].text, f"{100 * busy / step:.1f} %")
        self.shot("devices")

    def test_names_axis_and_marks_are_written(self):
        self.open(self.page)
        texts = self.texts()
        self.assertLessEqual({"device 0", "device 3", "compute", "p2p.send", "dp", "memory", "0", "5 ms", "35 ms", "peak 12.0 GiB of 40.0 GiB", "stage.0"}, set(texts))
        self.press("+", "+", "+", "+")
        self.assertTrue(any(text.endswith("…") for text in self.texts()), "a name that is cut off says so")
        top, height = self.memory_band(0)
        self.press("0")
        peak = self.x_of(self.state("traces[0].summary[0].lanes[0].peak_time"))
        self.assertGreater(self.painted("text", peak - 4, top, 8, height), 10, "the mark of the peak")

    def x_of(self, seconds):
        begin, end = self.view()
        return GUTTER + (seconds - begin) / (end - begin) * self.state("view.width")

    def test_capacity_is_marked_where_it_is_near(self):
        path, _, _ = trace_file("near", "--ranks", "2", "--microbatches", "4", change=lambda text: text.replace(f"{40 << 30}", f"{12 << 30}"))
        self.open(page_of("near", path))
        self.assertIn("capacity 12.0 GiB", self.texts())

    def test_selection_and_path_are_drawn_over_the_operations(self):
        self.open(self.page)
        area = GUTTER, 26, self.state("view.width"), self.state("view.height")
        marks = self.painted("text", *area)
        self.assertEqual([self.painted("strong", *area), self.painted("path", *area)], [0, 0])
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(1, self.first_op(1, 0)))
        self.assertGreater(self.painted("strong", *area), 20, "an arrow from what it waited for")
        self.assertGreater(self.painted("text", *area), marks + 40, "its outline")
        self.press("c")
        self.assertGreater(self.painted("path", *area), 500)
        self.press("c", "a")
        self.await_text("view-operation", "Peak of device 1")
        top, height = self.memory_band(1)
        self.assertGreater(self.painted("strong", GUTTER, top, area[2], height), height, "a line through the moment")

    def test_title_and_legend(self):
        self.open(self.page)
        self.assertEqual([self.find("title").text, self.find("about").text, self.driver.title], ["Qwen3-1.7B", "simulated on 8x H100", "Qwen3-1.7B – Piper"])
        self.assertEqual([entry.text for entry in self.driver.find_elements("css selector", "#legend > span")], [
            "F forward", "BI backward, inputs", "BW backward, weights", "communication without pass", "update", "Memory", "weights", "gradients", "activations"])

    # ---- moving about

    def test_zooms_pans_and_fits(self):
        self.open(self.page)
        whole = self.view()
        canvas = self.find("canvas")
        self.wheel(GUTTER + self.state("view.width") / 2, deltaY=-240)
        near = self.view()
        self.assertLess(near[1] - near[0], (whole[1] - whole[0]) * 0.8)
        self.assertAlmostEqual(sum(near) / 2, sum(whole) / 2, delta=(whole[1] - whole[0]) * 0.01, msg="the moment under the pointer stays")
        self.actions().move_to_element(canvas).click_and_hold().move_by_offset(-100, 0).release().perform()
        self.assertGreater(self.view()[0], near[0])
        canvas.send_keys("0")
        self.assertEqual(self.view(), whole)
        canvas.send_keys("+")
        self.assertLess(self.view()[1] - self.view()[0], whole[1] - whole[0])
        from selenium.webdriver.common.keys import Keys
        before = self.view()
        canvas.send_keys(Keys.ARROW_RIGHT)
        self.assertGreater(self.view()[0], before[0])
        self.find("fit").click()
        self.assertEqual(self.view(), whole)
        self.find("zoom-in").click()
        self.find("zoom-out").click()
        self.assertAlmostEqual(self.view()[0], whole[0])
        self.assertAlmostEqual(self.view()[1], whole[1])
        self.find("zoom-in").click()
        self.assertLess(self.view()[1], whole[1])

    def test_scrolls_where_lanes_are_high(self):
        from selenium.webdriver.common.keys import Keys
        self.open(self.page)
        right = GUTTER + self.state("view.width") + 2, 26, 5, self.state("view.height")
        self.assertEqual(self.state("view.scroll"), 0)
        height = self.memory_band(0)[1]
        for _ in range(5):
            self.find("higher").click()
        self.assertGreater(self.memory_band(0)[1], 2 * height)
        self.assertGreater(self.js("const v = piper.state.view; return v.content - v.height"), 600)
        self.assertNotEqual(self.pixel(right[0] + 2, 30), self.pixel(right[0] + 2, 26 + right[3] - 3), "a scroll bar, at its upper end")
        self.press(Keys.ARROW_DOWN)
        self.assertEqual(self.state("view.scroll"), 60)
        self.press(Keys.PAGE_DOWN, Keys.ARROW_UP)
        self.assertAlmostEqual(self.state("view.scroll"), 0.9 * self.state("view.height"))
        self.press("0")
        self.assertEqual(self.state("view.scroll"), 0)
        self.wheel(GUTTER + 300, deltaY=50, shiftKey=True)
        self.wheel(20, deltaY=50)
        self.assertEqual(self.state("view.scroll"), 100, "with Shift, and over the names")
        event = self.event_at(1, self.first_op(1, 0))
        self.click_block(event)
        self.assertEqual(self.state("selected.event"), event)
        whole = self.view()
        self.wheel(GUTTER + 300, deltaX=50)
        self.assertGreater(self.view()[0], whole[0], "a wheel that turns sideways pans")
        self.press("0", ".", *"jjjjj")
        self.assertLess(self.block(self.state("selected.event"))["y"], 26 + self.state("view.height"), "what is selected comes into view")
        self.press("0")
        self.find("tab-devices").click()
        self.driver.find_elements("css selector", "#view-devices tbody button")[3].click()
        self.assertLessEqual(sum(self.memory_band(3)), 26 + self.state("view.height"), "memory too")
        before = self.state("view.scroll")
        self.actions().move_to_element(self.find("canvas")).click_and_hold().move_by_offset(0, 40).release().perform()
        self.assertEqual(self.state("view.scroll"), before - 40, "lanes can be dragged")
        self.press("[", "[", "[")
        self.find("lower").click()
        self.find("lower").click()
        self.assertEqual([self.memory_band(0)[1], self.state("view.scroll")], [height, 0])

    def test_what_is_selected_comes_into_view_and_can_be_zoomed_to(self):
        self.open(self.page)
        whole, wanted = self.view(), max(self.events, key=lambda e: e["start"])
        self.js("const v = piper.state.view; [v.from, v.to] = [0, 1e-3]")
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(wanted["lane"], wanted["op"]))
        begin, end = self.view()
        self.assertTrue(begin <= wanted["start"] and wanted["end"] <= end)
        self.press("s")
        begin, end = self.view()
        self.assertAlmostEqual((end - begin) / (wanted["end"] - wanted["start"]), 3, delta=0.1)
        self.press("0", "a")
        self.await_text("view-operation", "Peak of")
        self.press("s")
        begin, end = self.view()
        self.assertAlmostEqual((whole[1] - whole[0]) / (end - begin), 8, delta=0.1)
        moment = self.js("const {trace, sample} = piper.state.moment; return trace.memory.time[sample]")
        self.assertTrue(begin <= moment <= end)
        self.js("const v = piper.state.view; [v.from, v.to] = [0.03, 0.031]")
        self.press("a")
        begin, end = self.view()
        self.assertTrue(begin <= moment <= end)

    def test_matches_are_visited_in_order_of_time(self):
        self.open(self.page)
        self.search("layer=3 pass=BI")
        wanted = sorted((e for e in self.events if e["name"].startswith("layer.3.") and e["pass_"] == "BI"), key=lambda e: e["start"])
        visited = []
        for key in "pnnppp":
            self.press(key)
            visited.append(self.details()["plan operation"])
        self.assertEqual(visited, [f"{wanted[i]['op']}" for i in (-1, 0, 1, 0, -1, -2)])
        self.find("search").send_keys("\ue00c")  # Escape
        self.assertEqual([self.find("search").get_attribute("value"), self.find("matches").text, self.state("emphasis[0]")], ["", "", None])
        self.assertEqual(self.js("return document.activeElement.id"), "canvas")

    def test_a_tag_of_the_selection_searches_for_it(self):
        self.open(self.page)
        self.press(".")
        tags = self.driver.find_elements("css selector", "#view-operation .tag")
        next(tag for tag in tags if tag.text == "mb=0").click()
        next(tag for tag in tags if tag.text == "pass=F").click()
        self.assertEqual(self.find("search").get_attribute("value"), "mb=0 pass=F")
        found = [e for e in self.events if e["slice"] == 0 and e["pass_"] == "F"]
        self.assertEqual(self.find("matches").text, f"{len(found)} operations")
        self.assertEqual(self.js("return piper.state.emphasis[0].reduce((n, e) => n + (e === 2), 0)"), len(found), "the others fade")

    def test_search_finds_by_tags(self):
        self.open(self.page)
        wanted = [e for e in self.events if e["name"].startswith("layer.3.") and e["slice"] == 2 and e["pass_"] == "BI"]
        self.assertEqual(self.search("layer=3 mb=2 pass=BI"), f"{len(wanted)} operation")
        self.shot("search")
        self.find("search").send_keys("\n")
        self.assertEqual(self.details()["plan operation"], f"{wanted[0]['op']}")
        backward = [e for e in self.events if e["pass_"] in ("BI", "BW") and e["kind"] == "run"]
        self.assertEqual(self.search("pass=B kind=run"), f"{len(backward)} operations")
        layers = [e for e in self.events if e["name"].split(".")[0] == "layer" and int(e["name"].split(".")[1]) <= 2 and e["slice"] in (0, 5)]
        self.assertEqual(self.search("layer=0..2 mb=[0, 5]"), f"{len(layers)} operations")
        self.assertEqual(self.search("device=1 stream=p2p.send"), f"{sum(e['lane'] == 1 and e['stream'] == 1 for e in self.events)} operations")
        self.assertEqual(self.search("layer=77"), "no operation")
        self.assertEqual(self.search("attention"), f"{sum('attention' in e['name'] for e in self.events)} operations")

    def test_filters_hide(self):
        self.open(self.page)
        self.find("device-menu").click()
        self.shot("filter")
        self.driver.find_elements("css selector", "#devices input")[1].click()
        self.assertIsNone(self.block(self.event_at(1, 0)))
        self.assertIsNotNone(self.block(self.event_at(2, 0)))
        self.find("stream-menu").click()
        self.driver.find_elements("css selector", "#streams input")[0].click()
        self.assertIsNone(self.block(self.event_at(2, self.first_op(2, 0))))
        self.find("kind-menu").click()
        kinds = self.js("return piper.state.traces[0].kinds")
        self.driver.find_elements("css selector", "#kinds input")[kinds.index("send")].click()
        self.assertEqual(self.js("const t = piper.state.traces[0]; return piper.state.emphasis[0][t.kind.indexOf(t.kinds.indexOf('send'))]"), 0)
        self.assertTrue(self.js("return document.getElementById('kind-menu').classList.contains('narrowed')"))
        self.click_block(self.event_at(2, self.first_op(2, 1)))
        self.assertEqual([self.state("selected"), self.js("return document.querySelectorAll('details[open]').length")], [None, 0], "what is hidden cannot be selected; a click closes the menus")
        self.find("kind-menu").click()
        self.driver.find_elements("css selector", "#kinds .both button")[0].click()
        self.assertIsNone(self.state("emphasis[0]"), "all of them again")
        self.driver.find_elements("css selector", "#kinds .both button")[1].click()
        self.assertTrue(self.js("return piper.state.emphasis[0].every((e) => e === 0)"), "none of them")

    def first_op(self, lane, stream):
        return next(e["op"] for e in self.events if e["lane"] == lane and e["stream"] == stream)

    # ---- one operation

    def test_pointing_at_an_operation_tells_what_it_is(self):
        self.open(self.page)
        wanted = next(e for e in self.events if e["kind"] == "all_reduce")
        block = self.block(self.event_at(wanted["lane"], wanted["op"]))
        self.point_at(block["x"] + block["width"] / 2, block["y"] + 2)
        self.await_text("tip", f"all_reduce {wanted['name']}")
        self.assertRegex(self.find("tip").text, r"4\.000? ms from [0-9.]+ ms, 256 MiB")
        self.point_at(20, block["y"] + 2)
        self.assertFalse(self.find("tip").is_displayed(), "nothing over the names")
        self.point_at(block["x"] + block["width"] / 2, block["y"] + 2)
        self.await_text("tip", "all_reduce")
        self.wheel(GUTTER + 300, deltaY=-10)
        self.assertFalse(self.find("tip").is_displayed(), "nor when the view moves")

    def test_a_pointer_that_has_gone_on_is_told_nothing(self):
        self.open(self.page)
        top, height = self.memory_band(0)
        hidden = self.js("""const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 500, clientY: box.top + arguments[0]}));
            canvas.dispatchEvent(new PointerEvent('pointerleave'));
            await piper.state.traces[0].buffersLoading;
            await new Promise((done) => requestAnimationFrame(done));
            return document.getElementById('tip').hidden""", top + height / 2)
        self.assertTrue(hidden, "its buffers came too late")

    def test_a_click_selects_without_moving(self):
        self.open(self.page)
        self.press("+", "+")
        view = self.view()
        middle = self.js("const v = piper.state.view, t = piper.state.traces[0]; let e = t.rows[0].first; while (t.start[e] < v.from || t.end[e] > v.to) e++; return e")
        self.click_block(middle)
        self.assertEqual([self.state("selected.event"), self.view()], [middle, view])
        top, height = self.memory_band(0)
        self.point_at(GUTTER + 400, top + height / 2)
        self.actions().click().perform()
        self.await_text("view-operation", "of device 0 at ")
        self.assertIsNone(self.state("selected"))
        self.point_at(GUTTER + 400, top + height + 2)
        self.actions().click().perform()
        self.assertEqual([self.state("moment"), self.find("selected-text").get_attribute("textContent")], [None, ""], "where nothing is, nothing is selected")

    def test_selection_tells_everything(self):
        self.open(self.page)
        wanted = next(e for e in self.events if e["lane"] == 1 and e["kind"] == "send" and e["pass_"] == "F" and e["slice"] == 1)
        self.click_block(self.event_at(1, wanted["op"]))
        details = self.details()
        self.assertEqual(details["kind"], "send")
        self.assertEqual(details["device"], "1")
        self.assertEqual(details["stream"], "p2p.send")
        self.assertEqual(details["plan operation"], f"{wanted['op']}")
        self.assertAlmostEqual(milliseconds(details["start"]), wanted["start"], delta=1e-6)
        self.assertAlmostEqual(milliseconds(details["duration"]), wanted["end"] - wanted["start"], delta=1e-7)
        self.assertEqual(details["bytes"], "16.0 MiB (16,777,216)")
        panel = self.find("view-operation").text
        self.assertIn("pipeline.piper:3", panel)
        self.assertIn("place({}, along=pp", panel)
        self.assertIn("mb=1", panel)
        self.assertIn("Its stream was free for", panel)
        cause = next(e for e in self.events if [e["lane"], e["op"]] == wanted["cause"])
        self.assertIn(f"run {cause['name']}", panel)
        self.shot("selection")
        self.driver.find_element("css selector", "#view-operation .link").click()
        self.assertEqual(self.details()["plan operation"], f"{cause['op']}", "a link leads there")
        self.assertIn(wanted["name"], self.find("view-operation").text, "and it says who waits for it")

    def test_selection_by_keys_is_spoken(self):
        self.open(self.page)
        canvas = self.find("canvas")
        canvas.send_keys(".")
        self.assertIn("run layer.0.attention F mb=0", self.find("selected-text").get_attribute("textContent"))
        self.press(*"........j")
        self.assertIn("device 0, stream p2p.send", self.find("selected-text").get_attribute("textContent"))
        rows = [sorted((e for e in self.events if e["lane"] == 0 and e["stream"] == stream), key=lambda e: e["start"]) for stream in (0, 1)]
        nearest = min(rows[1], key=lambda e: abs(e["start"] - rows[0][8]["start"]))
        self.assertEqual(self.details()["plan operation"], f"{nearest['op']}", "at about the same time")
        canvas.send_keys("?")
        self.assertTrue(self.js("return document.getElementById('keys').open"))
        self.shot("keys")
        self.actions().send_keys("\ue00c").perform()
        self.press("\ue00c")
        self.assertEqual([self.state("selected"), self.find("selected-text").get_attribute("textContent")], [None, ""])
        self.press("/")
        self.assertEqual(self.js("return document.activeElement.id"), "search")

    def test_keys_switch_what_is_shown(self):
        self.open(self.two)
        for key, name in (("m", "memory"), ("d", "pair")):
            before = self.state(name)
            self.press(key)
            self.assertEqual([self.state(name), self.find(name).get_attribute("aria-pressed")], [not before, f"{not before}".lower()])
        self.assertFalse(self.js("return piper.timeline.bands.some((band) => band.type === 'memory')"))
        theme = self.js("return document.documentElement.dataset.theme")
        self.press("t", "c")
        self.assertNotEqual(self.js("return document.documentElement.dataset.theme"), theme)
        self.assertEqual([self.find("path").get_attribute("aria-pressed"), self.js("return piper.state.path.length")], ["true", 2])
        self.press("t", "c")
        self.assertEqual([self.state("path"), self.state("emphasis")], [None, [None, None]])
        view = self.view()
        self.find("zoom-in").send_keys("m", "\ue014")  # the right arrow
        self.assertEqual([self.state("memory"), self.view()], [True, view], "a button keeps its arrows")

    def test_critical_path_reaches_from_start_to_end(self):
        self.open(self.page)
        self.find("path").click()
        path = self.js("const {trace, events} = piper.state.path[0]; return events.map((e) => [trace.rows[trace.rowOf[e]].lane, trace.op[e]])")
        events = {(e["lane"], e["op"]): e for e in self.events}
        self.assertAlmostEqual(events[tuple(path[-1])]["end"], max(e["end"] for e in self.events))
        self.assertEqual(events[tuple(path[0])]["start"], 0)
        for before, after in zip(path, path[1:]):
            self.assertEqual(events[tuple(after)]["cause"], before)
        self.shot("critical_path")

    # ---- memory

    def test_hovering_memory_shows_what_is_alive(self):
        self.open(self.page)
        begin, end = self.view()
        width = self.js("return piper.state.view.width")
        lane, memory = 1, Memory(self.small, 1)
        for share in (0.05, 0.35, 0.5, 0.7, 0.93):
            x = GUTTER + round(share * width)
            self.point_at_memory(lane, x)
            column = [begin + (x - GUTTER + i) / width * (end - begin) for i in (0, 1)]
            sample = memory.fullest(*column)
            self.await_text("tip", "Memory of device 1 at ")
            title = self.driver.find_element("css selector", "#tip .head").text
            self.assertAlmostEqual(milliseconds(title.split(" at ")[1]), sample[0], delta=1e-5)
            self.assertIn("alive " + bytes_text(sum(sample[1].values())), self.find("tip").text)
            self.assertEqual(self.table("#tip .categories"), memory.rows_of_categories(sample))
            self.assertEqual(self.table("#tip .buffers"), memory.rows_of_buffers(sample[2], 8))
            self.assertEqual(sum(b[2] for b in memory.alive(sample[2])), sum(sample[1].values()), "nothing is missing")
            if share == 0.5:
                self.shot("memory")

    def test_the_marked_peak_lists_its_owners(self):
        self.open(self.page)
        peak = self.js("return piper.state.traces[0].summary[0].lanes[2].peak_time")
        begin, end = self.view()
        x = GUTTER + (peak - begin) / (end - begin) * self.js("return piper.state.view.width")
        self.point_at_memory(2, x - 3)
        self.await_text("tip", "Peak of device 2 at ")
        memory = Memory(self.small, 2)
        sample = memory.fullest(0, 1)
        owners = self.table("#tip .owners")
        self.assertIn("alive " + bytes_text(sum(sample[1].values())), self.find("tip").text)
        self.assertEqual(sorted(owners), memory.owners(sample[2]), "with few owners all of them are listed")
        self.assertGreater(len(owners), 3)
        self.shot("memory_peak")

    def test_memory_can_be_reached_by_keys(self):
        self.open(self.page)
        canvas, memory = self.find("canvas"), Memory(self.small, 0)
        canvas.send_keys("a")
        sample = memory.fullest(0, 1)
        self.await_text("selected-text", f"{bytes_text(sum(sample[1].values()))} alive, activations {bytes_text(sample[1]['activations'])}")
        self.assertIn(f"largest: weights {memory.alive(sample[2])[0][3]} 3.00 GiB", self.find("selected-text").get_attribute("textContent"))
        self.assertEqual(self.find("view-operation").find_element("tag name", "h2").text.split(" at ")[0], "Peak of device 0")
        self.assertEqual(self.table("#view-operation .buffers"), memory.rows_of_buffers(sample[2], 30))
        self.shot("memory_panel")
        canvas.send_keys(".")
        after = memory.samples[memory.samples.index(sample) + 1]
        self.await_text("selected-text", f"{bytes_text(sum(after[1].values()))} alive")
        self.assertEqual(self.table("#view-operation .categories"), memory.rows_of_categories(after))
        canvas.send_keys(",")
        self.await_text("selected-text", "Peak of device 0")
        canvas.send_keys("k")
        self.assertIn("device 0, stream ", self.find("selected-text").get_attribute("textContent"))
        canvas.send_keys("j")
        self.await_text("selected-text", "of device 0 at ")
        canvas.send_keys("j")
        self.assertIn("device 1, stream compute", self.find("selected-text").get_attribute("textContent"))

    def test_selected_memory_leads_to_its_operations(self):
        self.open(self.page)
        self.find("tab-devices").click()
        self.driver.find_elements("css selector", "#view-devices tbody button")[3].click()
        self.await_text("view-operation", "Peak of device 3")
        memory = Memory(self.small, 3)
        held = next(b for b in memory.alive(memory.fullest(0, 1)[2]) if b[4] >= 0)
        self.assertIn("outlives the step", self.find("view-operation").text)
        self.driver.find_elements("css selector", "#view-operation .buffers button")[0].click()
        self.assertEqual(self.details()["plan operation"], f"{held[4]}", "the operation that takes the largest activation")
        self.assertEqual(self.details()["device"], "3")

    def test_traces_without_buffers_show_categories(self):
        path, _, _ = trace_file("no_buffers", "--ranks", "2", "--microbatches", "4", change=lambda text: text.replace("piper_buffers", "other"))
        self.open(page_of("no_buffers", path))
        self.point_at_memory(0, 500)
        self.await_text("tip", "weights6.00 GiB")
        self.assertEqual(self.table("#tip .buffers"), [])
        self.find("canvas").send_keys("a")
        self.await_text("view-operation", "The trace does not say which buffers are alive.")

    def test_damaged_buffers_say_so(self):
        with open(self.page) as file:
            head, tail = file.read().split('x-piper-buffers">')
        path = os.path.join(FOLDER, "damaged.html")
        with open(path, "w") as file:
            file.write(head + 'x-piper-buffers">AAAA' + tail[4:])
        self.open(path)
        self.find("canvas").send_keys("a")
        self.await_text("view-operation", "The buffers in this page cannot be read")

    # ---- several traces, several steps

    def test_comparison(self):
        self.open(self.two)
        self.assertLess(milliseconds(self.number("step", 0)), milliseconds(self.number("step", 1)))
        self.find("tab-compare").click()
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

    def test_steps_can_be_picked(self):
        path, header, events = trace_file("steps", "--ranks", "2", "--microbatches", "4", "--steps", "3", "--noise", "0.5")
        self.open(page_of("steps", path))
        self.assertEqual(self.find("step").text.split(), ["10", "11", "12", "all"])
        self.assertLess(self.view()[1], header["steps"][0][2] * 1.05, "the first is shown")
        for number, (_, begin, end) in enumerate(header["steps"]):
            self.js("const s = document.getElementById('step'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", f"{number}")
            self.assertAlmostEqual(milliseconds(self.number("step")), end - begin, delta=1e-5)
            first = self.block(self.event_at(0, 0, step=number))
            self.assertAlmostEqual(first["x"], self.js("return arguments[0] + (0 - piper.state.view.from) / (piper.state.view.to - piper.state.view.from) * piper.state.view.width", GUTTER), places=3)
        self.shot("steps")
        self.find("path").click()
        self.search("kind=update")
        self.js("piper.select({trace: piper.state.traces[0], event: arguments[0]})", self.event_at(0, 0, step=1))
        self.assertEqual([self.find("step").get_attribute("value"), self.details()["step"]], ["1", "11"], "its step is shown")
        self.assertEqual(self.js("const {trace, events} = piper.state.path[0]; return [...new Set(events.map((e) => trace.step[e]))]"), [1])
        self.assertEqual(self.find("matches").text, "2 operations")
        self.press("a")
        self.await_text("view-operation", "Peak of")
        self.js("const s = document.getElementById('step'); s.value = '-1'; s.dispatchEvent(new Event('change'))")
        self.assertIsNone(self.state("moment"), "it was one of another step")
        self.assertEqual(self.find("matches").text, "6 operations")
        self.assertGreater(self.view()[1], header["seconds"])

    def test_light_and_dark(self):
        self.open(self.page)
        before = self.js("return document.documentElement.dataset.theme")
        self.find("theme").click()
        self.assertNotEqual(self.js("return document.documentElement.dataset.theme"), before)
        self.shot("dark" if before == "light" else "light")

    # ---- safety

    def test_names_are_text(self):
        evil = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'
        quoted = json.dumps(evil)[1:-1]
        def change(text):
            return text.replace("attention", quoted).replace("Qwen3-1.7B", quoted).replace("place({}", quoted).replace("p2p.send", quoted)
        path, _, events = trace_file("evil", "--ranks", "2", "--microbatches", "2", change=change)
        self.open(page_of("evil", path))
        self.click_block(self.event_at(0, 0))
        self.assertIn("<script>", self.find("view-operation").find_element("tag name", "h2").text)
        self.assertEqual(self.find("title").text, evil)
        self.search("<script>")
        self.point_at_memory(0, 700)
        self.await_text("tip", "<script>")
        self.find("canvas").send_keys("a")
        self.await_text("view-operation", f"activations layer.0.{evil.split(' ')[0]}")
        time.sleep(0.2)
        self.assertIsNone(self.js("return window.hacked ?? null"))
        self.assertEqual(self.js("return document.querySelectorAll('img').length"), 0)
        self.shot("evil")

    def test_loads_nothing(self):
        self.open(self.page)
        loaded = self.js("return performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => !name.startsWith('data:'))")
        self.assertEqual(loaded, [])
        with open(self.page) as file:
            self.assertNotIn("http://", file.read())

    def test_controls_can_be_reached_and_have_names(self):
        self.open(self.page)
        unnamed = self.js("""return [...document.querySelectorAll('button, input:not([type=checkbox]), select, canvas')]
            .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))).map((e) => e.id)""")
        self.assertEqual(unnamed, [])
        from selenium.webdriver.common.keys import Keys
        reached = set()
        for _ in range(30):
            self.actions().send_keys(Keys.TAB).perform()
            reached.add(self.js("return document.activeElement.id"))
        self.assertLessEqual({"search", "fit", "path", "memory", "theme", "help", "canvas", "tab-operation", "tab-devices"}, reached)

    def test_empty_trace_says_so(self):
        path, _, _ = trace_file("empty", "--ranks", "1", "--microbatches", "1", change=lambda text: text.split('"traceEvents"')[0] + '"traceEvents": []}')
        self.open(page_of("empty", path))
        self.assertTrue(self.find("empty").is_displayed())

    def test_narrow_window_cuts_nothing_off(self):
        self.open(self.two)
        width = self.state("view.width")
        self.driver.set_window_size(1000, 700)
        try:
            time.sleep(0.15)  # two frames
            self.assertLess(self.state("view.width"), width - 100, "the canvas follows the window")
            self.open(self.two)
            outside = self.js("""return [...document.querySelectorAll('header *, nav > *, nav button')].filter((e) => {
                const box = e.getBoundingClientRect(); return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1); }).map((e) => e.id || e.className)""")
            self.assertEqual(outside, [])
            self.point_at_memory(1, 500)
            self.await_text("tip", "of device 1 at ")
            inside = self.js("""const tip = document.getElementById('tip').getBoundingClientRect(), plot = document.getElementById('plot').getBoundingClientRect();
                return tip.left >= plot.left && tip.right <= plot.right && tip.top >= plot.top && tip.bottom <= innerHeight;""")
            self.assertTrue(inside, "what is alive is not cut off")
            self.shot("narrow")
        finally:
            self.driver.set_window_size(1500, 1000)


class Program(unittest.TestCase):
    """What `piper view` refuses, and its picture. Needs no browser."""

    def refused(self, name, text, code):
        path, page = os.path.join(FOLDER, name), os.path.join(FOLDER, name + ".html")
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
        self.assertEqual(piper("view", os.path.join(FOLDER, "missing.json"), "-o", "x.html").returncode, 1)
        self.assertEqual(piper("view", path, "-o", os.path.join(FOLDER, "no", "such", "folder.html")).returncode, 3)

    def test_picture_for_papers(self):
        path, _, _ = trace_file("sixteen", "--ranks", "16", "--microbatches", "64")
        picture = os.path.join(ARTEFACTS, "sixteen.svg")
        self.assertEqual(piper("view", path, "--svg", "-o", picture).returncode, 0)
        self.assertLess(os.path.getsize(picture), 300_000)
        root = ElementTree.parse(picture).getroot()
        space = "{http://www.w3.org/2000/svg}"
        numbers = [text.text for text in root.iter(space + "text")]
        self.assertEqual(sum(text.startswith("device ") for text in numbers), 16)
        blocks = sum(path.get("d").count("M") for path in root.iter(space + "path") if path.get("fill") == "#56b4e9")
        self.assertEqual(blocks, 16 * 64, "a block for every forward")


if __name__ == "__main__":
    PIPER, ARTEFACTS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    no_browser = browser.missing()
    os.makedirs(ARTEFACTS, exist_ok=True)
    with tempfile.TemporaryDirectory() as FOLDER:
        chosen = ["Program"] if no_browser else sys.argv[3:]
        passed = unittest.main(argv=[sys.argv[0], *chosen], exit=False).result.wasSuccessful()
    if passed:
        browser.require()
    sys.exit(not passed)
