// Text on the canvas.

export const font = (size, weight = 400) => `${weight} ${size}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** The text, cut to fit a width. */
export function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? '' : `${text.slice(0, low)}…`;
}

/** Text with a halo, legible on any colour. */
export function label(context, text, x, y, theme, align) {
  context.textAlign = align;
  context.textBaseline = 'middle';
  context.lineJoin = 'round';
  context.lineWidth = 3;
  context.strokeStyle = theme.halo;
  context.strokeText(text, x, y);
  context.fillStyle = theme.text;
  context.fillText(text, x, y);
  context.textAlign = 'left';
  context.lineWidth = 1;
}
