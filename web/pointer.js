// The pointer on the canvas: dragging, clicking, the wheel.
import { gutter } from 'piper/layout';
import { hit, momentAt } from 'piper/locate';
import { panBy, scrollBy, zoomBy } from 'piper/moving';
import { choose, selectMoment } from 'piper/selection';
import { hideTip, makeTip, showTip } from 'piper/tip';

export function addPointer(page) {
  const tip = makeTip(page);
  addDragging(page, tip);
  page.canvas.addEventListener('pointerleave', () => hideTip(tip));
  page.canvas.addEventListener('wheel', (e) => { e.preventDefault(); turn(page, e); hideTip(tip); }, { passive: false });
}

/** A press that does not move is a click. */
function addDragging(page, tip) {
  const { canvas } = page;
  let drag = null;
  canvas.addEventListener('pointerdown', (e) => {
    if (e.button !== 0) return;
    canvas.setPointerCapture(e.pointerId);
    drag = { x: e.clientX, y: e.clientY, moved: false };
  });
  canvas.addEventListener('pointermove', (e) => {
    if (!drag) { showTip(tip, e); return; }
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { x: e.clientX, y: e.clientY, moved: true };
    canvas.classList.add('dragging');
    hideTip(tip);
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

/** Selects what is there; the view stays. */
function click(page, e) {
  const box = page.canvas.getBoundingClientRect(), x = e.clientX - box.left;
  const found = hit(page.timeline, x, e.clientY - box.top);
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
