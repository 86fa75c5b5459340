// What the reader has chosen: a step, and an operation, a moment of memory or a range of time; and the places that tell about it.
import { showMoment, spokenMoment } from 'piper/alive';
import { byId } from 'piper/dom';
import { emphasizeStep, searchFor } from 'piper/emphasis';
import * as format from 'piper/format';
import { loadBuffers, peakOf } from 'piper/memory';
import { reveal, revealMoment } from 'piper/moving';
import { showOverview } from 'piper/overview';
import { rearrange, redraw } from 'piper/page';
import { showOperation, spoken } from 'piper/panel';
import { showRange } from 'piper/range';
import { span } from 'piper/state';
import { showDevices, showDifferences, showNumbers } from 'piper/summary';
import { findOperation, laneOf } from 'piper/trace';
import { fit } from 'piper/viewport';

/** The same operation in other traces of the plan. */
function likesOf({ trace, event }, traces) {
  const others = traces.filter((other) => other !== trace && other.plan === trace.plan && other.plan !== '');
  const likeIn = (other) => findOperation(other, trace.lanes[laneOf(trace, event)][0], trace.op[event], Math.min(trace.step[event], other.steps.length - 1));
  return others.map((other) => ({ trace: other, event: likeIn(other) })).filter((like) => like.event >= 0);
}

/** Selects an operation where it is, or nothing (null). */
export function choose(page, selected) {
  const { state } = page;
  state.selected = selected;
  state.matched = selected ? likesOf(selected, state.traces) : [];
  state.moment = state.range = null;
  byId('selected-text').textContent = selected ? spoken(selected) : '';
  if (selected) {
    const { trace, event } = selected;
    if (state.step >= 0 && trace.step[event] !== state.stepOf(trace)) setStep(page, trace.step[event]);
    page.tabs.open('operation');
  }
  showOperation(byId('view-operation'), selected, {
    select: (other) => select(page, other), searchFor: (text) => searchFor(page, text), matched: state.matched, titleOf: state.titleOf,
  });
  redraw(page);
}

/** The same, and brings it into view. */
export function select(page, selected) {
  choose(page, selected);
  if (selected) reveal(page, selected);
}

/** Selects {trace, lane, sample} of memory. */
export async function selectMoment(page, moment) {
  const { state } = page, { trace } = moment, offset = state.offset(trace);
  state.selected = state.range = null;
  state.matched = [];
  state.moment = moment;
  revealMoment(page, moment);
  await loadBuffers(trace);
  if (state.moment !== moment) return;
  byId('selected-text').textContent = spokenMoment(moment, state.stepOf(trace), offset);
  showMoment(byId('view-operation'), moment, state.stepOf(trace), offset, (selected) => select(page, selected));
  page.tabs.open('operation');
}

/** Selects {from, to} of the view's time. */
export function setRange(page, range) {
  const { state } = page;
  state.selected = state.moment = null;
  state.matched = [];
  state.range = range;
  byId('selected-text').textContent = `range of ${format.duration(range.to - range.from)} from ${format.duration(range.from)}`;
  showRange(byId('view-operation'), state);
  page.tabs.open('operation');
  redraw(page);
}

/** A number, or -1 for all steps. */
export function setStep(page, step) {
  const { state } = page;
  if (state.moment || state.range) select(page, null);
  state.step = step;
  byId('step').value = `${step}`;
  state.view.end = span(state);
  fit(state.view);
  emphasizeStep(page);
  refreshNumbers(page);
  rearrange(page);
}

/** Everything that tells about the step as a whole. */
export function refreshNumbers(page) {
  const { state } = page, { traces, stepOf } = state;
  showNumbers(byId('numbers'), state);
  showOverview(byId('view-overview'), state);
  showDevices(byId('view-devices'), state, (trace, lane) => selectMoment(page, { trace, lane, sample: peakOf(trace, lane, stepOf(trace)) }));
  if (traces.length < 2) return;
  showDifferences(byId('view-compare'), state, (device, op) => {
    const event = findOperation(traces[0], device, op, 0);
    if (event >= 0) select(page, { trace: traces[0], event });
  });
}
