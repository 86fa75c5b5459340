"""How fast the timeline page opens and pans: milliseconds until it is drawn, until it can say what is alive, and between frames
while it pans.

    .venv/bin/python bench/page_bench.py build/release/piper [--large]     --large: also a million operations
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "web"))
import browser
import make_trace

FRAMES = """
const done = arguments[arguments.length - 1], {view} = piper.state, share = arguments[0];
const middle = (view.begin + view.end) / 2, half = (view.end - view.begin) * share / 2;
view.from = middle - half; view.to = middle + half;
const times = [], draws = [];
let last = 0, n = 0;
const frame = (now) => {
  if (last) times.push(now - last);
  last = now;
  if (n++ === 120) { done([times, draws]); return; }
  piper.viewport.pan(view, n % 40 < 20 ? 7 : -7);
  const begin = performance.now();
  piper.draw();
  draws.push(performance.now() - begin);
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


ALIVE = """
const done = arguments[arguments.length - 1], begin = performance.now(), trace = piper.state.traces[0];
piper.selectMoment({trace, lane: 0, sample: trace.memory.lanes[0].first}).then(() => done(performance.now() - begin));
"""


def quantiles(values):
    ordered = sorted(values)
    return f"median {ordered[len(ordered) // 2]:6.1f}  95th percentile {ordered[int(len(ordered) * 0.95)]:6.1f}"


def measure(piper, name, arguments, folder):
    trace, page = os.path.join(folder, "trace.json"), os.path.join(folder, "page.html")
    _, events = make_trace.write(trace, make_trace.options_of(arguments))
    subprocess.run([piper, "view", trace, "-o", page], check=True, stdout=subprocess.DEVNULL)
    driver = browser.open_browser()
    driver.set_script_timeout(300)
    try:
        opened = sorted(browser.open_page(driver, page, 300) for _ in range(3))
        print(f"{name}: {len(events):,} operations, page {os.path.getsize(page) / 1e6:.1f} MB, opens in {opened[1]} ms")
        asked = driver.execute_async_script(ALIVE)
        print(f"  what is alive: {asked:.0f} ms when first asked for")
        for share, what in ((1.0, "all in view"), (0.01, "1 % in view")):
            frames, draws = driver.execute_async_script(FRAMES, share)
            print(f"  {what}: between frames {quantiles(frames)} ms; drawing {quantiles(draws)} ms")
    finally:
        driver.quit()


def main():
    browser.require()
    piper = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        measure(piper, "64 devices, 256 microbatches", ["--ranks", "64", "--microbatches", "256", "--chunks", "1", "--buffers", "8"], folder)
        if "--large" in sys.argv:
            measure(piper, "64 devices, 1024 microbatches", ["--ranks", "64", "--microbatches", "1024", "--chunks", "4", "--noise", "0.1", "--buffers", "8"], folder)


if __name__ == "__main__":
    main()
