// What stands above the timeline: the menus, the choice of a step, the buttons, the search box.
import { scaleBy, setPanel, setTheme, toggle } from 'piper/appearance';
import { byId, element, fill } from 'piper/dom';
import { refreshEmphasis, setQuery, togglePath } from 'piper/emphasis';
import { showKeys } from 'piper/keys';
import { fitAll, zoomBy } from 'piper/moving';
import { stepMatch } from 'piper/navigation';
import { rearrange } from 'piper/page';
import { savePng, saveSvg } from 'piper/picture';
import { setStep } from 'piper/selection';
import { addChoices } from 'piper/widgets';

export function addControls(page) {
  byId('pair').hidden = byId('tab-compare').hidden = page.state.traces.length < 2;
  addMenus(page);
  addSteps(page);
  addButtons(page);
  addSearch(page);
}

function addMenus(page) {
  const { traces, hiddenDevices, hiddenStreams, hiddenKinds } = page.state;
  const unique = (valuesOf) => [...new Set(traces.flatMap(valuesOf))];
  const devices = unique((trace) => trace.lanes.flat()).sort((a, b) => a - b);
  const streams = unique((trace) => trace.rows.map((row) => trace.streams[row.stream]));
  page.menus.Devices = addChoices(byId('device-menu'), byId('devices'), devices, hiddenDevices, (d) => `device ${d}`, () => rearrange(page));
  page.menus.Streams = addChoices(byId('stream-menu'), byId('streams'), streams, hiddenStreams, (s) => s, () => rearrange(page));
  page.menus.Kinds = addChoices(byId('kind-menu'), byId('kinds'), unique((trace) => trace.kinds), hiddenKinds, (k) => k, () => { refreshEmphasis(page); rearrange(page); });
}

function addSteps(page) {
  const { steps } = page.state.traces.reduce((a, b) => (b.steps.length > a.steps.length ? b : a));
  if (steps.length < 2) return;
  byId('step-label').hidden = false;
  fill(byId('step'), ...steps.map(([number], i) => element('option', { value: `${i}` }, `${number}`)), element('option', { value: '-1' }, 'all'));
  byId('step').addEventListener('change', (e) => setStep(page, +e.target.value));
}

function addButtons(page) {
  const on = (id, action) => byId(id).addEventListener('click', action);
  on('zoom-in', () => zoomBy(page, 1 / 1.5));
  on('zoom-out', () => zoomBy(page, 1.5));
  on('fit', () => fitAll(page));
  on('higher', () => scaleBy(page, 1.25));
  on('lower', () => scaleBy(page, 1 / 1.25));
  on('path', () => togglePath(page));
  on('memory', () => toggle(page, 'memory'));
  on('pair', () => toggle(page, 'pair'));
  on('theme', () => setTheme(page, !page.state.dark));
  on('show-panel', () => setPanel(page, !page.state.panel));
  on('png', () => savePng(page));
  on('svg', () => saveSvg(page));
  on('help', showKeys);
}

function addSearch(page) {
  const box = byId('search');
  box.addEventListener('input', () => setQuery(page, box.value));
  box.addEventListener('keydown', (e) => {
    if (e.key === 'Enter') { stepMatch(page, e.shiftKey ? -1 : 1); e.preventDefault(); }
    if (e.key === 'Escape') { box.value = ''; setQuery(page, ''); page.canvas.focus(); }
    e.stopPropagation();
  });
}
