"""Moving about on the page: zoom, pan, scroll, search, filters."""
import pages
from browser_case import PageCase


class Moving(PageCase):
    """What is in view, and what is found."""

    def test_zooms_pans_and_fits(self):
        self.open(self.page)
        whole = self.view()
        canvas = self.find("canvas")
        self.wheel(pages.GUTTER + self.state("view.width") / 2, deltaY=-240)
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
        right = pages.GUTTER + self.state("view.width") + 2, 26, 5, self.state("view.height")
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
        self.wheel(pages.GUTTER + 300, deltaY=50, shiftKey=True)
        self.wheel(20, deltaY=50)
        self.assertEqual(self.state("view.scroll"), 100, "with Shift, and over the names")
        event = self.event_at(1, self.first_op(1, 0))
        self.click_block(event)
        self.assertEqual(self.state("selected.event"), event)
        whole = self.view()
        self.wheel(pages.GUTTER + 300, deltaX=50)
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
        self.press("f")
        begin, end = self.view()
        self.assertAlmostEqual((end - begin) / (wanted["end"] - wanted["start"]), 3, delta=0.1)
        self.press("0", "x")
        self.await_text("view-operation", "Peak of")
        self.press("f")
        begin, end = self.view()
        self.assertAlmostEqual((whole[1] - whole[0]) / (end - begin), 8, delta=0.1)
        moment = self.js("const {trace, sample} = piper.state.moment; return trace.memory.time[sample]")
        self.assertTrue(begin <= moment <= end)
        self.js("const v = piper.state.view; [v.from, v.to] = [0.03, 0.031]")
        self.press("x")
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
        self.assertIsNone(self.block(self.event_at(2, self.first_op(2, 1))), "a row without operations takes no room")
        self.point_at(pages.GUTTER + 400, self.state("view.height"))
        self.actions().click().perform()
        self.assertEqual(self.js("return document.querySelectorAll('details[open]').length"), 0, "a click closes the menus")
        self.find("kind-menu").click()
        self.driver.find_elements("css selector", "#kinds .both button")[0].click()
        self.assertIsNone(self.state("emphasis[0]"), "all of them again")
        self.driver.find_elements("css selector", "#kinds .both button")[1].click()
        self.assertTrue(self.js("return piper.state.emphasis[0].every((e) => e === 0)"), "none of them")
