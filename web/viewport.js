// Which part of time is in view, and how far the lanes are scrolled. Pure numbers; whoever changes them asks for a drawing.

export function makeViewport(begin, end) {
  return { begin, end, from: begin, to: end, width: 1, height: 1, scroll: 0, content: 0 };
}

export const xOf = (view, time) => ((time - view.from) / (view.to - view.from)) * view.width;
export const timeAt = (view, x) => view.from + (x / view.width) * (view.to - view.from);

/** Some air on both sides, so that the first and the last operation do not touch the border. */
export function fit(view, begin = view.begin, end = view.end) {
  const length = end - begin || 1e-9;
  view.from = begin - length * 0.01;
  view.to = end + length * 0.01;
}

/** At most a quarter of the view lies before the beginning or behind the end. */
function clamp(view) {
  const whole = view.end - view.begin || 1e-9;
  const length = Math.min(Math.max(view.to - view.from, whole * 1e-7, 1e-12), whole * 1.5);
  const first = view.begin - length / 4, last = Math.max(first, view.end + length / 4 - length);
  view.from = Math.min(Math.max((view.from + view.to) / 2 - length / 2, first), last);
  view.to = view.from + length;
}

/** factor < 1 shows less time; the moment under `x` stays where it is. */
export function zoom(view, factor, x = view.width / 2) {
  const whole = view.end - view.begin || 1e-9;
  const fixed = timeAt(view, x), length = view.to - view.from;
  const wanted = Math.min(Math.max(length * factor, whole * 1e-7, 1e-12), whole * 1.5);
  view.from = fixed - (fixed - view.from) * (wanted / length);
  view.to = view.from + wanted;
  clamp(view);
}

export function pan(view, pixels) {
  const shift = (pixels / view.width) * (view.to - view.from);
  view.from += shift;
  view.to += shift;
  clamp(view);
}

export function scroll(view, pixels) {
  view.scroll = Math.min(Math.max(0, view.scroll + pixels), Math.max(0, view.content - view.height));
}

/** Moves only if the moment is out of view. */
export function center(view, time) {
  if (time < view.from || time > view.to) moveTo(view, time);
}

/** The same length of time around a moment. */
export function moveTo(view, time) {
  const half = (view.to - view.from) / 2;
  view.from = time - half;
  view.to = time + half;
  clamp(view);
}

/** Moves only as far as needed to see the operation. */
export function show(view, start, end) {
  const length = view.to - view.from;
  if (end - start > length * 0.9) fit(view, start - (end - start) * 0.5, end + (end - start) * 0.5);
  else if (start < view.from || end > view.to) {
    view.from = (start + end) / 2 - length / 2;
    view.to = view.from + length;
  } else if (end - start < length / 200) {
    const wanted = Math.max((end - start) * 50, 1e-12);
    view.from = (start + end) / 2 - wanted / 2;
    view.to = view.from + wanted;
  }
  clamp(view);
}
