// What is seen, as the fragment of the page's address: whoever opens the address sees the same.
import { setPanel, setTheme } from 'piper/appearance';
import { byId } from 'piper/dom';
import { setQuery, togglePath } from 'piper/emphasis';
import { rearrange } from 'piper/page';
import { select, setRange, setStep } from 'piper/selection';
import { findOperation, laneOf } from 'piper/trace';

const pair = (from, to) => `${+from.toPrecision(7)},${+to.toPrecision(7)}`;
const numbers = (text) => (text ?? '').split(',').map(Number);
const whole = ({ view }) => view.begin - (view.end - view.begin) * 0.01 === view.from && view.end + (view.end - view.begin) * 0.01 === view.to;

/** Only what differs from a page that has just been opened. */
export function fragmentOf(state) {
  const { view, selected, range } = state, out = new URLSearchParams();
  if (state.step !== 0) out.set('step', state.step);
  if (!whole(state)) out.set('time', pair(view.from, view.to));
  if (view.scroll > 0) out.set('scroll', Math.round(view.scroll));
  if (state.scale !== 1) out.set('scale', +state.scale.toFixed(3));
  if (byId('search').value) out.set('search', byId('search').value);
  if (state.path) out.set('path', 1);
  if (!state.memory) out.set('memory', 0);
  if (state.pair) out.set('pair', 1);
  if (!state.panel) out.set('panel', 0);
  for (const name of ['Devices', 'Streams', 'Kinds'])
    if (state[`hidden${name}`].size > 0) out.set(`hide${name}`, [...state[`hidden${name}`]].join(','));
  if (state.folded.size > 0) out.set('folded', [...state.folded].join(','));
  if (range) out.set('range', pair(range.from, range.to));
  if (selected) {
    const { trace, event } = selected;
    out.set('operation', [trace.index, trace.lanes[laneOf(trace, event)][0], trace.op[event], trace.step[event]].join(','));
  }
  if (state.dark !== state.systemDark) out.set('dark', state.dark ? 1 : 0);
  return out.toString();
}

function apply(page, fragment) {
  const { state } = page, given = new URLSearchParams(fragment), has = (name) => given.has(name);
  if (has('step')) setStep(page, Math.min(numbers(given.get('step'))[0] | 0, Math.max(...state.traces.map((trace) => trace.steps.length)) - 1));
  if (has('dark')) setTheme(page, given.get('dark') === '1');
  if (has('scale')) state.scale = Math.min(8, Math.max(0.25, numbers(given.get('scale'))[0] || 1));
  for (const name of ['memory', 'pair']) {
    if (has(name)) state[name] = given.get(name) === '1';
    byId(name).setAttribute('aria-pressed', `${state[name]}`);
  }
  if (has('panel')) setPanel(page, given.get('panel') === '1');
  for (const [name, read] of [['Devices', Number], ['Streams', String], ['Kinds', String]])
    for (const value of has(`hide${name}`) ? given.get(`hide${name}`).split(',') : []) page.menus[name].hide(read(value));
  for (const key of has('folded') ? given.get('folded').split(',') : []) state.folded.add(key);
  byId('search').value = given.get('search') ?? '';
  setQuery(page, byId('search').value);
  if (has('path') !== (state.path !== null)) togglePath(page);
  if (has('operation')) {
    const [index, device, op, step] = numbers(given.get('operation')), trace = state.traces[index];
    const event = trace ? findOperation(trace, device, op, step) : -1;
    if (event >= 0) select(page, { trace, event });
  }
  if (has('range')) {
    const [from, to] = numbers(given.get('range'));
    if (to > from) setRange(page, { from, to });
  }
  const [from, to] = numbers(given.get('time'));
  if (to > from) [state.view.from, state.view.to] = [from, to];
  rearrange(page);
  state.view.scroll = Math.min(numbers(given.get('scroll'))[0] || 0, Math.max(0, state.view.content - state.view.height));
}

/** Reads the address now and whenever the reader changes it; writes it when the page has come to rest. */
export function addPermalink(page) {
  let timer = 0, written = location.hash.slice(1);
  if (written) apply(page, written);
  page.drawn.push(() => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const fragment = fragmentOf(page.state);
      if (fragment === written) return;
      written = fragment;
      history.replaceState(null, '', `#${fragment}`);
    }, 200);
  });
  addEventListener('hashchange', () => location.reload());
}
