"""The memory of a lane on the page."""
import os

import pages
from browser_case import PageCase
from pages import bytes_text, milliseconds, page_of, trace_file
from trace_memory import Memory


class MemoryOfLanes(PageCase):
    """What is alive, when, and of whom."""

    def test_hovering_memory_shows_what_is_alive(self):
        self.open(self.page)
        begin, end = self.view()
        width = self.js("return piper.state.view.width")
        lane, memory = 1, Memory(self.small, 1)
        for share in (0.05, 0.35, 0.5, 0.7, 0.93):
            x = pages.GUTTER + round(share * width)
            self.point_at_memory(lane, x)
            column = [begin + (x - pages.GUTTER + i) / width * (end - begin) for i in (0, 1)]
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
        x = pages.GUTTER + (peak - begin) / (end - begin) * self.js("return piper.state.view.width")
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
        canvas.send_keys("x")
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
        self.find("canvas").send_keys("x")
        self.await_text("view-operation", "The trace does not say which buffers are alive.")

    def test_damaged_buffers_say_so(self):
        with open(self.page) as file:
            head, tail = file.read().split('x-piper-buffers">')
        path = os.path.join(pages.FOLDER, "damaged.html")
        with open(path, "w") as file:
            file.write(head + 'x-piper-buffers">AAAA' + tail[4:])
        self.open(path)
        self.find("canvas").send_keys("x")
        self.await_text("view-operation", "The buffers in this page cannot be read")
