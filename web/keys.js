// What keys do, and the list of them.
import { fold, scaleBy, setPanel, setTheme, toggle } from 'piper/appearance';
import { byId, element, fill } from 'piper/dom';
import { togglePath } from 'piper/emphasis';
import { fitAll, panBy, scrollBy, zoomBy, zoomToSelected } from 'piper/moving';
import { selectPeak, stepLane, stepMatch, stepRow } from 'piper/navigation';
import { select } from 'piper/selection';
import { laneOf } from 'piper/trace';

const actions = {
  ArrowLeft: (page) => panBy(page, -80),
  ArrowRight: (page) => panBy(page, 80),
  ArrowUp: (page) => scrollBy(page, -60),
  ArrowDown: (page) => scrollBy(page, 60),
  PageUp: (page) => scrollBy(page, -page.state.view.height * 0.9),
  PageDown: (page) => scrollBy(page, page.state.view.height * 0.9),
  '+': (page) => zoomBy(page, 1 / 1.5), '=': (page) => zoomBy(page, 1 / 1.5), '-': (page) => zoomBy(page, 1.5), 0: fitAll,
  w: (page) => zoomBy(page, 1 / 1.5), s: (page) => zoomBy(page, 1.5), a: (page) => panBy(page, -80), d: (page) => panBy(page, 80),
  n: (page) => stepMatch(page, 1), p: (page) => stepMatch(page, -1),
  '.': (page) => stepRow(page, 1), ',': (page) => stepRow(page, -1),
  j: (page) => stepLane(page, 1), k: (page) => stepLane(page, -1),
  x: selectPeak, f: zoomToSelected, Escape: (page) => select(page, null),
  c: togglePath, m: (page) => toggle(page, 'memory'), t: (page) => setTheme(page, !page.state.dark),
  g: (page) => { if (page.state.traces.length > 1) toggle(page, 'pair'); },
  b: (page) => setPanel(page, !page.state.panel), z: foldSelected,
  ']': (page) => scaleBy(page, 1.25), '[': (page) => scaleBy(page, 1 / 1.25),
  '/': () => byId('search').focus(), '?': showKeys,
};

/** The lane of the selection, or all of them. */
function foldSelected(page) {
  const { traces, selected, moment } = page.state;
  if (selected) fold(page, [{ trace: selected.trace, lane: laneOf(selected.trace, selected.event) }]);
  else fold(page, moment ? [moment] : traces.flatMap((trace) => trace.lanes.map((_, lane) => ({ trace, lane }))));
}

/** Buttons, menus and links use these themselves. */
const keysOfControls = ['Enter', ' ', 'ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'];

export function addKeys(page) {
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || byId('keys').open) return;
    const inControl = e.target.closest?.('button, select, summary, input, tr[tabindex]');
    if (inControl && keysOfControls.includes(e.key)) return;
    const action = actions[e.key];
    if (!action) return;
    e.preventDefault();
    action(page);
  });
}

const list = [
  ['wheel, + −, w s', 'zoom'], ['drag, ← →, a d', 'pan'], ['Shift + wheel, ↑ ↓', 'scroll the lanes'], ['drag on the axis, Shift + drag', 'select a range of time'], ['0', 'the whole step'], ['[ ]', 'lower, higher lanes'],
  ['/', 'search: layer=3 mb=2 pass=BI, layer=0..3, kind=send, device=4'], ['Enter, n p', 'next match, the one before'],
  [', .', 'operation (or change of memory) before, after in the row'], ['j k', 'operation (or memory) in the row below, above'], ['x', 'what is alive at the peak of memory'], ['f', 'zoom to what is selected'], ['Esc', 'select nothing'],
  ['c', 'critical path'], ['m', 'memory'], ['g', 'lanes of the same devices below each other'], ['z, click on a name', 'fold the lane'], ['b', 'panel'], ['t', 'light or dark'],
];

export function showKeys() {
  const dialog = byId('keys');
  fill(dialog, element('h2', {}, 'Keys'), element('dl', {}, ...list.flatMap(([key, what]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, what)])),
    element('button', { onclick: () => dialog.close() }, 'Close'));
  if (!dialog.open) dialog.showModal();
}
