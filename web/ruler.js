// A line under the pointer, from top to bottom, with the time on the axis.
import { byId } from 'piper/dom';
import * as format from 'piper/format';
import { gutter } from 'piper/layout';
import { timeAt } from 'piper/viewport';

/** At a place of the canvas; null hides it. */
export function moveRuler(page, x) {
  const ruler = byId('ruler'), { view } = page.state;
  ruler.hidden = x === null || x < gutter || x > gutter + view.width;
  if (ruler.hidden) return;
  ruler.style.left = `${x}px`;
  ruler.firstElementChild.textContent = format.duration(timeAt(view, x - gutter));
  ruler.classList.toggle('flipped', x > gutter + view.width - 90);
}
