// The pointer on the canvas: dragging, measuring, clicking, the wheel.
import { fold } from 'piper/appearance';
import { axisHeight, gutter } from 'piper/layout';
import { hit, momentAt } from 'piper/locate';
import { panBy, scrollBy, zoomBy } from 'piper/moving';
import { moveRuler } from 'piper/ruler';
import { choose, selectMoment, setRange } from 'piper/selection';
import { hideTip, makeTip, showTip } from 'piper/tip';
import { timeAt } from 'piper/viewport';

export function addPointer(page) {
  const tip = makeTip(page);
  addDragging(page, tip);
  page.canvas.addEventListener('pointerleave', () => { hideTip(tip); moveRuler(page, null); });
  page.canvas.addEventListener('wheel', (e) => { e.preventDefault(); turn(page, e); hideTip(tip); }, { passive: false });
}

/** A press that does not move is a click; one on the axis, or with Shift, measures a range of time; any other moves the lanes. */
function addDragging(page, tip) {
  const { canvas } = page;
  let drag = null;
  const placeOf = (e) => { const box = canvas.getBoundingClientRect(); return { x: e.clientX - box.left, y: e.clientY - box.top }; };
  canvas.addEventListener('pointerdown', (e) => {
    if (e.button !== 0) return;
    canvas.setPointerCapture(e.pointerId);
    const { x, y } = placeOf(e);
    drag = { x, y, moved: false, measures: e.shiftKey || y < axisHeight ? timeAt(page.state.view, x - gutter) : null };
  });
  canvas.addEventListener('pointermove', (e) => {
    const { x, y } = placeOf(e);
    moveRuler(page, x);
    if (!drag) { showTip(tip, e); return; }
    const dx = x - drag.x, dy = y - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { ...drag, x, y, moved: true };
    hideTip(tip);
    if (drag.measures !== null) {
      measure(page, drag.measures, timeAt(page.state.view, x - gutter));
      return;
    }
    canvas.classList.add('dragging');
    panBy(page, -dx);
    scrollBy(page, -dy);
  });
  const release = (e) => {
    canvas.classList.remove('dragging');
    if (drag && !drag.moved && e.type === 'pointerup') click(page, e);
    drag = null;
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
}

/** Between two moments, inside of what there is. */
function measure(page, a, b) {
  const { begin, end } = page.state.view, inside = (time) => Math.min(end, Math.max(begin, time));
  const from = inside(Math.min(a, b)), to = inside(Math.max(a, b));
  if (to > from) setRange(page, { from, to });
}

/** Selects what is there; the view stays. */
function click(page, e) {
  const box = page.canvas.getBoundingClientRect(), x = e.clientX - box.left;
  const found = hit(page.timeline, x, e.clientY - box.top);
  if (found && x < gutter && found.band.lane !== undefined) { fold(page, [found.band]); return; }
  const moment = found?.band.type === 'memory' ? momentAt(page.timeline, found.band, x) : null;
  if (moment) selectMoment(page, moment);
  else choose(page, found && found.event >= 0 ? { trace: found.band.trace, event: found.event } : null);
}

function turn(page, e) {
  const x = e.clientX - page.canvas.getBoundingClientRect().left - gutter;
  const amount = e.deltaMode === 1 ? e.deltaY * 16 : e.deltaY;
  if (e.shiftKey || x < 0) scrollBy(page, amount || e.deltaX);
  else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) panBy(page, e.deltaX);
  else zoomBy(page, Math.exp(Math.max(-240, Math.min(240, amount)) * 0.0016), x);
}
