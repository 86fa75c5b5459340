// Which operations stand out: those that a query means, and those of the critical path; hidden kinds vanish.
import { byId } from 'piper/dom';
import * as format from 'piper/format';
import { redraw } from 'piper/page';
import { parseQuery, search } from 'piper/search';
import { criticalPath, kindOf } from 'piper/trace';

/** By operation 0 hidden, 1 faded, 2 plain; null where all are plain. */
function emphasisOf(trace, found, path, hiddenKinds) {
  if (!found && !path && hiddenKinds.size === 0) return null;
  const out = new Uint8Array(trace.count), onPath = new Set(path?.events ?? []);
  for (let e = 0; e < trace.count; e++) {
    const plain = (!found || found[e]) && (!path || onPath.has(e));
    out[e] = hiddenKinds.has(kindOf(trace, e)) ? 0 : plain ? 2 : 1;
  }
  return out;
}

export function refreshEmphasis(page) {
  const { state } = page;
  state.emphasis = state.traces.map((trace, i) => emphasisOf(trace, state.found[i], state.path?.[i], state.hiddenKinds));
  redraw(page);
}

/** What the query means in the step that is shown. */
export function matches(state) {
  return state.traces.flatMap((trace, i) => {
    const out = [];
    if (state.found[i])
      for (let e = 0; e < trace.count; e++)
        if (state.found[i][e] && (state.step < 0 || trace.step[e] === state.stepOf(trace))) out.push({ trace, event: e });
    return out;
  });
}

export function setQuery(page, text) {
  const { state } = page;
  state.terms = parseQuery(text);
  state.found = state.traces.map((trace) => search(trace, state.terms));
  const number = state.terms.length === 0 ? null : matches(state).length;
  byId('matches').textContent = number === null ? '' : number === 0 ? 'no operation' : `${format.count(number)} operation${number === 1 ? '' : 's'}`;
  refreshEmphasis(page);
}

/** Adds to what is in the search box. */
export function searchFor(page, text) {
  const box = byId('search');
  box.value = `${box.value.trim()} ${text}`.trim();
  setQuery(page, box.value);
}

const pathsOf = ({ traces, stepOf }) => traces.map((trace) => ({ trace, events: criticalPath(trace, stepOf(trace)) }));

export function togglePath(page) {
  const { state } = page;
  state.path = state.path ? null : pathsOf(state);
  byId('path').setAttribute('aria-pressed', `${state.path !== null}`);
  refreshEmphasis(page);
}

/** Path and matches in the step that is shown now. */
export function emphasizeStep(page) {
  if (page.state.path) page.state.path = pathsOf(page.state);
  setQuery(page, byId('search').value);
}
