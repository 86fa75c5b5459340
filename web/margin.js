// Around the lanes: their names, the time axis, the scroll bar.
import * as format from 'piper/format';
import { axisHeight, gutter } from 'piper/layout';
import { cut, font } from 'piper/text';
import { xOf } from 'piper/viewport';

export function drawGutter(timeline, theme) {
  const { context, state } = timeline;
  context.save();
  context.beginPath();
  context.rect(0, axisHeight, gutter - 4, state.view.height);
  context.clip();
  context.textBaseline = 'middle';
  let lastName = -100;
  for (const band of timeline.bands) {
    const y = axisHeight + band.y - state.view.scroll;
    if (y + band.h < axisHeight || y > axisHeight + state.view.height) continue;
    const middle = y + Math.max(band.h / 2, band.opens ? 6 : 0);
    if (band.type === 'title') {
      context.font = font(12.5, 650);
      context.fillStyle = theme.text;
      context.fillText(cut(context, state.titleOf(band.trace), gutter - 20), 12, y + band.h / 2);
      continue;
    }
    const rowName = band.type === 'memory' ? 'memory' : band.type === 'row' ? band.trace.streams[band.trace.rows[band.row].stream] : '';
    let nameWidth = 0;
    if (band.opens && middle - lastName >= 12) {
      context.font = font(12, 600);
      context.fillStyle = theme.text;
      const paired = state.pair && state.traces.length > 1, devices = band.trace.lanes[band.lane];
      const text = cut(context, paired ? `${format.ranges(devices)} ${state.titleOf(band.trace)}` : format.laneName(devices), gutter - 30);
      context.fillText(text, 16, middle);
      nameWidth = context.measureText(text).width + 4;
      drawFold(context, state.folded.has(`${band.trace.index}:${band.lane}`), 8, middle);
      lastName = middle;
    }
    const size = Math.min(10.5, band.h - 1);
    context.font = font(size);
    const room = gutter - 34 - nameWidth;
    if (rowName && size >= (band.opens ? 10 : 8) && (!band.opens || (nameWidth > 0 && context.measureText(rowName).width <= room))) {
      context.fillStyle = theme.quiet;
      context.textAlign = 'right';
      context.fillText(cut(context, rowName, room), gutter - 10, middle);
      context.textAlign = 'left';
    }
  }
  context.restore();
}

/** A triangle that points down at an open lane, right at a folded one. */
function drawFold(context, folded, x, y) {
  context.beginPath();
  for (const [i, [dx, dy]] of (folded ? [[-2, -4], [3, 0], [-2, 4]] : [[-4, -2], [4, -2], [0, 3]]).entries()) {
    if (i === 0) context.moveTo(x + dx, y + dy);
    else context.lineTo(x + dx, y + dy);
  }
  context.fill();
}

/** Ticks at 1, 2 or 5 times a power of ten, at least 90 pixels apart. */
function tickStep(view) {
  const rough = ((view.to - view.from) / view.width) * 90;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
}

export function drawAxis(timeline, theme) {
  const { context, state } = timeline, { view } = state;
  context.fillStyle = `rgb(${theme.page.join(' ')})`;
  context.fillRect(0, 0, timeline.canvas.width, axisHeight);
  context.font = font(11);
  context.textBaseline = 'middle';
  context.fillStyle = theme.quiet;
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  const step = tickStep(view);
  context.beginPath();
  for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
    const x = Math.round(gutter + xOf(view, n * step)) + 0.5;
    context.moveTo(x, axisHeight - 6);
    context.lineTo(x, axisHeight);
    const text = n === 0 ? '0' : format.tick(n * step, step), width = context.measureText(text).width;
    if (x + 4 + width < gutter + view.width + 8) context.fillText(text, x + 4, axisHeight / 2);
  }
  context.moveTo(0, axisHeight - 0.5);
  context.lineTo(gutter + view.width + 8, axisHeight - 0.5);
  context.stroke();
}

export function drawScrollbar(timeline, theme) {
  const { context, state } = timeline, { view } = state;
  if (view.content <= view.height) return;
  const length = Math.max(24, (view.height * view.height) / view.content);
  const y = axisHeight + (view.scroll / (view.content - view.height)) * (view.height - length);
  context.fillStyle = theme.quiet;
  context.globalAlpha = 0.5;
  context.fillRect(gutter + view.width + 2, y, 5, length);
  context.globalAlpha = 1;
}
