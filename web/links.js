// On top of the operations: the critical path, the selected one's outline, and arrows to what it waits for and who waits for it.
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
