"""What is seen, for others: the address, and pictures."""
import base64
import os
import xml.etree.ElementTree as ElementTree

import pages
from browser_case import PageCase


class Sharing(PageCase):
    """Addresses, files, and frames that are never empty."""

    def fragment(self):
        """Of the address, when the page has written there what is seen; it does so when it has come to rest."""
        written = lambda: self.js("return location.hash.slice(1)")
        seen = self.js("return (await import('piper/permalink')).fragmentOf(piper.state)")
        self.wait_until(lambda: written() == seen)
        self.assertEqual(written(), seen)
        return seen

    def test_the_address_leads_back(self):
        self.open(self.two)
        self.press("w", "w", "d", "c", "m", "g", "b")
        self.search("layer=3 pass=BI")
        event = self.event_at(1, 5, trace=1)
        self.js("piper.select({trace: piper.state.traces[1], event: arguments[0]})", event)
        self.find("kind-menu").click()
        self.driver.find_elements("css selector", "#kinds input")[1].click()
        self.find("kind-menu").click()
        seen = lambda: self.js("""const {state} = piper, {view} = state; return [view.from, view.to, state.memory, state.pair, state.panel, state.path !== null,
            document.getElementById('search').value, document.getElementById('matches').textContent, state.selected?.trace.index, state.selected?.event, [...state.hiddenKinds]]""")
        before, fragment = seen(), self.fragment()
        self.driver.get("about:blank")
        self.open(f"{self.two}#{fragment}")
        after = seen()
        for was, became in zip(before[:2], after[:2]):
            self.assertAlmostEqual(was, became, delta=1e-7)
        self.assertEqual(before[2:], after[2:])
        self.assertEqual(self.find("memory").get_attribute("aria-pressed"), "false")

    def test_a_page_that_was_only_opened_has_a_plain_address(self):
        self.open(self.page)
        self.js("await new Promise((done) => setTimeout(done, 500))")  # a timer of the page, which ends after the one that writes the address
        self.assertEqual(self.driver.current_url.partition("#")[2], "")

    def test_a_wrong_address_shows_what_it_can(self):
        self.open(f"{self.page}#time=5,1&operation=7,x,9&range=a&step=99&scroll=-4&hideKinds=nothing")
        self.assertEqual([self.state("selected"), self.state("range")], [None, None])
        self.assertEqual(self.state("step"), 0)

    def test_a_range_is_in_the_address(self):
        self.open(f"{self.page}#range=0.002,0.004")
        self.assertEqual(self.state("range"), {"from": 0.002, "to": 0.004})
        self.assertIn("2.000 ms from 2.000 ms", self.find("view-operation").text)

    def test_svg_has_the_blocks_and_names_that_are_seen(self):
        self.open(self.page)
        text = self.js("return piper.svg()")
        with open(os.path.join(pages.ARTEFACTS, "export.svg"), "w") as file:
            file.write(text)
        space, root = "{http://www.w3.org/2000/svg}", ElementTree.fromstring(text)
        texts = {node.text for node in root.iter(space + "text")}
        self.assertLessEqual({"device 0", "device 3", "compute", "5 ms", "capacity 40.0 GiB", "peak 12.0 GiB"}, texts)
        first = self.block(self.event_at(0, 0))
        blues = [node for node in root.iter(space + "rect") if node.get("fill") == "rgb(86 180 233)"]
        self.assertAlmostEqual(min(float(node.get("x")) for node in blues), first["x"], delta=0.02)
        forwards = [e for e in self.events if e["kind"] == "run" and e["pass_"] == "F"]
        self.assertEqual(len(blues), len(forwards), "a block for every forward that is wide enough")
        self.js("const {view} = piper.state; view.end = 20 * view.to; view.to = view.end; piper.draw()")
        merged = sum(node.get("fill") == "rgb(86 180 233)" for node in ElementTree.fromstring(self.js("return piper.svg()")).iter(space + "rect"))
        self.assertLess(merged, len(forwards), "far away, one for the forward of a microbatch")

    def test_files_are_offered(self):
        self.open(self.page)
        self.js("""window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return '#'; };
            HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };""")
        self.find("save-menu").click()
        self.find("svg").click()
        self.find("png").click()
        self.wait_until(lambda: self.js("return saved.length") >= 4)
        types = self.js("return saved.map((one) => typeof one === 'string' ? one : one.type)")
        self.assertEqual(types, ["image/svg+xml", "small.svg", "image/png", "small.png"])
        png = self.js("""return new Promise((done) => { const reader = new FileReader(); reader.onload = () => done(reader.result); reader.readAsDataURL(saved[2]); })""")
        with open(os.path.join(pages.ARTEFACTS, "export.png"), "wb") as file:
            file.write(base64.b64decode(png.partition(",")[2]))

    def test_no_frame_is_empty_after_resizing(self):
        """When the observer of the size has run, the canvas has its contents: the next frame shows them."""
        self.open(self.page)
        blank = self.js("""const done = arguments[arguments.length - 1], stage = document.getElementById('stage'), canvas = document.getElementById('canvas');
            stage.style.flex = 'none';
            const seen = [];
            for (let i = 0; i < 4; i++) {
              stage.style.height = `${400 + 60 * i}px`;
              await new Promise((next) => new ResizeObserver((_, own) => { own.disconnect(); next(); }).observe(stage));
              const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
              seen.push([canvas.height / piper.timeline.ratio, data.some((value) => value !== 0)]);
            }
            return seen""")
        self.assertEqual(blank, [[400 + 60 * i, True] for i in range(4)])
