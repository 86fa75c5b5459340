// Menus of check boxes, and tabs.
import { byId, element, fill } from 'piper/dom';

/** A check box for every value; what is unchecked goes into `hidden`. Returns what hides one. */
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
  const hide = (wanted) => boxes.filter(({ value }) => value === wanted).forEach(({ value, box }) => { box.checked = false; set(value, false); finish(); });
  return { hide };
}

export function addTabs(names) {
  const open = (chosen) => names.forEach((name) => {
    byId(`view-${name}`).hidden = name !== chosen;
    byId(`tab-${name}`).setAttribute('aria-selected', `${name === chosen}`);
  });
  names.forEach((name) => byId(`tab-${name}`).addEventListener('click', () => open(name)));
  return { open };
}
