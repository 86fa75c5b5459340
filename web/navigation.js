// From what is selected to what is next to it: among the matches, in its row, in other rows; and to the peak of memory.
import { timeOf } from 'piper/alive';
import { matches } from 'piper/emphasis';
import { fullest, nextChange, peakOf } from 'piper/memory';
import { select, selectMoment } from 'piper/selection';
import { laneOf } from 'piper/trace';

/** The next or the one before, in order of time; round and round. */
export function stepMatch(page, direction) {
  const { state } = page, timeIn = ({ trace, event }) => trace.start[event] - state.offset(trace);
  const all = matches(state).sort((a, b) => timeIn(a) - timeIn(b) || a.trace.index - b.trace.index || a.event - b.event);
  if (all.length === 0) return;
  const at = all.findIndex((m) => state.selected && m.trace === state.selected.trace && m.event === state.selected.event);
  select(page, all[(at + direction + all.length + (at < 0 && direction < 0 ? 1 : 0)) % all.length]);
}

/** The operation before or after the selected one in its row, or the change of memory. */
export function stepRow(page, direction) {
  const { traces, selected, moment } = page.state;
  if (moment) {
    const { trace, lane, sample } = moment;
    selectMoment(page, { trace, lane, sample: nextChange(trace, lane, sample, direction) });
    return;
  }
  if (!selected) {
    const trace = traces.find((t) => t.count > 0);
    if (trace) select(page, { trace, event: trace.rows[0].first });
    return;
  }
  const { trace, event } = selected, row = trace.rows[trace.rowOf[event]], next = event + direction;
  if (next >= row.first && next < row.last) select(page, { trace, event: next });
}

/** The operation of a row that starts nearest to a time; -1 if there is none. */
function nearest(trace, row, time) {
  let best = -1;
  for (let e = row.first; e < row.last; e++)
    if (best < 0 || Math.abs(trace.start[e] - time) < Math.abs(trace.start[best] - time)) best = e;
  return best;
}

/** Selects what a band has at a time; false if there is nothing. */
function selectIn(page, band, time) {
  const { trace, lane } = band;
  if (band.type === 'memory') {
    const sample = fullest(trace, lane, time, time);
    if (sample >= 0) selectMoment(page, { trace, lane, sample });
    return sample >= 0;
  }
  const event = nearest(trace, trace.rows[band.row], time);
  if (event >= 0) select(page, { trace, event });
  return event >= 0;
}

/** The operation, or the memory, at about the same time in the row above or below. */
export function stepLane(page, direction) {
  const { selected, moment, offset } = page.state;
  if (!selected && !moment) { stepRow(page, 1); return; }
  const { trace } = selected ?? moment, time = (selected ? trace.start[selected.event] : timeOf(moment)) - offset(trace);
  const bands = page.timeline.bands.filter((band) => band.h > 0 && (band.type === 'row' || band.type === 'memory'));
  const here = (band) => band.trace === trace && (selected ? band.row === trace.rowOf[selected.event] : band.type === 'memory' && band.lane === moment.lane);
  for (let at = bands.findIndex(here) + direction; at >= 0 && at < bands.length; at += direction)
    if (selectIn(page, bands[at], time + offset(bands[at].trace))) return;
}

/** The peak of the selected lane, or of the fullest one. */
export function selectPeak(page) {
  const { traces, selected, moment, stepOf } = page.state, { trace } = selected ?? moment ?? { trace: traces[0] };
  const peaks = trace.summary[stepOf(trace)].lanes.map((lane) => lane.peak_bytes);
  const lane = selected ? laneOf(trace, selected.event) : moment ? moment.lane : peaks.indexOf(Math.max(...peaks));
  const sample = peakOf(trace, lane, stepOf(trace));
  if (sample >= 0) selectMoment(page, { trace, lane, sample });
}
