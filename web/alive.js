// What is alive at a moment of a lane, {trace, lane, sample}: beside the pointer, in the panel, and in words.
import { categoryColor, css } from 'piper/colors';
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { aliveIn, bytesOf, ownersOf, peakOf } from 'piper/memory';
import { findOperation, kindOf, nameOf } from 'piper/trace';

const shortList = 8, longList = 30;

export const timeOf = ({ trace, sample }) => trace.memory.time[sample];

function swatch(trace, category) {
  return element('i', { class: 'swatch', style: `background:${css(categoryColor(trace.categories[category], category))}` });
}

function table(name, head, rows) {
  return element('table', { class: `alive ${name}` }, element('thead', {}, element('tr', {}, ...head.map((text) => element('th', { scope: 'col' }, text)))),
    element('tbody', {}, ...rows.map((cells) => element('tr', {}, ...cells.map((cell) => (cell.tagName === 'TD' ? cell : element('td', {}, cell)))))));
}

function title({ trace, lane, sample }, step, offset) {
  const what = sample === peakOf(trace, lane, step) ? 'Peak of' : 'Memory of';
  return `${what} ${format.laneName(trace.lanes[lane])} at ${format.duration(trace.memory.time[sample] - offset)}`;
}

function categoryTable({ trace, sample }) {
  const { total, categories } = bytesOf(trace, sample);
  const row = ({ name, index, bytes }) => [element('td', {}, swatch(trace, index), name), format.bytes(bytes)];
  return table('categories', ['alive', format.bytes(total)], categories.map(row));
}

/** The first of a list, and what the rest comes to. `bytesOfOne`: of an entry. */
function listed(entries, most, bytesOfOne, cells, width) {
  const rows = entries.slice(0, most).map(cells), rest = entries.slice(most);
  if (rest.length > 0)
    rows.push([element('td', { class: 'quiet', colspan: `${width}` }, `and ${format.count(rest.length)} more`), format.bytes(rest.reduce((sum, entry) => sum + bytesOfOne(entry), 0))]);
  return rows;
}

const bufferName = (trace, i) => `${trace.categories[trace.buffers.category[i]]} ${trace.buffers.stems[trace.buffers.stem[i]]}${trace.buffers.rests[trace.buffers.rest[i]]}`;

/** `lifetimeOf`: what stands below the name of a buffer. */
function bufferTable({ trace }, alive, most, lifetimeOf = () => null) {
  const { buffers } = trace;
  const cells = (i) => [element('td', { class: 'name' }, swatch(trace, buffers.category[i]), bufferName(trace, i), lifetimeOf(i)), format.bytes(buffers.bytes[i])];
  return table('buffers', [`${format.count(alive.length)} buffer${alive.length === 1 ? '' : 's'}, the largest first`, 'bytes'], listed(alive, most, (i) => buffers.bytes[i], cells, 1));
}

function ownerTable({ trace }, alive, most) {
  const owners = ownersOf(trace, alive);
  const cells = (o) => [element('td', { class: 'name' }, swatch(trace, o.category), `${trace.categories[o.category]} ${o.name}`), format.count(o.count), format.bytes(o.bytes)];
  return table('owners', ['owners, the largest first', 'buffers', 'bytes'], listed(owners, most, (o) => o.bytes, cells, 2));
}

/** Bytes that no buffer accounts for: a run may hold more than its plan names. */
function unnamed({ trace, sample }, alive) {
  const rest = bytesOf(trace, sample).total - alive.reduce((sum, i) => sum + trace.buffers.bytes[i], 0);
  return alive.length > 0 && rest > 0 ? element('div', { class: 'quiet' }, `${format.bytes(rest)} belong to no buffer of the trace`) : null;
}

/** Beside the pointer: at the peak its owners, elsewhere the largest buffers. Buffers must be loaded. */
export function describeMoment(moment, step, offset) {
  const { trace, lane, sample } = moment, alive = aliveIn(trace, lane, sample);
  const list = sample === peakOf(trace, lane, step) ? ownerTable : bufferTable;
  return [element('div', { class: 'head' }, title(moment, step, offset)), categoryTable(moment),
    alive.length > 0 ? list(moment, alive, shortList) : null, unnamed(moment, alive)];
}

/** The operations that take and return a buffer, to go there. */
function lifetime({ trace, lane }, i, step, select) {
  const { taken, returned } = trace.buffers, device = trace.lanes[lane][0];
  if (taken[i] < 0) return element('div', { class: 'quiet' }, 'outlives the step');
  const link = (op) => {
    const event = findOperation(trace, device, op, step);
    if (event < 0) return `operation ${op}`;
    return element('button', { class: 'inline', onclick: () => select({ trace, event }) }, `${kindOf(trace, event)} ${nameOf(trace, event)}`);
  };
  return element('div', { class: 'quiet' }, 'from ', link(taken[i]), ' to ', link(returned[i]));
}

/** In the panel. */
export function showMoment(place, moment, step, offset, select) {
  const { trace, lane, sample } = moment, alive = aliveIn(trace, lane, sample);
  const capacity = trace.capacity[lane] ?? 0;
  fill(place,
    element('h2', {}, title(moment, step, offset)),
    categoryTable(moment),
    capacity > 0 ? element('div', { class: 'quiet' }, `${format.percent(bytesOf(trace, sample).total / capacity)} of ${format.bytes(capacity)}`) : null,
    ...(alive.length > 0
      ? [ownerTable(moment, alive, longList), unnamed(moment, alive), bufferTable(moment, alive, longList, (i) => lifetime(moment, i, step, select))]
      : [element('p', { class: 'quiet' }, trace.buffers.why)]));
}

/** One sentence for screen readers. */
export function spokenMoment(moment, step, offset) {
  const { trace, lane, sample } = moment, { total, categories } = bytesOf(trace, sample);
  const largest = aliveIn(trace, lane, sample).slice(0, 3).map((i) => `${bufferName(trace, i)} ${format.bytes(trace.buffers.bytes[i])}`);
  return `${title(moment, step, offset)}: ${format.bytes(total)} alive, ${categories.map(({ name, bytes }) => `${name} ${format.bytes(bytes)}`).join(', ')}`
    + (largest.length > 0 ? `; largest: ${largest.join(', ')}` : '');
}
