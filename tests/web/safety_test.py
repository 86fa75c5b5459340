"""What no trace and no window may do to the page."""
import json
import os

import pages
from browser_case import PageCase
from pages import page_of, trace_file


class Safety(PageCase):
    """Names are text, nothing is loaded or cut off, everything can be reached."""

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
        self.find("canvas").send_keys("x")
        self.await_text("view-operation", f"activations layer.0.{evil.split(' ')[0]}")
        self.js("await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")  # what it began has had its turn
        self.assertIsNone(self.js("return window.hacked ?? null"))
        self.assertEqual(self.js("return document.querySelectorAll('img').length"), 0)
        self.shot("evil")

    def test_loads_nothing(self):
        self.open(self.page)
        loaded = self.js("return performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => !name.startsWith('data:'))")
        self.assertEqual(loaded, [])
        with open(self.page) as file:
            self.assertNotIn("http://", file.read())

    def test_modules_that_do_not_load_are_named_at_once(self):
        with open(self.page) as file:
            whole = file.read()
        for name, old, new in [("missing", '"piper/search":', '"piper/other":'), ("broken", '"piper/search": "', '"piper/search": "data:text/javascript,let let;')]:
            path = os.path.join(pages.FOLDER, name + ".html")
            with open(path, "w") as file:
                file.write(whole.replace(old, new))
            with self.subTest(name), self.assertRaisesRegex(AssertionError, "the page cannot be drawn: .*(piper/search|SyntaxError)"):
                self.open(path)

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
        self.assertLessEqual({"search", "fit", "path", "memory", "theme", "help", "canvas", "tab-overview", "tab-operation", "tab-devices", "show-panel"}, reached)

    def test_empty_trace_says_so(self):
        path, _, _ = trace_file("empty", "--ranks", "1", "--microbatches", "1", change=lambda text: text.split('"traceEvents"')[0] + '"traceEvents": []}')
        self.open(page_of("empty", path))
        self.assertTrue(self.find("empty").is_displayed())

    def test_narrow_window_cuts_nothing_off(self):
        self.open(self.two)
        width = self.state("view.width")
        self.driver.set_window_size(1000, 700)
        try:
            self.wait_until(lambda: self.state("view.width") < width - 100)
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
