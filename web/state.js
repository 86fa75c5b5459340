// What the page shows. The drawing reads it; selection, emphasis, moving and appearance write it.
import { scheduleOf, summaryOf } from 'piper/numbers';

const sources = { simulated: 'predicted', measured: 'measured' };

/** Traces by what distinguishes them: their schedules, where they come from, or else their files. */
function titlesOf(traces) {
  const distinct = (names) => new Set(names).size === traces.length && names.every((name) => name !== '');
  const choices = [traces.map((trace) => scheduleOf(trace).name), traces.map((trace) => sources[trace.source] ?? trace.source), traces.map((trace) => trace.label)];
  return traces.length > 1 ? choices.find(distinct) ?? choices[2].map((name, i) => `${name} (${i + 1})`) : choices[2];
}

export function makeState(traces) {
  const titles = titlesOf(traces), systemDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const state = {
    traces, systemDark, dark: systemDark, memory: true, pair: false, panel: true, scale: 1,
    folded: new Set(),  // lanes that show their computations only, as `trace:lane`
    hiddenDevices: new Set(), hiddenStreams: new Set(), hiddenKinds: new Set(),
    terms: [], found: traces.map(() => null), emphasis: traces.map(() => null), path: null,
    selected: null, matched: [], moment: null,  // an operation and its likes in other traces, or {trace, lane, sample} of memory
    range: null,  // {from, to} of the view's time
    step: 0,  // -1: all of them
    stepOf: (trace) => Math.min(Math.max(0, state.step), trace.steps.length - 1),
    offset: (trace) => (state.step < 0 ? 0 : trace.steps[state.stepOf(trace)][1]),
    summaryOf: (trace) => summaryOf(trace, state.step < 0 ? -1 : state.stepOf(trace)),
    /** Which step the numbers are of. */
    stepName: (trace) => (trace.steps.length === 1 ? 'step' : state.step < 0 ? `mean of ${trace.steps.length} steps` : `step ${trace.steps[state.stepOf(trace)][0]}`),
    titleOf: (trace) => titles[trace.index],
  };
  return state;
}

/** Seconds that there are to see. */
export function span(state) {
  const lengths = state.traces.map((trace) => (state.step < 0 ? trace.seconds : trace.summary[state.stepOf(trace)].seconds));
  return Math.max(...lengths, 1e-9);
}
