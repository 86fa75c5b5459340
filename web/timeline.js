// The canvas: axis, lanes with their names, operations, memory, and on top of them selection, arrows and the critical path.
import { categoryColor, theme as themeOf } from 'piper/colors';
import * as format from 'piper/format';
import { axisHeight, layOut } from 'piper/layout';
import { fullest, peakOf } from 'piper/memory';
import { clear, drawMemory, drawRow, makePalette, makeRaster } from 'piper/raster';
import { dependencies, dependents, firstAfter, nameOf } from 'piper/trace';
import { timeAt, xOf } from 'piper/viewport';

export const gutter = 160;

/** Everything that is drawn; `state` is the page's, see main.js. */
export function makeTimeline(canvas, state) {
  return { canvas, context: canvas.getContext('2d'), state, raster: null, palettes: new Map(), bands: [], bandOfRow: new Map(), ratio: 1 };
}

/** After a change of size, filters, traces or theme. */
export function arrange(timeline) {
  const { canvas, state } = timeline;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const box = canvas.parentElement.getBoundingClientRect();
  timeline.ratio = ratio;
  canvas.width = Math.max(1, Math.round(box.width * ratio));
  canvas.height = Math.max(1, Math.round(box.height * ratio));
  state.view.width = Math.max(1, box.width - gutter - 8);
  state.view.height = Math.max(1, box.height - axisHeight);
  const { bands, height } = layOut(state.traces, state, state.view.height);
  timeline.bands = bands;
  timeline.bandOfRow = new Map(bands.filter((band) => band.type === 'row').map((band) => [`${band.trace.index}:${band.row}`, band]));
  state.view.content = height;
  state.view.scroll = Math.min(state.view.scroll, Math.max(0, height - state.view.height));
  timeline.raster = makeRaster(Math.max(1, Math.round(state.view.width * ratio)), Math.max(1, Math.round(state.view.height * ratio)));
  timeline.palettes = new Map(state.traces.map((trace) => [trace, makePalette(trace, themeOf(state.dark))]));
}

/** Where an operation is drawn, in pixels of the canvas element; null if its row is hidden. */
export function blockOf(timeline, trace, event) {
  const band = timeline.bandOfRow.get(`${trace.index}:${trace.rowOf[event]}`);
  if (!band) return null;
  const { view } = timeline.state, offset = timeline.state.offset(trace);
  const x = gutter + xOf(view, trace.start[event] - offset);
  return { x, y: axisHeight + band.y - view.scroll, width: gutter + xOf(view, trace.end[event] - offset) - x, height: band.h - airOf(band) };
}

/** What is at a point of the canvas element: {band, time, event}. */
export function hit(timeline, x, y) {
  const { view } = timeline.state;
  if (y < axisHeight) return null;
  const at = y - axisHeight + view.scroll;
  const band = timeline.bands.find((b) => at >= b.y && at < b.y + b.h);
  if (!band) return null;
  const time = timeAt(view, x - gutter) + timeline.state.offset(band.trace);
  if (band.type !== 'row' || x < gutter) return { band, time, event: -1 };
  const { trace } = band, row = trace.rows[band.row];
  const reach = (view.to - view.from) / view.width;  // a pixel on both sides
  let best = -1;
  for (let e = firstAfter(trace, row, time - reach); e < row.last && trace.start[e] <= time + reach; e++) {
    if (timeline.state.emphasis[trace.index]?.[e] === 0) continue;
    if (best < 0 || (trace.start[e] <= time && trace.end[e] > time)) best = e;
  }
  return { band, time, event: best };
}

const peakReach = 5;  // pixels on both sides of its mark

/** The moment of memory at a point of its band: the peak near its mark, elsewhere the fullest in the column of pixels; null if there is none. */
export function momentAt(timeline, { trace, lane, h }, x) {
  const { state } = timeline, { view } = state, offset = state.offset(trace), step = state.stepOf(trace);
  const peak = peakOf(trace, lane, step);
  if (h >= markedFrom && peak >= 0 && Math.abs(gutter + xOf(view, peakTime(trace, lane, step) - offset) - x) <= peakReach) return { trace, lane, sample: peak };
  const column = Math.floor(x - gutter), from = timeAt(view, column) + offset;
  const sample = from > trace.steps[trace.steps.length - 1][2] ? -1 : fullest(trace, lane, from, timeAt(view, column + 1) + offset);
  return sample < 0 ? null : { trace, lane, sample };
}

const markedFrom = 24;  // pixels of height
const peakTime = (trace, lane, step) => trace.summary[step].lanes[lane].peak_time;

/** Pixels that stay free below a row, so that rows do not run together. */
const airOf = (band) => (band.h >= 16 ? 2 : band.h >= 7 ? 1 : 0);

export function draw(timeline) {
  const { context, raster, state, ratio } = timeline;
  const theme = themeOf(state.dark);
  const wide = { least: 64 * ratio, most: 500, blocks: [], ratio };
  clear(raster, timeline.palettes.values().next().value ?? { page: 0 });
  for (const band of timeline.bands) {
    const y = Math.round((band.y - state.view.scroll) * ratio), h = Math.round((band.h - airOf(band)) * ratio);
    if (y + h < 0 || y > raster.height || h === 0) continue;
    const { trace } = band, palette = timeline.palettes.get(trace), offset = state.offset(trace);
    const view = { from: state.view.from + offset, to: state.view.to + offset };
    if (band.type === 'row') {
      wide.trace = trace;
      const before = wide.blocks.length;
      drawRow(raster, trace, palette, trace.rows[band.row], view, y, h, state.emphasis[trace.index], wide);
      for (let i = before; i < wide.blocks.length; i++) wide.blocks[i].trace = trace;
    } else if (band.type === 'memory') {
      drawMemory(raster, trace, band.lane, view, y, h, memoryTop(state, trace, band.lane), trace.categories.map(categoryColor), palette);
    }
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = `rgb(${theme.page.join(' ')})`;
  context.fillRect(0, 0, timeline.canvas.width, timeline.canvas.height);
  context.putImageData(raster.image, Math.round(gutter * ratio), Math.round(axisHeight * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawNames(timeline, wide.blocks);
  drawMemoryMarks(timeline, theme);
  drawLinks(timeline, theme);
  drawGutter(timeline, theme);
  drawAxis(timeline, theme);
  drawScrollbar(timeline, theme);
}

const font = (size, weight = 400) => `${weight} ${size}px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;

/** The text, cut to fit a width. */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? '' : `${text.slice(0, low)}…`;
}

function drawNames(timeline, blocks) {
  const { context, ratio } = timeline;
  context.textBaseline = 'middle';
  for (const { trace, event, left, right, y, h, ink } of blocks) {
    const size = Math.min(12, (h / ratio) * 0.62);
    if (size < 7) continue;
    context.font = font(size, 500);
    context.fillStyle = `rgb(${ink.join(' ')})`;
    const slice = trace.slice[event] >= 0 ? `${trace.slice[event]}  ` : '';
    const text = cut(context, slice + nameOf(trace, event), (right - left) / ratio - 8);
    context.fillText(text, gutter + left / ratio + 4, axisHeight + (y + h / 2) / ratio + 0.5);
  }
}

/** Bytes at the upper edge of a lane's curve: the capacity where it is near enough to see both. */
export function memoryTop(state, trace, lane) {
  const peak = Math.max(...trace.summary.map((step) => step.lanes[lane].peak_bytes), 1);
  const capacity = trace.capacity[lane] ?? 0;
  return (capacity > 0 && capacity < peak * 2.5 ? Math.max(capacity, peak) : peak) * 1.12;
}

function drawMemoryMarks(timeline, theme) {
  const { context, state } = timeline;
  context.font = font(10.5);
  for (const band of timeline.bands) {
    if (band.type !== 'memory' || band.h < markedFrom) continue;
    const y = axisHeight + band.y - state.view.scroll;
    if (y + band.h < axisHeight || y > axisHeight + state.view.height) continue;
    const { trace, lane } = band, most = memoryTop(state, trace, lane), lanes = trace.summary[state.stepOf(trace)].lanes;
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

/** Text with a halo, legible on any colour. */
function label(context, text, x, y, theme, align) {
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

function arrow(context, from, to, color, dashed) {
  const bend = Math.max(18, Math.min(60, Math.abs(to.x - from.x) / 2));
  context.strokeStyle = context.fillStyle = color;
  context.setLineDash(dashed ? [4, 3] : []);
  context.beginPath();
  context.moveTo(from.x, from.y);
  context.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x, to.y);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(to.x, to.y);
  context.lineTo(to.x - 6, to.y - 3.5);
  context.lineTo(to.x - 6, to.y + 3.5);
  context.fill();
}

const endOf = (block) => ({ x: block.x + Math.max(1, block.width), y: block.y + block.height / 2 });
const startOf = (block) => ({ x: block.x, y: block.y + block.height / 2 });

function drawLinks(timeline, theme) {
  const { context, state } = timeline;
  context.save();
  context.beginPath();
  context.rect(gutter, axisHeight, state.view.width, state.view.height);
  context.clip();
  context.lineWidth = 1.6;
  if (state.path) drawPath(timeline, theme);
  const { selected } = state;
  if (selected) {
    const { trace, event } = selected, block = blockOf(timeline, trace, event);
    if (block) {
      for (const other of dependencies(trace, event).slice(0, 200)) {
        const from = blockOf(timeline, trace, other);
        if (from) arrow(context, endOf(from), startOf(block), theme.strong, false);
      }
      for (const other of dependents(trace, event).slice(0, 200)) {
        const to = blockOf(timeline, trace, other);
        if (to) arrow(context, endOf(block), startOf(to), theme.quiet, true);
      }
    }
    for (const match of [selected, ...state.matched]) outline(timeline, match, theme.text, match === selected ? 2.5 : 1.5);
  }
  context.restore();
}

function outline(timeline, { trace, event }, color, width) {
  const block = blockOf(timeline, trace, event), { context } = timeline;
  if (!block) return;
  context.strokeStyle = color;
  context.lineWidth = width;
  context.strokeRect(block.x - 1, block.y - 1, Math.max(3, block.width) + 1, block.height + 2);
}

function drawPath(timeline, theme) {
  const { context, state } = timeline;
  context.strokeStyle = context.fillStyle = theme.path;
  context.lineWidth = 1.4;
  for (const { trace, events } of state.path) {
    let before = null;
    for (const event of events) {
      const block = blockOf(timeline, trace, event);
      if (block && block.x < gutter + state.view.width && block.x + block.width > gutter) {
        if (block.width >= 10) context.strokeRect(block.x, block.y + 0.5, block.width - 1, block.height - 1);
        else context.fillRect(block.x, block.y + block.height - 2, Math.max(1, block.width), 2);  // an outline would hide it
      }
      if (block && before && before.y !== block.y) {
        context.beginPath();
        context.moveTo(before.x + before.width, before.y + before.height / 2);
        context.lineTo(block.x, block.y + block.height / 2);
        context.stroke();
      }
      if (block) before = block;
    }
  }
}

function drawGutter(timeline, theme) {
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
      const text = cut(context, paired ? `${format.ranges(devices)} ${state.titleOf(band.trace)}` : format.laneName(devices), gutter - 24);
      context.fillText(text, 12, middle);
      nameWidth = context.measureText(text).width;
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

/** Ticks at 1, 2 or 5 times a power of ten, at least 90 pixels apart. */
function tickStep(view) {
  const rough = ((view.to - view.from) / view.width) * 90;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
}

function drawAxis(timeline, theme) {
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

function drawScrollbar(timeline, theme) {
  const { context, state } = timeline, { view } = state;
  if (view.content <= view.height) return;
  const length = Math.max(24, (view.height * view.height) / view.content);
  const y = axisHeight + (view.scroll / (view.content - view.height)) * (view.height - length);
  context.fillStyle = theme.quiet;
  context.globalAlpha = 0.5;
  context.fillRect(gutter + view.width + 2, y, 5, length);
  context.globalAlpha = 1;
}
