// The canvas: what stands on it, and the order in which it is drawn.
import { categoryColor, theme as themeOf } from 'piper/colors';
import { airOf, axisHeight, gutter, layOut } from 'piper/layout';
import { drawLinks } from 'piper/links';
import { drawAxis, drawGutter, drawScrollbar } from 'piper/margin';
import { drawMemoryMarks, memoryTop } from 'piper/marks';
import { drawRange } from 'piper/range';
import { clear, drawMemory, drawRow, makePalette, makeRaster } from 'piper/raster';
import { cut, font } from 'piper/text';
import { nameOf } from 'piper/trace';

/** Everything that is drawn; `state` is the page's, see state.js. */
export function makeTimeline(canvas, state) {
  return { canvas, context: canvas.getContext('2d'), state, raster: null, palettes: new Map(), bands: [], bandOfRow: new Map(), ratio: 1, memoryTop: memoryTop(state.traces) };
}

/** After a change of size, filters, traces or theme. */
export function arrange(timeline) {
  const { canvas, state } = timeline;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const box = canvas.parentElement.getBoundingClientRect();
  timeline.ratio = ratio;
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  state.view.width = Math.max(1, box.width - gutter - 8);
  state.view.height = Math.max(1, box.height - axisHeight);
  const { bands, height: content } = layOut(state.traces, state, state.view.height);
  timeline.bands = bands;
  timeline.bandOfRow = new Map(bands.filter((band) => band.type === 'row').map((band) => [`${band.trace.index}:${band.row}`, band]));
  state.view.content = content;
  state.view.scroll = Math.min(state.view.scroll, Math.max(0, content - state.view.height));
  timeline.raster = makeRaster(Math.max(1, Math.round(state.view.width * ratio)), Math.max(1, Math.round(state.view.height * ratio)));
  timeline.palettes = new Map(state.traces.map((trace) => [trace, makePalette(trace, themeOf(state.dark))]));
}

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
      drawMemory(raster, trace, band.lane, view, y, h, timeline.memoryTop, trace.categories.map(categoryColor), palette);
    }
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = `rgb(${theme.page.join(' ')})`;
  context.fillRect(0, 0, timeline.canvas.width, timeline.canvas.height);
  context.putImageData(raster.image, Math.round(gutter * ratio), Math.round(axisHeight * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawNames(timeline, wide.blocks);
  drawOver(timeline, theme);
}

/** What stands on top of operations and memory, and around them. */
export function drawOver(timeline, theme) {
  drawMemoryMarks(timeline, theme);
  drawLinks(timeline, theme);
  drawGutter(timeline, theme);
  drawAxis(timeline, theme);
  drawRange(timeline, theme);
  drawScrollbar(timeline, theme);
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
