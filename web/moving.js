// Moves what is in view.
import { timeOf } from 'piper/alive';
import { axisHeight } from 'piper/layout';
import { blockOf } from 'piper/locate';
import { redraw } from 'piper/page';
import * as viewport from 'piper/viewport';

export function zoomBy(page, factor, x) {
  viewport.zoom(page.state.view, factor, x);
  redraw(page);
}

export function panBy(page, pixels) {
  viewport.pan(page.state.view, pixels);
  redraw(page);
}

export function scrollBy(page, pixels) {
  viewport.scroll(page.state.view, pixels);
  redraw(page);
}

export function fitAll(page) {
  const { view } = page.state;
  viewport.fit(view);
  view.scroll = 0;
  redraw(page);
}

/** Scrolls only if a band is out of view; `y` as on the canvas. */
function revealBand(page, y, height) {
  const above = y - axisHeight, below = y + height - axisHeight - page.state.view.height;
  if (above < 0) scrollBy(page, above - 10);
  else if (below > 0) scrollBy(page, below + 10);
}

export function reveal(page, { trace, event }) {
  const { state } = page, offset = state.offset(trace);
  viewport.show(state.view, trace.start[event] - offset, trace.end[event] - offset);
  const block = blockOf(page.timeline, trace, event);
  if (block) revealBand(page, block.y, block.height);
  redraw(page);
}

export function revealMoment(page, moment) {
  const { state, timeline } = page, { trace, lane } = moment;
  const band = timeline.bands.find((b) => b.type === 'memory' && b.trace === trace && b.lane === lane);
  viewport.center(state.view, timeOf(moment) - state.offset(trace));
  if (band) revealBand(page, axisHeight + band.y - state.view.scroll, band.h);
  redraw(page);
}

/** A range; an operation with as much time before and after it; a moment eight times as large. */
export function zoomToSelected(page) {
  const { view, selected, moment, range, offset } = page.state;
  if (range) {
    viewport.fit(view, range.from, range.to);
    redraw(page);
  } else if (moment) {
    zoomBy(page, 1 / 8, viewport.xOf(view, timeOf(moment) - offset(moment.trace)));
  } else if (selected) {
    const { trace, event } = selected, length = trace.end[event] - trace.start[event];
    viewport.fit(view, trace.start[event] - offset(trace) - length, trace.end[event] - offset(trace) + length);
    redraw(page);
  }
}
