// The numbers of a step: a line for every trace, and a table by lane. The program computed them; here they are only shown.
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { fullestOf, pathShares } from 'piper/numbers';

function number(name, value, what, label = name, over = false) {
  return element('span', { class: over ? 'number over' : 'number', title: what }, element('b', { 'data-number': name }, value), ' ', element('span', {}, label));
}

/** The answer first: large what people compare, quiet what describes the trace. */
export function showNumbers(place, { traces, summaryOf, stepName, titleOf }) {
  fill(place, ...traces.map((trace) => {
    const s = summaryOf(trace), { peak, capacity } = fullestOf(trace, s), over = capacity > 0 && peak > capacity;
    return element('div', { class: 'numbers-row', 'data-trace': `${trace.index}` },
      traces.length > 1 ? element('span', { class: 'of' }, titleOf(trace)) : null,
      number('step', format.duration(s.seconds), 'time of a step', stepName(trace)),
      s.mfu > 0 ? number('MFU', format.percent(s.mfu), "floating-point operations of the model, without recomputation, over the devices' peak") : null,
      number('bubble', format.percent(s.bubble), "share of the devices' time without computation"),
      number('exposed communication', format.percent(s.exposed), 'the part of the bubble in which communication is in progress'),
      peak > 0 ? number('peak memory', `${format.bytes(peak)}${capacity > 0 ? ` of ${format.bytes(capacity)}` : ''}`, 'of the fullest device', 'peak memory', over) : null,
      over ? element('strong', { class: 'over', 'data-number': 'fits' }, 'does not fit') : null,
      traces.length > 1 ? null : element('span', { class: 'quiet' }, ...[  // the table of differences has these
        s.tokens_per_second > 0 ? [format.count(s.tokens_per_second), 'tokens/s'] : null,
        [format.count(trace.lanes.reduce((sum, lane) => sum + lane.length, 0)), 'devices'], [format.count(trace.count), 'operations'],
      ].filter(Boolean).flatMap(([value, name], i) => [i > 0 ? ', ' : '', element('span', { 'data-number': name }, value), ` ${name}`])));
  }));
}

function table(head, rows) {
  return element('table', { class: head[0] === '' ? 'differences' : '' }, element('thead', {}, element('tr', {}, ...head.map((text) => element('th', { scope: 'col' }, text)))),
    element('tbody', {}, ...rows));
}

/** `select`: shows what is alive at the peak of a lane. */
export function showDevices(place, { traces, summaryOf, stepName, titleOf }, select) {
  fill(place, ...traces.flatMap((trace) => {
    const s = summaryOf(trace), total = s.seconds || 1;
    const rows = s.lanes.map((lane, i) => element('tr', {}, ...[
      format.ranges(trace.lanes[i]), format.percent(lane.compute / total), format.percent(lane.exposed / total), format.percent(lane.idle / total),
      lane.peak_bytes > 0 ? element('button', { class: lane.peak_bytes > (trace.capacity[i] || Infinity) ? 'inline over' : 'inline', title: 'What is alive then', onclick: () => select(trace, i) }, format.bytes(lane.peak_bytes)) : '–',
    ].map((text) => element('td', {}, text))));
    return [traces.length > 1 ? element('h2', {}, titleOf(trace)) : null, trace.steps.length > 1 ? element('h3', {}, stepName(trace)) : null, table(['devices', 'computes', 'exposed', 'idle', 'peak'], rows)];
  }));
}

/** Every number of two traces, in two tables: [name, of the first, of the other, how it is written]. */
function numbersOf(first, other, { summaryOf, stepOf }) {
  const [a, b] = [first, other].map(summaryOf), pair = (name, read, write) => [name, read(a, first), read(b, other), write];
  const devices = (trace) => trace.lanes.flat().length;
  const mean = (key) => (s, trace) => s.lanes.reduce((sum, lane, i) => sum + lane[key] * trace.lanes[i].length, 0) / devices(trace);
  const shares = [first, other].map((trace) => new Map(pathShares(trace, stepOf(trace)).map(({ name, seconds }) => [name, seconds])));
  const names = [...new Set(shares.flatMap((of) => [...of.keys()]))];
  const known = ([, x, y]) => x > 0 || y > 0;
  const numbers = [
    pair('step', (s) => s.seconds, format.duration), pair('tokens/s', (s) => s.tokens_per_second, format.count), pair('MFU', (s) => s.mfu, format.percent),
    pair('bubble', (s) => s.bubble, format.percent), pair('exposed communication', (s) => s.exposed, format.percent),
    pair('computes', mean('compute'), format.duration), pair('exposed', mean('exposed'), format.duration), pair('idle', mean('idle'), format.duration),
    pair('peak memory', (s) => s.peak_bytes, format.bytes), pair('devices', (_, trace) => devices(trace), format.count), pair('operations', (_, trace) => trace.count, format.count),
  ];
  const path = names.map((name) => [name, shares[0].get(name) ?? 0, shares[1].get(name) ?? 0, format.duration]);
  return { numbers: numbers.filter(known), path: path.filter(known) };
}

function numberRow([name, x, y, write]) {
  const change = y - x, sign = change > 0 ? '+' : change < 0 ? '-' : '';
  return element('tr', {}, ...[name, write(x), write(y), sign + write(Math.abs(change)), x > 0 ? format.signedPercent(change / x) : '–'].map((text) => element('td', {}, text)));
}

/** Operations of one plan, matched: means over all steps. */
function operations(trace, first, { titleOf }, select) {
  const { comparison } = trace;
  if (!comparison.operations) return [element('p', { class: 'quiet' }, comparison.why)];
  const cells = (entry) => [format.duration(entry.predicted), format.duration(entry.measured), format.difference(entry.difference), format.signedPercent(entry.relative)];
  const row = (name, entry) => element('tr', {}, ...[name, ...cells(entry)].map((text) => element('td', {}, text)));
  const operation = (o) => {  // its name has a line of its own
    const action = () => select(o.devices[0], o.op);
    return [
      element('tr', { tabindex: '0', onclick: action, onkeydown: (e) => { if (e.key === 'Enter') action(); } },
        element('td', { class: 'name', colspan: '5' }, `${o.kind} ${o.name}, device ${format.ranges(o.devices)}`)),
      element('tr', { class: 'numbers' }, ...['', ...cells(o.duration)].map((text) => element('td', {}, text)))];
  };
  const head = ['', titleOf(first), titleOf(trace), 'difference', ''], several = first.steps.length > 1 || trace.steps.length > 1;
  const out = [element('h3', {}, `Busy time of a device${several ? ', means over all steps' : ''}`),
    table(head, [...comparison.kinds.map((k) => row(k.name, k)), ...comparison.passes.map((k) => row(`pass ${k.name}`, k))]),
    element('h3', {}, `Largest differences${several ? ', means over all steps' : ''}`),
    comparison.largest.length === 0 ? element('p', { class: 'quiet' }, 'none') : table(head, comparison.largest.flatMap(operation))];
  const d = comparison.divergence;
  if (d) out.push(element('h3', {}, 'First divergence'), element('button', { class: 'link', onclick: () => select(d.devices[0], d.op) }, element('span', {}, `${d.kind} ${d.name}`),
    element('span', {}, `ends ${format.difference(d.start.difference + d.duration.difference)}`)));
  return out;
}

/** Every trace beside the first: all numbers, then the operations where they are of one plan. */
export function showDifferences(place, state, select) {
  const { traces, titleOf, stepName } = state, first = traces[0];
  fill(place, ...traces.slice(1).flatMap((trace) => {
    const names = [first, trace].map((one) => `${titleOf(one)}${one.steps.length > 1 ? `, ${stepName(one)}` : ''}`);
    const head = ['', ...names, 'difference', ''], { numbers, path } = numbersOf(first, trace, state);
    return [element('h2', {}, `${titleOf(trace)} against ${titleOf(first)}`), table(head, numbers.map(numberRow)),
      element('h3', {}, 'Critical path'), table(head, path.map(numberRow)),
      ...operations(trace, first, state, select)];
  }));
}
