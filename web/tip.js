// What is under the pointer, told beside it.
import { describeMoment } from 'piper/alive';
import { byId, element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { gutter } from 'piper/layout';
import { hit, momentAt } from 'piper/locate';
import { loadBuffers } from 'piper/memory';
import { kindOf, nameOf } from 'piper/trace';

/** `pointed`: where the pointer is; buffers may be ready only when it has gone on. */
export function makeTip(page) {
  return { page, place: byId('tip'), pointed: null };
}

export function hideTip(tip) {
  tip.pointed = null;
  tip.place.hidden = true;
}

export async function showTip(tip, e) {
  tip.pointed = e;
  const { timeline, canvas, state } = tip.page;
  const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  const found = x >= gutter ? hit(timeline, x, y) : null;
  const moment = found?.band.type === 'memory' ? momentAt(timeline, found.band, x) : null;
  if (moment) await loadBuffers(moment.trace);
  if (tip.pointed !== e) return;
  const contents = moment ? describeMoment(moment, state.stepOf(moment.trace), state.offset(moment.trace)) : found && found.event >= 0 ? describe(state, found) : null;
  tip.place.hidden = !contents;
  if (!contents) return;
  fill(tip.place, ...contents);
  putBeside(tip.place, x, y, box);
}

/** Below and to the right of a point, where there is room in the box. */
function putBeside(place, x, y, box) {
  const size = place.getBoundingClientRect();
  place.style.left = `${Math.max(4, Math.min(x + 14, box.width - size.width - 6))}px`;
  place.style.top = `${y + 18 + size.height > box.height ? Math.max(4, y - size.height - 10) : y + 18}px`;
}

/** The operation that the pointer is over. */
function describe(state, { band: { trace }, event }) {
  const bytes = trace.bytes[event] > 0 ? `, ${format.bytes(trace.bytes[event])}` : '';
  return [element('div', {}, `${kindOf(trace, event)} ${nameOf(trace, event)}`),
    element('div', {}, `${format.duration(trace.end[event] - trace.start[event])} from ${format.duration(trace.start[event] - state.offset(trace))}${bytes}`)];
}
