// Numbers of a trace: of a step or the mean of all, of the critical path, of a range of time; and the schedule behind it.
import { classOrder, isCommunication } from 'piper/colors';
import { criticalPath, firstAfter, kindOf } from 'piper/trace';

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Means of the numbers of all steps; of peaks the largest. */
function meanOf(steps) {
  const combined = (parts) => Object.fromEntries(Object.keys(parts[0]).filter((key) => key !== 'lanes').map((key) => {
    const values = parts.map((part) => part[key]);
    return [key, key === 'peak_bytes' ? Math.max(...values) : mean(values)];
  }));
  return { ...combined(steps), lanes: steps[0].lanes.map((_, lane) => combined(steps.map((step) => step.lanes[lane]))) };
}

/** As the program computed them for a step; -1: for all of them. */
export function summaryOf(trace, step) {
  if (step >= 0 || trace.summary.length === 1) return trace.summary[Math.max(0, step)];
  trace.meanSummary ??= meanOf(trace.summary);
  return trace.meanSummary;
}

/** The lane whose peak is the largest part of its capacity: {peak, capacity}; of an unknown capacity 0. */
export function fullestOf(trace, summary) {
  const all = summary.lanes.map((lane, i) => ({ peak: lane.peak_bytes, capacity: trace.capacity[i] ?? 0 }));
  return all.reduce((a, b) => (a.capacity > 0 && b.capacity > 0 ? b.peak / b.capacity > a.peak / a.capacity : b.peak > a.peak) ? b : a);
}

/** What the time of a step consists of, along the critical path: [{name, seconds}] in the order of the legend; together they are the step. */
export function pathShares(trace, step) {
  const [, begin, end] = trace.steps[step], shares = new Map(classOrder.map((name) => [name, 0]));
  let reached = begin, waiting = 0;
  for (const event of criticalPath(trace, step)) {
    const name = trace.classNames[trace.classOf[event]];
    waiting += Math.max(0, trace.start[event] - reached);
    shares.set(name, shares.get(name) + Math.max(0, trace.end[event] - Math.max(reached, trace.start[event])));
    reached = Math.max(reached, trace.end[event]);
  }
  shares.set('no operation', waiting + Math.max(0, end - reached));
  return [...shares].filter(([, seconds]) => seconds > (end - begin) * 1e-9).map(([name, seconds]) => ({ name, seconds }));
}

/** Intervals of a lane's computations, or of its communications, inside a range; sorted, without overlaps. */
function intervals(trace, lane, from, to, communication) {
  const all = [];
  for (const index of trace.rowsOfLane[lane]) {
    const row = trace.rows[index];
    for (let e = firstAfter(trace, row, from); e < row.last && trace.start[e] < to; e++)
      if (isCommunication(kindOf(trace, e)) === communication) all.push([Math.max(from, trace.start[e]), Math.min(to, trace.end[e])]);
  }
  const out = [];
  for (const [start, end] of all.sort((a, b) => a[0] - b[0])) {
    if (out.length > 0 && start <= out.at(-1)[1]) out.at(-1)[1] = Math.max(out.at(-1)[1], end);
    else out.push([start, end]);
  }
  return out;
}

const length = (list) => list.reduce((sum, [start, end]) => sum + end - start, 0);

function overlap(a, b) {
  let sum = 0;
  for (let i = 0, k = 0; i < a.length && k < b.length;) {
    sum += Math.max(0, Math.min(a[i][1], b[k][1]) - Math.max(a[i][0], b[k][0]));
    if (a[i][1] < b[k][1]) i++;
    else k++;
  }
  return sum;
}

/** How a lane spends a range of time of the trace: seconds, as in the summary of a step. */
export function useIn(trace, lane, from, to) {
  const computing = intervals(trace, lane, from, to, false), communicating = intervals(trace, lane, from, to, true);
  const compute = length(computing), exposed = length(communicating) - overlap(computing, communicating);
  return { compute, exposed, idle: Math.max(0, to - from - compute - exposed) };
}

/** Communications of a lane that end in a range, by kind: Map of {count, bytes}. */
export function bytesIn(trace, lane, from, to) {
  const out = new Map();
  for (const index of trace.rowsOfLane[lane]) {
    const row = trace.rows[index];
    for (let e = firstAfter(trace, row, from); e < row.last && trace.start[e] <= to; e++) {
      if (!isCommunication(kindOf(trace, e)) || trace.end[e] > to) continue;
      const kind = out.get(kindOf(trace, e)) ?? { count: 0, bytes: 0 };
      out.set(kindOf(trace, e), { count: kind.count + 1, bytes: kind.bytes + trace.bytes[e] });
    }
  }
  return out;
}

/** The lines that operations come from, as {name, text}; the name is that of their file. */
export function scheduleOf(trace) {
  const lines = trace.origins.map(([place, text]) => ({ ...(/^(?<file>.*?)(:(?<line>\d+).*)?$/s.exec(place).groups), text }));
  lines.sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : (+a.line || 0) - (+b.line || 0)));
  const file = lines[0]?.file ?? '';
  return { name: file.replace(/^.*\//, '').replace(/\.[^.]*$/, ''), text: lines.map((line) => line.text).join('\n') };
}
