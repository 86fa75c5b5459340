// Marks on the curves of memory: capacity, peak, and the selected moment.
import * as format from 'piper/format';
import { axisHeight, gutter, isMarked } from 'piper/layout';
import { font, label } from 'piper/text';
import { xOf } from 'piper/viewport';

/** Bytes at the upper edge of a lane's curve: the capacity where it is near enough to see both. */
export function memoryTop(trace, lane) {
  const peak = Math.max(...trace.summary.map((step) => step.lanes[lane].peak_bytes), 1);
  const capacity = trace.capacity[lane] ?? 0;
  return (capacity > 0 && capacity < peak * 2.5 ? Math.max(capacity, peak) : peak) * 1.12;
}

export function drawMemoryMarks(timeline, theme) {
  const { context, state } = timeline;
  context.font = font(10.5);
  for (const band of timeline.bands) {
    if (band.type !== 'memory' || !isMarked(band)) continue;
    const y = axisHeight + band.y - state.view.scroll;
    if (y + band.h < axisHeight || y > axisHeight + state.view.height) continue;
    const { trace, lane } = band, most = memoryTop(trace, lane), lanes = trace.summary[state.stepOf(trace)].lanes;
    const yOf = (bytes) => y + band.h * (1 - bytes / most);
    const capacity = trace.capacity[lane] ?? 0;
    context.save();
    context.beginPath();
    context.rect(gutter, Math.max(axisHeight, y), state.view.width, band.h);
    context.clip();
    if (capacity > 0 && capacity <= most) {
      context.strokeStyle = theme.path;
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(gutter, yOf(capacity));
      context.lineTo(gutter + state.view.width, yOf(capacity));
      context.stroke();
      context.setLineDash([]);
      label(context, `capacity ${format.bytes(capacity)}`, gutter + state.view.width - 6, yOf(capacity) + 8, theme, 'right');
    }
    const x = gutter + xOf(state.view, lanes[lane].peak_time - state.offset(trace)), top = yOf(lanes[lane].peak_bytes);
    context.fillStyle = theme.text;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x - 4, top - 6);
    context.lineTo(x + 4, top - 6);
    context.fill();
    const right = x > gutter + state.view.width - 170;
    const most_text = capacity > most ? ` of ${format.bytes(capacity)}` : '';
    label(context, `peak ${format.bytes(lanes[lane].peak_bytes)}${most_text}`, right ? x - 8 : x + 8, Math.max(top - 1, y + 7), theme, right ? 'right' : 'left');
    if (state.moment?.trace === trace && state.moment.lane === lane) drawMoment(timeline, theme, band, y);
    context.restore();
  }
}

function drawMoment(timeline, theme, band, y) {
  const { context, state } = timeline, { trace, sample } = state.moment;
  const x = gutter + xOf(state.view, trace.memory.time[sample] - state.offset(trace));
  for (const [color, width] of [[theme.halo, 4], [theme.strong, 2]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, y + band.h);
    context.stroke();
  }
  context.lineWidth = 1;
}
