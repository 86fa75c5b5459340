// On top of the operations: the critical path as a line, the selected one's outline, and arrows to what it waits for and who waits for it.
import { axisHeight, gutter } from 'piper/layout';
import { blockOf } from 'piper/locate';
import { dependencies, dependents } from 'piper/trace';

export function drawLinks(timeline, theme) {
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

const column = 3;  // pixels

/** In every column of pixels the row where the path spends most of its time: [x, y] by column. However many operations, a line. */
function wayOf(timeline, trace, events) {
  const { view } = timeline.state, ways = new Map();  // column -> y -> pixels
  for (const event of events) {
    const block = blockOf(timeline, trace, event);
    if (!block || block.x > gutter + view.width || block.x + block.width < gutter) continue;
    const x0 = Math.max(0, block.x - gutter), x1 = Math.min(view.width, block.x + block.width - gutter), y = block.y + block.height / 2;
    for (let at = Math.floor(x0 / column); at * column < x1; at++) {
      const rows = ways.get(at) ?? new Map(), share = Math.min(x1, (at + 1) * column) - Math.max(x0, at * column);
      rows.set(y, (rows.get(y) ?? 0) + share);
      ways.set(at, rows);
    }
  }
  return [...ways].sort((a, b) => a[0] - b[0]).map(([at, rows]) => [gutter + at * column, [...rows].reduce((a, b) => (b[1] > a[1] ? b : a))[0]]);
}

function drawPath(timeline, theme) {
  const { context, state } = timeline;
  for (const { trace, events } of state.path) {
    const way = wayOf(timeline, trace, events);
    for (const [color, width] of [[theme.halo, 5], [theme.path, 2.5]]) {
      context.strokeStyle = color;
      context.lineWidth = width;
      context.lineJoin = 'round';
      context.beginPath();
      way.forEach(([x, y], i) => {
        if (i === 0) context.moveTo(x, y);
        else if (y !== way[i - 1][1]) context.lineTo(x, way[i - 1][1]);  // along the row, then to the next one
        context.lineTo(x, y);
        context.lineTo(x + column, y);
      });
      context.stroke();
    }
  }
}

function outline(timeline, { trace, event }, color, width) {
  const block = blockOf(timeline, trace, event), { context } = timeline;
  if (!block) return;
  context.strokeStyle = color;
  context.lineWidth = width;
  context.strokeRect(block.x - 1, block.y - 1, Math.max(3, block.width) + 1, block.height + 2);
}

const endOf = (block) => ({ x: block.x + Math.max(1, block.width), y: block.y + block.height / 2 });
const startOf = (block) => ({ x: block.x, y: block.y + block.height / 2 });

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
