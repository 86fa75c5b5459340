// Where an operation stands on the canvas, and what is at a point of it.
import { airOf, axisHeight, gutter, isMarked } from 'piper/layout';
import { fullest, peakOf } from 'piper/memory';
import { firstAfter } from 'piper/trace';
import { timeAt, xOf } from 'piper/viewport';

/** Where an operation is drawn, in pixels of the canvas element; null if its row is hidden. */
export function blockOf(timeline, trace, event) {
  const band = timeline.bandOfRow.get(`${trace.index}:${trace.rowOf[event]}`);
  if (!band) return null;
  const { view } = timeline.state, offset = timeline.state.offset(trace);
  const x = gutter + xOf(view, trace.start[event] - offset);
  return { x, y: axisHeight + band.y - view.scroll, width: gutter + xOf(view, trace.end[event] - offset) - x, height: band.h - airOf(band) };
}

/** What is at a point of the canvas element: {band, time, event}. */
export function hit(timeline, x, y) {
  const { view } = timeline.state;
  if (y < axisHeight) return null;
  const at = y - axisHeight + view.scroll;
  const band = timeline.bands.find((b) => at >= b.y && at < b.y + b.h);
  if (!band) return null;
  const time = timeAt(view, x - gutter) + timeline.state.offset(band.trace);
  if (band.type !== 'row' || x < gutter) return { band, time, event: -1 };
  const { trace } = band, row = trace.rows[band.row];
  const reach = (view.to - view.from) / view.width;  // a pixel on both sides
  let best = -1;
  for (let e = firstAfter(trace, row, time - reach); e < row.last && trace.start[e] <= time + reach; e++) {
    if (timeline.state.emphasis[trace.index]?.[e] === 0) continue;
    if (best < 0 || (trace.start[e] <= time && trace.end[e] > time)) best = e;
  }
  return { band, time, event: best };
}

const peakReach = 5;  // pixels on both sides of its mark
const peakTime = (trace, lane, step) => trace.summary[step].lanes[lane].peak_time;

/** The moment of memory at a point of its band: the peak near its mark, elsewhere the fullest in the column of pixels; null if there is none. */
export function momentAt(timeline, band, x) {
  const { trace, lane } = band, { state } = timeline, { view } = state, offset = state.offset(trace), step = state.stepOf(trace);
  const peak = peakOf(trace, lane, step);
  if (isMarked(band) && peak >= 0 && Math.abs(gutter + xOf(view, peakTime(trace, lane, step) - offset) - x) <= peakReach) return { trace, lane, sample: peak };
  const column = Math.floor(x - gutter), from = timeAt(view, column) + offset;
  const sample = from > trace.steps[trace.steps.length - 1][2] ? -1 : fullest(trace, lane, from, timeAt(view, column + 1) + offset);
  return sample < 0 ? null : { trace, lane, sample };
}
