// Reads the traces that the page carries, and puts the page together.
import { setTheme } from 'piper/appearance';
import { addControls } from 'piper/controls';
import { decode } from 'piper/decode';
import { byId } from 'piper/dom';
import { showLegend, showTitle } from 'piper/heading';
import { addKeys } from 'piper/keys';
import { blockOf } from 'piper/locate';
import { addMinimap } from 'piper/minimap';
import { makePage, rearrange } from 'piper/page';
import { addPermalink } from 'piper/permalink';
import { svgOf } from 'piper/picture';
import { addPointer } from 'piper/pointer';
import { refreshNumbers, select, selectMoment, setRange } from 'piper/selection';
import { draw } from 'piper/timeline';
import { makeTrace } from 'piper/trace';
import * as viewport from 'piper/viewport';

export async function start() {
  const loading = byId('loading');
  try {
    run(makePage(await readTraces()));
    loading.remove();
  } catch (problem) {
    loading.className = 'failed';
    loading.textContent = `The trace in this page cannot be shown: ${problem.message}. Make the page again with piper view.`;
    throw problem;
  }
}

/** Each stands in a block, its buffers in the next one. */
async function readTraces() {
  const blocks = [...document.querySelectorAll('script[type="application/x-piper-trace"]')];
  const traces = await Promise.all(blocks.map(async (block, index) => {
    const trace = makeTrace(await decode(block.textContent), index);
    trace.packedBuffers = block.nextElementSibling.textContent;
    return trace;
  }));
  blocks.forEach((block) => { block.nextElementSibling.remove(); block.remove(); });
  return traces;
}

function run(page) {
  const { state, timeline } = page;
  showTitle(state.traces);
  showLegend(state.traces);
  addControls(page);
  addKeys(page);
  addPointer(page);
  new ResizeObserver(() => rearrange(page)).observe(byId('stage'));
  refreshNumbers(page);
  setTheme(page, state.dark);
  select(page, null);
  addMinimap(page);
  addPermalink(page);
  rearrange(page);
  offerToTests(page);
  document.body.dataset.ready = `${Math.round(performance.now())}`;
}

/** What tests and benchmarks reach from outside. */
function offerToTests(page) {
  const { state, timeline } = page;
  window.piper = {
    state, timeline, viewport,
    select: (selected) => select(page, selected), selectMoment: (moment) => selectMoment(page, moment),
    blockOf: (trace, event) => blockOf(timeline, state.traces[trace], event), setRange: (range) => setRange(page, range), draw: () => draw(timeline), svg: () => svgOf(timeline),
  };
}
