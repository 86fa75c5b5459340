// The page: reads the traces it carries, keeps the state, and connects controls, keys and pointer with the drawing.
import { describeMoment, showMoment, spokenMoment, timeOf } from 'piper/alive';
import { categoryColor, classColor, classOrder, css, describeClass } from 'piper/colors';
import { decode } from 'piper/decode';
import { byId, element, fill } from 'piper/dom';
import { addChoices, addTabs, showKeys } from 'piper/controls';
import * as format from 'piper/format';
import { axisHeight, gutter } from 'piper/layout';
import { blockOf, hit, momentAt } from 'piper/locate';
import { fullest, loadBuffers, nextChange, peakOf } from 'piper/memory';
import { showOperation, spoken } from 'piper/panel';
import { parseQuery, search } from 'piper/search';
import { showDevices, showDifferences, showNumbers } from 'piper/summary';
import { arrange, draw, makeTimeline } from 'piper/timeline';
import { criticalPath, findOperation, kindOf, laneOf, makeTrace, nameOf } from 'piper/trace';
import * as viewport from 'piper/viewport';

const sources = { simulated: 'predicted', measured: 'measured' };

/** Everything the page shows; the drawing reads it, `change` functions below write it. */
function makeState(traces) {
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

function span(state) {
  const lengths = state.traces.map((trace) => (state.step < 0 ? trace.seconds : trace.summary[state.stepOf(trace)].seconds));
  return Math.max(...lengths, 1e-9);
}

export async function start() {
  const loading = byId('loading');
  try {
    const blocks = [...document.querySelectorAll('script[type="application/x-piper-trace"]')];
    const traces = await Promise.all(blocks.map(async (block, index) => {
      const trace = makeTrace(await decode(block.textContent), index);
      trace.packedBuffers = block.nextElementSibling.textContent;
      return trace;
    }));
    blocks.forEach((block) => { block.nextElementSibling.remove(); block.remove(); });
    run(makeState(traces));
    loading.remove();
  } catch (problem) {
    loading.className = 'failed';
    loading.textContent = `The trace in this page cannot be shown: ${problem.message}. Make the page again with piper view.`;
    throw problem;
  }
}

function run(state) {
  const { traces } = state;
  const canvas = byId('canvas'), timeline = makeTimeline(canvas, state);
  state.view = viewport.makeViewport(0, span(state));
  viewport.fit(state.view);

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(timeline); });
  };
  const rearrange = () => { arrange(timeline); redraw(); };

  // ---- what changes the state

  const refreshNumbers = () => {
    showNumbers(byId('numbers'), traces, state.stepOf, state.titleOf);
    showDevices(byId('view-devices'), traces, state.stepOf, state.titleOf, (trace, lane) => selectMoment({ trace, lane, sample: peakOf(trace, lane, state.stepOf(trace)) }));
  };

  const refreshEmphasis = () => {
    traces.forEach((trace, i) => {
      const found = state.found[i], path = state.path?.[i];
      if (!found && !path && state.hiddenKinds.size === 0) { state.emphasis[i] = null; return; }
      const out = new Uint8Array(trace.count), onPath = new Set(path?.events ?? []);
      for (let e = 0; e < trace.count; e++) {
        const plain = (!found || found[e]) && (!path || onPath.has(e));
        out[e] = state.hiddenKinds.has(kindOf(trace, e)) ? 0 : plain ? 2 : 1;
      }
      state.emphasis[i] = out;
    });
    redraw();
  };

  const matches = () => traces.flatMap((trace, i) => {
    const out = [];
    if (state.found[i])
      for (let e = 0; e < trace.count; e++)
        if (state.found[i][e] && (state.step < 0 || trace.step[e] === state.stepOf(trace))) out.push({ trace, event: e });
    return out;
  });

  const select = (selected, move = true) => {
    state.selected = selected;
    state.matched = [];
    state.moment = null;
    if (selected) {
      const { trace, event } = selected;
      for (const other of traces)
        if (other !== trace && other.plan === trace.plan && other.plan !== '') {
          const match = findOperation(other, trace.lanes[laneOf(trace, event)][0], trace.op[event], Math.min(trace.step[event], other.steps.length - 1));
          if (match >= 0) state.matched.push({ trace: other, event: match });
        }
      byId('selected-text').textContent = spoken(selected);
      if (state.step >= 0 && trace.step[event] !== state.stepOf(trace)) setStep(trace.step[event]);
      if (move) reveal(selected);
      tabs.open('operation');
    } else {
      byId('selected-text').textContent = '';
    }
    showOperation(byId('view-operation'), selected, { select, searchFor, matched: state.matched, titleOf: state.titleOf });
    redraw();
  };

  const selectMoment = async (moment) => {
    state.selected = null;
    state.matched = [];
    state.moment = moment;
    const { trace, lane } = moment, offset = state.offset(trace);
    const band = timeline.bands.find((b) => b.type === 'memory' && b.trace === trace && b.lane === lane);
    viewport.center(state.view, timeOf(moment) - offset);
    if (band) revealBand(axisHeight + band.y - state.view.scroll, band.h);
    redraw();
    await loadBuffers(trace);
    if (state.moment !== moment) return;
    byId('selected-text').textContent = spokenMoment(moment, state.stepOf(trace), offset);
    showMoment(byId('view-operation'), moment, state.stepOf(trace), offset, select);
    tabs.open('operation');
  };

  const revealBand = (y, height) => {
    const above = y - axisHeight, below = y + height - axisHeight - state.view.height;
    if (above < 0) viewport.scroll(state.view, above - 10);
    else if (below > 0) viewport.scroll(state.view, below + 10);
  };

  const reveal = ({ trace, event }) => {
    const offset = state.offset(trace);
    viewport.show(state.view, trace.start[event] - offset, trace.end[event] - offset);
    const block = blockOf(timeline, trace, event);
    if (block) revealBand(block.y, block.height);
  };

  const setQuery = (text) => {
    state.terms = parseQuery(text);
    state.found = traces.map((trace) => search(trace, state.terms));
    const number = state.terms.length === 0 ? null : matches().length;
    byId('matches').textContent = number === null ? '' : number === 0 ? 'no operation' : `${format.count(number)} operation${number === 1 ? '' : 's'}`;
    refreshEmphasis();
  };

  const searchFor = (text) => {
    byId('search').value = `${byId('search').value.trim()} ${text}`.trim();
    setQuery(byId('search').value);
  };

  /** The next or the one before, in order of time; round and round. */
  const stepMatch = (direction) => {
    const all = matches().sort((a, b) => (a.trace.start[a.event] - state.offset(a.trace)) - (b.trace.start[b.event] - state.offset(b.trace)) || a.trace.index - b.trace.index || a.event - b.event);
    if (all.length === 0) return;
    const at = all.findIndex((m) => state.selected && m.trace === state.selected.trace && m.event === state.selected.event);
    select(all[(at + direction + all.length + (at < 0 && direction < 0 ? 1 : 0)) % all.length]);
  };

  /** The operation before or after the selected one in its row, or the change of memory. */
  const stepRow = (direction) => {
    if (state.moment) {
      const { trace, lane, sample } = state.moment;
      selectMoment({ trace, lane, sample: nextChange(trace, lane, sample, direction) });
      return;
    }
    if (!state.selected) {
      const trace = traces.find((t) => t.count > 0);
      if (trace) select({ trace, event: trace.rows[0].first });
      return;
    }
    const { trace, event } = state.selected, row = trace.rows[trace.rowOf[event]], next = event + direction;
    if (next >= row.first && next < row.last) select({ trace, event: next });
  };

  /** The operation, or the memory, at about the same time in the row above or below. */
  const stepLane = (direction) => {
    const { selected, moment } = state;
    if (!selected && !moment) { stepRow(1); return; }
    const { trace } = selected ?? moment, time = (selected ? trace.start[selected.event] : timeOf(moment)) - state.offset(trace);
    const rows = timeline.bands.filter((band) => band.h > 0 && (band.type === 'row' || band.type === 'memory'));
    const here = (band) => band.trace === trace && (selected ? band.row === trace.rowOf[selected.event] : band.type === 'memory' && band.lane === moment.lane);
    for (let at = rows.findIndex(here) + direction; at >= 0 && at < rows.length; at += direction) {
      const other = rows[at].trace, offset = state.offset(other);
      if (rows[at].type === 'memory') {
        const sample = fullest(other, rows[at].lane, time + offset, time + offset);
        if (sample < 0) continue;
        selectMoment({ trace: other, lane: rows[at].lane, sample });
        return;
      }
      const row = other.rows[rows[at].row];
      let best = -1;
      for (let e = row.first; e < row.last; e++)
        if (best < 0 || Math.abs(other.start[e] - offset - time) < Math.abs(other.start[best] - offset - time)) best = e;
      if (best >= 0) { select({ trace: other, event: best }); return; }
    }
  };

  /** The peak of the selected lane, or of the fullest one. */
  const selectPeak = () => {
    const { trace } = state.selected ?? state.moment ?? { trace: traces[0] };
    const { lanes } = trace.summary[state.stepOf(trace)], peaks = lanes.map((lane) => lane.peak_bytes);
    const lane = state.selected ? laneOf(trace, state.selected.event) : state.moment ? state.moment.lane : peaks.indexOf(Math.max(...peaks));
    const sample = peakOf(trace, lane, state.stepOf(trace));
    if (sample >= 0) selectMoment({ trace, lane, sample });
  };

  const setStep = (step) => {
    if (state.moment) select(null);
    state.step = step;
    byId('step').value = `${step}`;
    state.view.end = span(state);
    viewport.fit(state.view);
    if (state.path) setPath(true);
    setQuery(byId('search').value);
    refreshNumbers();
    redraw();
  };

  const setPath = (on) => {
    state.path = on ? traces.map((trace) => ({ trace, events: criticalPath(trace, state.stepOf(trace)) })) : null;
    byId('path').setAttribute('aria-pressed', `${on}`);
    refreshEmphasis();
  };

  const setTheme = (dark) => {
    state.dark = dark;
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    byId('theme').textContent = dark ? 'Light' : 'Dark';
    rearrange();
  };

  const toggle = (id, property) => {
    state[property] = !state[property];
    byId(id).setAttribute('aria-pressed', `${state[property]}`);
    rearrange();
  };

  const zoomBy = (factor, x) => { viewport.zoom(state.view, factor, x); redraw(); };
  const fitAll = () => { viewport.fit(state.view); state.view.scroll = 0; redraw(); };
  const setScale = (scale) => { state.scale = Math.min(8, Math.max(0.25, scale)); rearrange(); };

  // ---- controls

  const first = traces[0];
  document.title = `${first.model || 'trace'} – Piper`;
  byId('title').textContent = first.model || 'Piper';
  byId('about').textContent = [traces.length === 1 ? first.source : '', first.cluster && `on ${first.cluster}`].filter(Boolean).join(' ');
  byId('title').title = traces.map((trace) => `${trace.label}: ${trace.source}, model ${trace.model}, cluster ${trace.cluster}, plan ${trace.plan}`).join('\n');
  byId('empty').hidden = traces.some((trace) => trace.count > 0);
  const tabs = addTabs(['operation', 'devices', 'compare']);
  if (traces.length > 1) {
    byId('pair').hidden = byId('tab-compare').hidden = false;
    showDifferences(byId('view-compare'), traces, state.titleOf, (device, op) => {
      const event = findOperation(traces[0], device, op, 0);
      if (event >= 0) select({ trace: traces[0], event });
    });
  }
  const unique = (lists) => [...new Set(lists.flat(2))];
  const used = (trace) => new Set(trace.rows.map((row) => trace.streams[row.stream]));
  addChoices(byId('device-menu'), byId('devices'), unique(traces.map((t) => t.lanes)).sort((a, b) => a - b), state.hiddenDevices, (d) => `device ${d}`, rearrange);
  addChoices(byId('stream-menu'), byId('streams'), unique(traces.map((t) => [...used(t)])), state.hiddenStreams, (s) => s, rearrange);
  addChoices(byId('kind-menu'), byId('kinds'), unique(traces.map((t) => t.kinds)), state.hiddenKinds, (k) => k, refreshEmphasis);
  const most = traces.reduce((a, b) => (b.steps.length > a.steps.length ? b : a));
  if (most.steps.length > 1) {
    byId('step-label').hidden = false;
    fill(byId('step'), ...most.steps.map(([number], i) => element('option', { value: `${i}` }, `${number}`)), element('option', { value: '-1' }, 'all'));
    byId('step').addEventListener('change', (e) => setStep(+e.target.value));
  }
  const classes = classOrder.filter((name) => traces.some((trace) => trace.classNames.includes(name)));
  const categories = unique(traces.map((trace) => trace.categories));
  const sample = (color, text) => element('span', {}, element('i', { style: `background:${css(color)}` }), text);
  fill(byId('legend'),
    ...classes.map((name) => sample(classColor(name), name.length <= 2 ? `${name} ${describeClass(name)}` : describeClass(name))),
    traces.some((trace) => trace.memory.time.length > 0) ? element('span', { class: 'wide' }, 'Memory') : null,
    ...(traces.some((trace) => trace.memory.time.length > 0) ? categories.map((name, i) => sample(categoryColor(name, i), name)) : []));

  const on = (id, action) => byId(id).addEventListener('click', action);
  on('zoom-in', () => zoomBy(1 / 1.5));
  on('zoom-out', () => zoomBy(1.5));
  on('fit', fitAll);
  on('higher', () => setScale(state.scale * 1.25));
  on('lower', () => setScale(state.scale / 1.25));
  on('path', () => setPath(!state.path));
  on('memory', () => toggle('memory', 'memory'));
  on('pair', () => toggle('pair', 'pair'));
  on('theme', () => setTheme(!state.dark));
  on('help', showKeys);
  byId('search').addEventListener('input', (e) => setQuery(e.target.value));
  byId('search').addEventListener('keydown', (e) => {
    if (e.key === 'Enter') { stepMatch(e.shiftKey ? -1 : 1); e.preventDefault(); }
    if (e.key === 'Escape') { e.target.value = ''; setQuery(''); canvas.focus(); }
    e.stopPropagation();
  });

  // ---- keys

  const keys = {
    ArrowLeft: () => { viewport.pan(state.view, -80); redraw(); },
    ArrowRight: () => { viewport.pan(state.view, 80); redraw(); },
    ArrowUp: () => { viewport.scroll(state.view, -60); redraw(); },
    ArrowDown: () => { viewport.scroll(state.view, 60); redraw(); },
    PageUp: () => { viewport.scroll(state.view, -state.view.height * 0.9); redraw(); },
    PageDown: () => { viewport.scroll(state.view, state.view.height * 0.9); redraw(); },
    '+': () => zoomBy(1 / 1.5), '=': () => zoomBy(1 / 1.5), '-': () => zoomBy(1.5), 0: fitAll, f: fitAll,
    n: () => stepMatch(1), p: () => stepMatch(-1), '.': () => stepRow(1), ',': () => stepRow(-1), j: () => stepLane(1), k: () => stepLane(-1),
    c: () => setPath(!state.path), m: () => toggle('memory', 'memory'), t: () => setTheme(!state.dark),
    d: () => { if (traces.length > 1) toggle('pair', 'pair'); },
    s: () => { if (state.moment) zoomBy(1 / 8, viewport.xOf(state.view, timeOf(state.moment) - state.offset(state.moment.trace))); else if (state.selected) { const { trace, event } = state.selected, o = state.offset(trace); viewport.fit(state.view, trace.start[event] - o - (trace.end[event] - trace.start[event]), trace.end[event] - o + (trace.end[event] - trace.start[event])); redraw(); } },
    a: selectPeak,
    ']': () => setScale(state.scale * 1.25), '[': () => setScale(state.scale / 1.25),
    '/': () => byId('search').focus(), '?': showKeys, Escape: () => select(null),
  };
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || byId('keys').open) return;
    const inControl = e.target.closest?.('button, select, summary, input, tr[tabindex]');
    if (inControl && ['Enter', ' ', 'ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'].includes(e.key)) return;
    const action = keys[e.key];
    if (!action) return;
    e.preventDefault();
    action();
  });

  // ---- pointer

  const tip = byId('tip');
  let pointed = null;  // where the pointer is; buffers may be ready only when it has gone on
  const hideTip = () => { pointed = null; tip.hidden = true; };
  const showTip = async (e) => {
    pointed = e;
    const box = canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    const found = x >= gutter ? hit(timeline, x, y) : null;
    const moment = found?.band.type === 'memory' ? momentAt(timeline, found.band, x) : null;
    if (moment) await loadBuffers(moment.trace);
    if (pointed !== e) return;
    const contents = moment ? describeMoment(moment, state.stepOf(moment.trace), state.offset(moment.trace)) : found && found.event >= 0 ? describe(state, found) : null;
    tip.hidden = !contents;
    if (!contents) return;
    fill(tip, ...contents);
    const size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - size.width - 6))}px`;
    tip.style.top = `${y + 18 + size.height > box.height ? Math.max(4, y - size.height - 10) : y + 18}px`;
  };
  let drag = null;
  canvas.addEventListener('pointerdown', (e) => {
    if (e.button !== 0) return;
    canvas.setPointerCapture(e.pointerId);
    drag = { x: e.clientX, y: e.clientY, moved: false };
  });
  canvas.addEventListener('pointermove', (e) => {
    if (!drag) { showTip(e); return; }
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { x: e.clientX, y: e.clientY, moved: true };
    canvas.classList.add('dragging');
    hideTip();
    viewport.pan(state.view, -dx);
    viewport.scroll(state.view, -dy);
    redraw();
  });
  const release = (e) => {
    canvas.classList.remove('dragging');
    if (drag && !drag.moved && e.type === 'pointerup') {
      const box = canvas.getBoundingClientRect();
      const found = hit(timeline, e.clientX - box.left, e.clientY - box.top);
      const moment = found?.band.type === 'memory' ? momentAt(timeline, found.band, e.clientX - box.left) : null;
      if (moment) selectMoment(moment);
      else select(found && found.event >= 0 ? { trace: found.band.trace, event: found.event } : null, false);
    }
    drag = null;
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('wheel', (e) => {
    e.preventDefault();
    const x = e.clientX - canvas.getBoundingClientRect().left - gutter;
    const amount = e.deltaMode === 1 ? e.deltaY * 16 : e.deltaY;
    if (e.shiftKey || x < 0) viewport.scroll(state.view, amount || e.deltaX);
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) viewport.pan(state.view, e.deltaX);
    else viewport.zoom(state.view, Math.exp(Math.max(-240, Math.min(240, amount)) * 0.0016), x);
    hideTip();
    redraw();
  }, { passive: false });

  new ResizeObserver(rearrange).observe(byId('plot'));
  refreshNumbers();
  setTheme(state.dark);
  draw(timeline);
  select(null);
  window.piper = { state, timeline, select, selectMoment, blockOf: (trace, event) => blockOf(timeline, traces[trace], event), draw: () => draw(timeline), viewport };
  document.body.dataset.ready = `${Math.round(performance.now())}`;
}

/** The operation that the pointer is over. */
function describe(state, { band: { trace }, event }) {
  const bytes = trace.bytes[event] > 0 ? `, ${format.bytes(trace.bytes[event])}` : '';
  return [element('div', {}, `${kindOf(trace, event)} ${nameOf(trace, event)}`),
    element('div', {}, `${format.duration(trace.end[event] - trace.start[event])} from ${format.duration(trace.start[event] - state.offset(trace))}${bytes}`)];
}
