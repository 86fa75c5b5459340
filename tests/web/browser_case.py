"""What tests ask of a page in a browser."""
import os
import sys
import time
import unittest

import browser
import pages
from pages import page_of, trace_file

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from limits import SLACK  # noqa: E402


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
        self.assertEqual(browser.errors(self.driver), [])

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def open(self, page):
        browser.open_page(self.driver, page)

    def shot(self, name):
        time.sleep(0.15)  # two frames
        self.driver.save_screenshot(os.path.join(pages.ARTEFACTS, name + ".png"))

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

    def wait_until(self, happened):
        """For what the page does by itself. Ends when the page hangs, too: the test then says what it has not seen."""
        end = time.monotonic() + SLACK
        while not happened() and time.monotonic() < end:
            time.sleep(0.02)

    def await_text(self, id_, text):
        seen = lambda: self.find(id_).get_attribute("textContent")
        self.wait_until(lambda: text in seen())
        self.assertIn(text, seen())

    def view(self):
        return self.js("const v = piper.state.view; return [v.from, v.to]")

    def search(self, text):
        box = self.find("search")
        box.clear()
        box.send_keys(text)
        return self.find("matches").text


class PageCase(BrowserCase):
    """Pages of traces whose every number the test knows."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.small, cls.header, cls.events = trace_file("small", "--ranks", "4", "--microbatches", "8")
        cls.measured, _, cls.measured_events = trace_file(
            "measured", "--ranks", "4", "--microbatches", "8", "--slow", "1.1", "--noise", "0.2", "--source", "measured")
        cls.page = page_of("small", cls.small)
        cls.two = page_of("two", cls.small, cls.measured)

    def x_of(self, seconds):
        begin, end = self.view()
        return pages.GUTTER + (seconds - begin) / (end - begin) * self.state("view.width")

    def first_op(self, lane, stream):
        return next(e["op"] for e in self.events if e["lane"] == lane and e["stream"] == stream)
