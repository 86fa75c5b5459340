// What the page shows. The drawing reads it; selection, emphasis, moving and appearance write it.

const sources = { simulated: 'predicted', measured: 'measured' };

export function makeState(traces) {
  const alike = traces.length > 1 && new Set(traces.map((trace) => trace.source)).size === traces.length;
  const state = {
    traces, dark: matchMedia('(prefers-color-scheme: dark)').matches, memory: true, pair: false, scale: 1,
    hiddenDevices: new Set(), hiddenStreams: new Set(), hiddenKinds: new Set(),
    terms: [], found: traces.map(() => null), emphasis: traces.map(() => null), path: null,
    selected: null, matched: [], moment: null,  // an operation and its likes in other traces, or {trace, lane, sample} of memory
    step: 0,  // -1: all of them
    stepOf: (trace) => Math.min(Math.max(0, state.step), trace.steps.length - 1),
    offset: (trace) => (state.step < 0 ? 0 : trace.steps[state.stepOf(trace)][1]),
    titleOf: (trace) => (alike ? sources[trace.source] ?? trace.source : trace.label),
  };
  return state;
}

/** Seconds that there are to see. */
export function span(state) {
  const lengths = state.traces.map((trace) => (state.step < 0 ? trace.seconds : trace.summary[state.stepOf(trace)].seconds));
  return Math.max(...lengths, 1e-9);
}
