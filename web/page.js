// The page: its state, its canvas, its tabs; and when it is drawn again.
import { byId } from 'piper/dom';
import { makeState, span } from 'piper/state';
import { arrange, draw, makeTimeline } from 'piper/timeline';
import { fit, makeViewport } from 'piper/viewport';
import { addTabs } from 'piper/widgets';

export function makePage(traces) {
  const canvas = byId('canvas'), state = makeState(traces);
  state.view = makeViewport(0, span(state));
  fit(state.view);
  return { state, canvas, timeline: makeTimeline(canvas, state), tabs: addTabs(['operation', 'devices', 'compare']), waiting: false };
}

/** However often it is asked for, once in a frame. */
export function redraw(page) {
  if (page.waiting) return;
  page.waiting = true;
  requestAnimationFrame(() => { page.waiting = false; draw(page.timeline); });
}

/** After a change of size, filters or theme. */
export function rearrange(page) {
  arrange(page.timeline);
  redraw(page);
}
