// Menus of check boxes, tabs, and the list of keys.
import { byId, element, fill } from 'piper/dom';

/** A check box for every value; what is unchecked goes into `hidden`. */
export function addChoices(menu, place, values, hidden, nameOf, changed) {
  const boxes = values.map((value) => {
    const box = element('input', { type: 'checkbox' });
    box.checked = true;
    box.addEventListener('change', () => { set(value, box.checked); finish(); });
    return { value, box, label: element('label', {}, box, nameOf(value)) };
  });
  const set = (value, shown) => { if (shown) hidden.delete(value); else hidden.add(value); };
  const finish = () => { menu.classList.toggle('narrowed', hidden.size > 0); changed(); };
  const all = (shown) => () => { boxes.forEach(({ value, box }) => { box.checked = shown; set(value, shown); }); finish(); };
  fill(place, element('div', { class: 'both' }, element('button', { onclick: all(true) }, 'all'), element('button', { onclick: all(false) }, 'none')),
    ...boxes.map(({ label }) => label));
  document.addEventListener('pointerdown', (e) => { if (!menu.contains(e.target)) menu.open = false; });
  menu.addEventListener('keydown', (e) => { if (e.key === 'Escape') { menu.open = false; menu.querySelector('summary').focus(); e.stopPropagation(); } });
}

export function addTabs(names) {
  const open = (chosen) => names.forEach((name) => {
    byId(`view-${name}`).hidden = name !== chosen;
    byId(`tab-${name}`).setAttribute('aria-selected', `${name === chosen}`);
  });
  names.forEach((name) => byId(`tab-${name}`).addEventListener('click', () => open(name)));
  return { open };
}

const keys = [
  ['wheel, + −', 'zoom'], ['drag, ← →', 'pan'], ['Shift + wheel, ↑ ↓', 'scroll the lanes'], ['0', 'the whole step'], ['[ ]', 'lower, higher lanes'],
  ['/', 'search: layer=3 mb=2 pass=BI, layer=0..3, kind=send, device=4'], ['Enter, n p', 'next match, the one before'],
  [', .', 'operation (or change of memory) before, after in the row'], ['j k', 'operation (or memory) in the row below, above'], ['a', 'what is alive at the peak of memory'], ['s', 'zoom to what is selected'], ['Esc', 'select nothing'],
  ['c', 'critical path'], ['m', 'memory'], ['d', 'lanes of the same devices below each other'], ['t', 'light or dark'],
];

export function showKeys() {
  const dialog = byId('keys');
  fill(dialog, element('h2', {}, 'Keys'), element('dl', {}, ...keys.flatMap(([key, what]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, what)])),
    element('button', { onclick: () => dialog.close() }, 'Close'));
  if (!dialog.open) dialog.showModal();
}
