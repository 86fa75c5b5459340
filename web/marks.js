// Marks on the curves of memory: capacity, peak, and the selected moment.
import * as format from 'piper/format';
import { axisHeight, gutter, isMarked } from 'piper/layout';
import { font, label } from 'piper/text';
import { xOf } from 'piper/viewport';

const far = 4;  // times the largest peak: such a capacity is off the scale, because curves would be flat below it

/** Bytes at the upper edge of all curves: one scale, so that lanes and traces can be compared, with room for all capacities that are not far. */
export function memoryTop(traces) {
  const peak = Math.max(...traces.flatMap((trace) => trace.summary.map((step) => step.peak_bytes)), 1);
  return 1.12 * Math.max(peak, ...traces.flatMap((trace) => trace.capacity).filter((capacity) => capacity <= far * peak));
}

export function drawMemoryMarks(timeline, theme) {
  const { context, state } = timeline;
  for (const band of timeline.bands) {
    const y = axisHeight + band.y - state.view.scroll;
    if (band.type !== 'memory' || band.h === 0 || y + band.h < axisHeight || y > axisHeight + state.view.height) continue;
    context.save();
    context.beginPath();
    context.rect(gutter, Math.max(axisHeight, y), state.view.width, band.h);
    context.clip();
    const yOf = (bytes) => y + (band.h - 1) * (1 - bytes / timeline.memoryTop);
    drawCapacity(timeline, theme, band, y, yOf);
    if (isMarked(band)) drawPeak(timeline, theme, band, y, yOf);
    if (state.moment?.trace === band.trace && state.moment.lane === band.lane) drawMoment(timeline, theme, band, y);
    context.restore();
  }
}

/** A dashed line; off the scale a dotted one at the upper edge. */
function drawCapacity({ context, state, memoryTop: most }, theme, band, y, yOf) {
  const capacity = band.trace.capacity[band.lane] ?? 0, above = capacity > most, at = above ? y + 2 : yOf(capacity);
  if (!(capacity > 0)) return;
  context.strokeStyle = theme.path;
  context.lineWidth = 1;
  context.setLineDash(above ? [1, 3] : [5, 4]);
  context.beginPath();
  context.moveTo(gutter, at);
  context.lineTo(gutter + state.view.width, at);
  context.stroke();
  context.setLineDash([]);
  context.font = font(10.5);
  if (isMarked(band)) label(context, `capacity ${format.bytes(capacity)}${above ? ', off the scale' : ''}`, gutter + state.view.width - 6, at + 8, theme, 'right');
}

function drawPeak({ context, state }, theme, { trace, lane }, y, yOf) {
  const { peak_bytes: peak, peak_time: time } = trace.summary[state.stepOf(trace)].lanes[lane];
  const x = gutter + xOf(state.view, time - state.offset(trace)), top = yOf(peak);
  context.fillStyle = theme.text;
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x - 4, top - 6);
  context.lineTo(x + 4, top - 6);
  context.fill();
  const right = x > gutter + state.view.width - 240;  // the capacity is named there
  context.font = font(10.5);
  label(context, `peak ${format.bytes(peak)}`, right ? x - 8 : x + 8, Math.max(top - 1, y + 7), theme, right ? 'right' : 'left');
}

function drawMoment({ context, state }, theme, band, y) {
  const { trace, sample } = state.moment;
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
