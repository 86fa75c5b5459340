"""One operation on the page: what is told about it, and how it is selected."""
import pages
from browser_case import PageCase
from pages import milliseconds


class Operation(PageCase):
    """By pointer and by keys."""

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
        self.wheel(pages.GUTTER + 300, deltaY=-10)
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
        self.point_at(pages.GUTTER + 400, top + height / 2)
        self.actions().click().perform()
        self.await_text("view-operation", "of device 0 at ")
        self.assertIsNone(self.state("selected"))
        self.point_at(pages.GUTTER + 400, top + height + 2)
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
        for key, name in (("m", "memory"), ("g", "pair")):
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
