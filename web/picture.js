// What is seen as a file: PNG as it stands on the screen, SVG for papers.
import { blend, categoryColor, css, theme as themeOf } from 'piper/colors';
import { element } from 'piper/dom';
import { airOf, axisHeight, gutter } from 'piper/layout';
import { eachColumn } from 'piper/raster';
import { SvgContext } from 'piper/svg_context';
import { drawOver } from 'piper/timeline';
import { firstAfter } from 'piper/trace';

function save(blob, name) {
  const address = URL.createObjectURL(blob), link = element('a', { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const nameOf = ({ traces }, ending) => `${traces.map((trace) => trace.label).join('-').replace(/[^\w.-]+/g, '_') || 'timeline'}.${ending}`;

export function savePng({ state, canvas }) {
  canvas.toBlob((blob) => save(blob, nameOf(state, 'png')), 'image/png');
}

export function saveSvg({ state, timeline }) {
  save(new Blob([svgOf(timeline)], { type: 'image/svg+xml' }), nameOf(state, 'svg'));
}

/** Neighbours of one pass and slice that the screen does not separate are one block. */
function drawBlocks(context, trace, palette, row, view, left, scale, y, h, emphasis) {
  let block = null;
  const flush = () => {
    if (!block) return;
    context.fillStyle = css(palette.colors[block.color]);
    context.fillRect(block.x0, y, Math.max(0.2, block.x1 - block.x0), h);
    if (block.x1 - block.x0 < 3) return;
    context.fillStyle = css(blend(palette.colors[block.color], [0, 0, 0], 0.72));
    context.fillRect(block.x1 - 0.6, y, 0.6, h);
    if (block.slice < 0 || block.x1 - block.x0 < 10 || h < 9) return;
    context.fillStyle = css(palette.inks[block.color]);
    context.font = '600 9px sans-serif';
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillText(block.slice, (block.x0 + block.x1) / 2, y + h / 2);
    context.textAlign = 'left';
  };
  for (let e = firstAfter(trace, row, view.from); e < row.last && trace.start[e] < view.to; e++) {
    const shown = emphasis ? emphasis[e] : 2;
    if (shown === 0) continue;
    const color = trace.classOf[e] + (shown === 2 ? palette.classes : 0), slice = trace.slice[e];
    const x0 = left + Math.max(0, (trace.start[e] - view.from) * scale), x1 = left + (Math.min(trace.end[e], view.to) - view.from) * scale;
    if (block && block.color === color && block.slice === slice && x0 - block.x1 < 0.3 && x1 - x0 < 10) { block.x1 = x1; continue; }
    flush();
    block = { color, slice, x0, x1 };
  }
  flush();
}

/** Every category from the axis up, the highest first; what exceeds the capacity in red. */
function drawCurve(context, { trace, lane }, view, width, y, h, most, over) {
  const { categories } = trace.memory, capacity = trace.capacity[lane] || Infinity;
  const paths = Array.from({ length: categories.length + 1 }, () => '');
  eachColumn(trace, lane, view, width, (x, sample) => {
    let sum = 0;
    const at = (bytes) => y + h * (1 - bytes / most), bar = (from, to) => `M${gutter + x} ${at(from).toFixed(1)}h1V${at(to).toFixed(1)}h-1z`;
    categories.forEach((column, c) => {
      if (sum < capacity && column[sample] > 0) paths[c] += bar(sum, Math.min(capacity, sum + column[sample]));
      sum += column[sample];
    });
    if (sum > capacity) paths[categories.length] += bar(capacity, sum);
  });
  paths.forEach((path, c) => {
    context.path = path;
    context.fillStyle = c < categories.length ? css(categoryColor(trace.categories[c], c)) : css(over);
    if (path) context.fill();
  });
}

/** The canvas as it is now. */
export function svgOf(timeline) {
  const { state, ratio, canvas } = timeline, theme = themeOf(state.dark), { view } = state;
  const context = new SvgContext(Math.round(canvas.width / ratio), Math.round(canvas.height / ratio), timeline.context);
  context.fillStyle = css(theme.page);
  context.fillRect(0, 0, context.width, context.height);
  context.save();
  context.rect(gutter, axisHeight, view.width, view.height);
  context.clip();
  for (const band of timeline.bands) {
    const y = axisHeight + band.y - view.scroll, h = band.h - airOf(band), { trace } = band, offset = state.offset(trace);
    if (h <= 0 || y + h < axisHeight || y > axisHeight + view.height || band.type === 'title' || band.type === 'gap') continue;
    const shown = { from: view.from + offset, to: view.to + offset };
    context.fillStyle = css(theme.track);
    context.fillRect(gutter, y, view.width, h);
    if (band.type === 'row') drawBlocks(context, trace, timeline.palettes.get(trace), trace.rows[band.row], shown, gutter, view.width / (view.to - view.from), y, h, state.emphasis[trace.index]);
    else drawCurve(context, band, shown, Math.round(view.width), y, h, timeline.memoryTop, theme.over);
  }
  context.restore();
  drawOver({ ...timeline, context }, theme);
  return `${context}`;
}
