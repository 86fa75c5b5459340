// How the lanes look: light or dark, how high, with memory or not, in pairs or not.
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

export function scaleBy(page, factor) {
  page.state.scale = Math.min(8, Math.max(0.25, page.state.scale * factor));
  rearrange(page);
}
