// Memory over time: which sample is in force when, and which buffers it consists of.
import { decode } from 'piper/decode';

const totalOf = (trace, sample) => trace.memory.categories.reduce((sum, column) => sum + column[sample], 0);

/** The first sample of a lane at or after a moment. */
function firstFrom({ memory }, lane, time) {
  let { first: low, last: high } = memory.lanes[lane];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (memory.time[middle] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The fullest sample in force between two moments, as a column of pixels shows it; -1 if there is none. */
export function fullest(trace, lane, from, to) {
  const { memory } = trace, { first, last } = memory.lanes[lane];
  let best = -1, most = -1;
  for (let at = Math.max(first, firstFrom(trace, lane, from) - 1); at < last && memory.time[at] <= to; at++) {
    const total = totalOf(trace, at);
    if (total > most) { best = at; most = total; }
  }
  return best;
}

export function peakOf(trace, lane, step) {
  const [, begin, end] = trace.steps[step];
  return fullest(trace, lane, begin, end);
}

/** The next sample (or the one before) in which the bytes differ; the same one at the end. */
export function nextChange(trace, lane, sample, direction) {
  const { first, last } = trace.memory.lanes[lane];
  for (let at = sample + direction; at >= first && at < last; at += direction)
    if (trace.memory.categories.some((column) => column[at] !== column[sample])) return at;
  return sample;
}

/** Bytes of a sample: in all, and by category, the last of the stack first. */
export function bytesOf(trace, sample) {
  const categories = trace.categories.map((name, index) => ({ name, index, bytes: trace.memory.categories[index][sample] }));
  return { total: totalOf(trace, sample), categories: categories.filter(({ bytes }) => bytes > 0).reverse() };
}

/** Unpacks the buffers of a trace; once, and only when somebody asks. What is damaged counts as not known. */
export function loadBuffers(trace) {
  trace.buffersLoading ??= unpackBuffers(trace);
  return trace.buffersLoading;
}

async function unpackBuffers(trace) {
  const lanes = trace.lanes.map(() => ({ first: 0, last: 0 }));
  try {
    const { header, columns } = await decode(trace.packedBuffers), { lane } = columns;
    for (let i = 0; i < lane.length; i++) {
      if (i === 0 || lane[i] !== lane[i - 1]) lanes[lane[i]].first = i;
      lanes[lane[i]].last = i + 1;
    }
    trace.buffers = { ...columns, ...header, lanes, why: 'The trace does not say which buffers are alive.' };
  } catch (problem) {
    trace.buffers = { lanes, why: `The buffers in this page cannot be read: ${problem.message}. Make the page again with piper view.` };
  }
  trace.packedBuffers = null;
}

/** Numbers of the buffers alive in a sample, the largest first. Buffers are sorted by the operation that takes them. */
export function aliveIn({ buffers, memoryOp }, lane, sample) {
  const { first, last } = buffers.lanes[lane], { taken, returned, bytes } = buffers, op = memoryOp[sample], alive = [];
  for (let i = first; i < last && taken[i] <= op; i++)
    if (taken[i] < 0 || returned[i] >= op) alive.push(i);
  return alive.sort((a, b) => bytes[b] - bytes[a] || a - b);
}

/** Buffers by name and category, whatever their pass and slice; the largest first. */
export function ownersOf({ buffers }, alive) {
  const owners = new Map();
  for (const i of alive) {
    const category = buffers.category[i], key = category * buffers.stems.length + buffers.stem[i];
    const owner = owners.get(key) ?? { name: buffers.stems[buffers.stem[i]], category, bytes: 0, count: 0 };
    owner.bytes += buffers.bytes[i];
    owner.count++;
    owners.set(key, owner);
  }
  return [...owners.values()].sort((a, b) => b.bytes - a.bytes);
}
