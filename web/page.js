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
  // drawn: what else happens when it has been drawn; menus: those that hide, by name
  return { state, canvas, timeline: makeTimeline(canvas, state), tabs: addTabs(['overview', 'operation', 'devices', 'compare']), waiting: false, drawn: [], menus: {} };
}

/** However often it is asked for, once in a frame. */
export function redraw(page) {
  if (page.waiting) return;
  page.waiting = true;
  requestAnimationFrame(() => { page.waiting = false; drawNow(page); });
}

function drawNow(page) {
  draw(page.timeline);
  for (const action of page.drawn) action();
}

/** After a change of size, filters or theme. A canvas of another size is empty, so it is drawn before the browser shows it. */
export function rearrange(page) {
  arrange(page.timeline);
  drawNow(page);
}
