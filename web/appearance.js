// How the page looks: light or dark, lanes high or folded, with memory or not, in pairs or not, with the panel or not.
import { byId } from 'piper/dom';
import { rearrange } from 'piper/page';

export function setTheme(page, dark) {
  page.state.dark = dark;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  byId('theme').textContent = dark ? 'Light' : 'Dark';
  rearrange(page);
}

/** `name`: of the button and of what it switches. */
export function toggle(page, name) {
  page.state[name] = !page.state[name];
  byId(name).setAttribute('aria-pressed', `${page.state[name]}`);
  rearrange(page);
}

export function setPanel(page, shown) {
  page.state.panel = shown;
  byId('panel').hidden = !shown;
  byId('show-panel').setAttribute('aria-pressed', `${shown}`);
  rearrange(page);
}

/** Lanes, as {trace, lane}, show all of their rows, or only their computations; if some are folded, all are unfolded. */
export function fold(page, lanes) {
  const { folded } = page.state, keys = lanes.map(({ trace, lane }) => `${trace.index}:${lane}`), open = keys.some((key) => folded.has(key));
  for (const key of keys) {
    if (open) folded.delete(key);
    else folded.add(key);
  }
  rearrange(page);
}

export function scaleBy(page, factor) {
  page.state.scale = Math.min(8, Math.max(0.25, page.state.scale * factor));
  rearrange(page);
}
