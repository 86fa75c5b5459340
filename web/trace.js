// A trace in columns: every operation is a number, rows (a stream of a lane) are ranges of operations sorted by start.
import { colorClass, isCommunication } from 'piper/colors';

/** From differences to the operation itself, to operations; 0 is none. */
function absolute(column) {
  const out = new Int32Array(column.length);
  for (let i = 0; i < column.length; i++) out[i] = column[i] === 0 ? -1 : i - column[i];
  return out;
}

function waitLists(counts, differences) {
  const first = new Int32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) first[i + 1] = first[i] + counts[i];
  const list = new Int32Array(differences.length);
  for (let i = 0; i < counts.length; i++)
    for (let k = first[i]; k < first[i + 1]; k++) list[k] = i - differences[k];
  return { first, list };
}

/** Samples of every lane, in order of time. */
function memoryByLane(header, columns) {
  const lanes = header.lanes.map(() => ({ first: 0, last: 0 }));
  const lane = columns.memoryLane;
  for (let i = 0; i < lane.length; i++) {
    if (i === 0 || lane[i] !== lane[i - 1]) lanes[lane[i]].first = i;
    lanes[lane[i]].last = i + 1;
  }
  const categories = header.categories.map((_, c) => columns[`memory${c}`]);
  return { time: columns.memoryTime, categories, lanes };
}

export function makeTrace({ header, columns }, index) {
  const count = columns.start.length;
  const rowOf = new Int32Array(count);
  header.rows.forEach(([, , first, last], row) => rowOf.fill(row, first, last));
  const classNames = [], classOf = new Uint8Array(count);
  const known = new Map();
  for (let i = 0; i < count; i++) {
    const key = columns.kind[i] * 4096 + columns.pass[i];
    let number = known.get(key);
    if (number === undefined) {
      const name = colorClass(header.kinds[columns.kind[i]], header.passes[columns.pass[i]]);
      number = classNames.indexOf(name);
      if (number < 0) number = classNames.push(name) - 1;
      known.set(key, number);
    }
    classOf[i] = number;
  }
  const rowsOfLane = header.lanes.map(() => []);
  header.rows.forEach(([lane], row) => rowsOfLane[lane].push(row));
  return {
    ...header, ...columns, index, count, rowOf, rowsOfLane, classNames, classOf,
    cause: absolute(columns.cause),
    waits: waitLists(columns.waitCount, columns.waitList),
    memory: memoryByLane(header, columns),
    rows: header.rows.map(([lane, stream, first, last]) => ({
      lane, stream, first, last,
      thin: last > first && isCommunication(header.kinds[columns.kind[first]]),
    })),
    tagCache: new Map(),
  };
}

/** The text of a name; names are stored in two parts. */
export const textOf = (trace, name) => trace.stems[trace.nameStem[name]] + trace.rests[trace.nameRest[name]];
export const nameOf = (trace, event) => textOf(trace, trace.name[event]);
export const kindOf = (trace, event) => trace.kinds[trace.kind[event]];
export const passOf = (trace, event) => trace.passes[trace.pass[event]];
export const laneOf = (trace, event) => trace.rows[trace.rowOf[event]].lane;
export const streamOf = (trace, event) => trace.streams[trace.rows[trace.rowOf[event]].stream];

/** Tags of a name: `layer.3.attention F mb=2` has layer=3, attention, mb=2. */
export function tagsOfName(trace, name) {
  let tags = trace.tagCache.get(name);
  if (tags) return tags;
  tags = [];
  const words = textOf(trace, name).split(' ');
  const parts = (words[0] ?? '').split('.');
  for (let i = 0; i < parts.length; i++) {
    const numbered = i + 1 < parts.length && /^\d+$/.test(parts[i + 1]);
    if (parts[i] !== '') tags.push([parts[i], numbered ? parts[i + 1] : '']);
    if (numbered) i++;
  }
  for (const word of words.slice(1)) {
    const at = word.indexOf('=');
    if (at > 0) tags.push([word.slice(0, at), word.slice(at + 1).replace(/,$/, '')]);
  }
  trace.tagCache.set(name, tags);
  return tags;
}

/** What it waited for directly: the plan's waits, and what it waited for last. */
export function dependencies(trace, event) {
  const out = new Set(trace.waits.list.subarray(trace.waits.first[event], trace.waits.first[event + 1]));
  if (trace.cause[event] >= 0) out.add(trace.cause[event]);
  return [...out];
}

/** The same, seen from the other side; made once for all operations. */
export function dependents(trace, event) {
  if (!trace.reverse) {
    const counts = new Int32Array(trace.count + 1);
    const each = (visit) => {
      for (let e = 0; e < trace.count; e++) {
        let cause = trace.cause[e];
        for (let k = trace.waits.first[e]; k < trace.waits.first[e + 1]; k++) {
          visit(trace.waits.list[k], e);
          if (trace.waits.list[k] === cause) cause = -1;
        }
        if (cause >= 0) visit(cause, e);
      }
    };
    each((from) => counts[from + 1]++);
    for (let i = 0; i < trace.count; i++) counts[i + 1] += counts[i];
    const list = new Int32Array(counts[trace.count]), next = counts.slice();
    each((from, to) => { list[next[from]++] = to; });
    trace.reverse = { first: counts, list };
  }
  return [...trace.reverse.list.subarray(trace.reverse.first[event], trace.reverse.first[event + 1])];
}

/** How long its stream was free before it started, because it had to wait; from the start of its step. */
export function waitedFor(trace, event) {
  const row = trace.rows[trace.rowOf[event]];
  const before = event > row.first && trace.step[event - 1] === trace.step[event] ? trace.end[event - 1] : trace.steps[trace.step[event]][1];
  return Math.max(0, trace.start[event] - before);
}

/** From the last operation of the step back along what each waited for last. */
export function criticalPath(trace, step) {
  let at = -1;
  for (let e = 0; e < trace.count; e++)
    if (trace.step[e] === step && (at < 0 || trace.end[e] > trace.end[at])) at = e;
  const path = [], seen = new Set();
  for (; at >= 0 && !seen.has(at); at = trace.cause[at]) {
    seen.add(at);
    path.push(at);
  }
  return path.reverse();
}

const operationKey = (trace, lane, step, op) => (lane * trace.steps.length + step) * 2 ** 31 + op;

/** The operation of a device and number, or -1; lookup made once. */
export function findOperation(trace, device, op, step) {
  if (!trace.operationOf) {
    trace.operationOf = new Map();
    trace.laneOfDevice = new Map();
    trace.lanes.forEach((devices, lane) => devices.forEach((d) => trace.laneOfDevice.set(d, lane)));
    for (let e = 0; e < trace.count; e++) trace.operationOf.set(operationKey(trace, laneOf(trace, e), trace.step[e], trace.op[e]), e);
  }
  return trace.operationOf.get(operationKey(trace, trace.laneOfDevice.get(device) ?? -1, step, op)) ?? -1;
}

/** First operation of a row that ends after `time`. */
export function firstAfter(trace, row, time) {
  let low = row.first, high = row.last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (trace.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}
