// A range of time, {from, to} in seconds of the view: its marks on the canvas, and its totals in the panel.
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { axisHeight, gutter } from 'piper/layout';
import { bytesIn, useIn } from 'piper/numbers';
import { font, label } from 'piper/text';
import { xOf } from 'piper/viewport';

export function drawRange({ context, state }, theme) {
  if (!state.range) return;
  const { view, range } = state, bottom = axisHeight + view.height;
  const x0 = gutter + xOf(view, range.from), x1 = gutter + xOf(view, range.to);
  context.save();
  context.beginPath();
  context.rect(gutter, 0, view.width, bottom);
  context.clip();
  context.fillStyle = theme.strong;
  context.globalAlpha = 0.12;
  context.fillRect(x0, axisHeight, x1 - x0, view.height);
  context.globalAlpha = 1;
  for (const x of [x0, x1]) context.fillRect(x - 0.5, 0, 1, bottom);
  context.font = font(11, 600);
  label(context, format.duration(range.to - range.from), Math.min(Math.max((x0 + x1) / 2, gutter + 40), gutter + view.width - 40), axisHeight - 8, theme, 'center');
  context.restore();
}

function table(head, rows) {
  return element('table', {}, element('thead', {}, element('tr', {}, ...head.map((text) => element('th', { scope: 'col' }, text)))),
    element('tbody', {}, ...rows.map((cells) => element('tr', {}, ...cells.map((text) => element('td', {}, text))))));
}

/** Sums of all lanes, each counted for all of its devices. */
function bytesOf(trace, lanes, from, to) {
  const sums = new Map();
  for (const lane of lanes)
    for (const [kind, { count, bytes }] of bytesIn(trace, lane, from, to)) {
      const sum = sums.get(kind) ?? { count: 0, bytes: 0 }, devices = trace.lanes[lane].length;
      sums.set(kind, { count: sum.count + count * devices, bytes: sum.bytes + bytes * devices });
    }
  return [...sums].map(([kind, { count, bytes }]) => [kind, format.count(count), format.bytes(bytes)]);
}

/** Of the lanes that are shown. */
export function showRange(place, state) {
  const { range, traces, offset, titleOf, hiddenDevices } = state;
  const parts = traces.flatMap((trace) => {
    const from = range.from + offset(trace), to = range.to + offset(trace);
    const lanes = trace.lanes.flatMap((devices, lane) => (devices.some((device) => !hiddenDevices.has(device)) ? [lane] : []));
    const uses = lanes.map((lane) => ({ lane, ...useIn(trace, lane, from, to) })), count = lanes.reduce((sum, lane) => sum + trace.lanes[lane].length, 0) || 1;
    const meanOf = (what) => uses.reduce((sum, use) => sum + use[what] * trace.lanes[use.lane].length, 0) / count;
    const cells = (name, use) => [name, ...['compute', 'exposed', 'idle'].map((what) => `${format.duration(use[what])} (${Math.round(100 * use[what] / (to - from))} %)`)];
    const bytes = bytesOf(trace, lanes, from, to);
    return [
      traces.length > 1 ? element('h2', {}, titleOf(trace)) : null,
      table(['devices', 'computes', 'exposed', 'idle'], [
        ...uses.map((use) => cells(format.ranges(trace.lanes[use.lane]), use)),
        ...(uses.length > 1 ? [cells('mean', { compute: meanOf('compute'), exposed: meanOf('exposed'), idle: meanOf('idle') })] : [])]),
      element('h3', {}, 'Communications that end in it'),
      bytes.length > 0 ? table(['kind', 'operations', 'bytes'], bytes) : element('p', { class: 'quiet' }, 'none')];
  });
  fill(place, element('h2', {}, `${format.duration(range.to - range.from)} from ${format.duration(range.from)}`), ...parts);
}
