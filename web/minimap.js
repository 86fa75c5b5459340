// Above the timeline: how many devices compute over the whole step, and which part of it is in view.
import { classColor, classOrder, css, isCommunication, theme as themeOf } from 'piper/colors';
import { byId } from 'piper/dom';
import { gutter } from 'piper/layout';
import { redraw } from 'piper/page';
import { kindOf } from 'piper/trace';
import { fit, moveTo } from 'piper/viewport';

const height = 30;

export function addMinimap(page) {
  const canvas = byId('minimap'), map = { page, canvas, context: canvas.getContext('2d'), key: '', bars: null };
  page.drawn.push(() => drawMinimap(map));
  const go = (e) => {
    const { begin, end } = wholeOf(page.state.view), x = e.clientX - canvas.getBoundingClientRect().left - gutter;
    moveTo(page.state.view, begin + (x / page.state.view.width) * (end - begin));
    redraw(page);
  };
  canvas.addEventListener('pointerdown', (e) => { canvas.setPointerCapture(e.pointerId); go(e); });
  canvas.addEventListener('pointermove', (e) => { if (e.buttons & 1) go(e); });
}

/** What a view of everything shows. */
function wholeOf(view) {
  const whole = { ...view };
  fit(whole);
  return { begin: whole.from, end: whole.to };
}

/** By colour class, for every pixel: the part of all devices that computes. */
function sumBars(state, width) {
  const { begin, end } = wholeOf(state.view), scale = width / (end - begin), bars = new Map();
  const devices = state.traces.reduce((sum, trace) => sum + trace.lanes.flat().length, 0) || 1;
  for (const trace of state.traces) {
    const offset = state.offset(trace);
    for (let e = 0; e < trace.count; e++) {
      if ((state.step >= 0 && trace.step[e] !== state.stepOf(trace)) || isCommunication(kindOf(trace, e))) continue;
      const name = trace.classNames[trace.classOf[e]], share = trace.lanes[trace.rows[trace.rowOf[e]].lane].length / devices;
      if (!bars.has(name)) bars.set(name, new Float32Array(width));
      const bar = bars.get(name), x0 = Math.max(0, (trace.start[e] - offset - begin) * scale), x1 = Math.min(width, (trace.end[e] - offset - begin) * scale);
      for (let x = x0 | 0; x < x1; x++) bar[x] += share * (Math.min(x1, x + 1) - Math.max(x0, x));
    }
  }
  return bars;
}

function drawMinimap(map) {
  const { page: { state, timeline }, canvas, context } = map, { view } = state, { ratio } = timeline;
  const theme = themeOf(state.dark), width = Math.max(1, Math.round(view.width));
  if (canvas.width !== timeline.canvas.width) canvas.width = timeline.canvas.width;
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const key = `${width} ${state.step}`;
  if (map.key !== key) { map.key = key; map.bars = sumBars(state, width); }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = css(theme.page);
  context.fillRect(0, 0, canvas.width, height);
  context.fillStyle = css(theme.track);
  context.fillRect(gutter, 2, view.width, height - 4);
  const floor = new Float32Array(width).fill(height - 2);
  for (const name of classOrder.filter((one) => map.bars.has(one))) {
    const bar = map.bars.get(name);
    context.fillStyle = css(classColor(name));
    for (let x = 0; x < width; x++) {
      const h = bar[x] * (height - 4);
      if (h > 0) context.fillRect(gutter + x, floor[x] - h, 1, h);
      floor[x] -= h;
    }
  }
  const { begin, end } = wholeOf(view), xOf = (time) => Math.min(view.width, Math.max(0, ((time - begin) / (end - begin)) * view.width));
  const x0 = gutter + xOf(view.from), x1 = gutter + Math.max(xOf(view.to), xOf(view.from) + 3);
  context.fillStyle = css(theme.page);
  context.globalAlpha = 0.65;
  context.fillRect(gutter, 2, x0 - gutter, height - 4);
  context.fillRect(x1, 2, gutter + view.width - x1, height - 4);
  context.globalAlpha = 1;
  context.strokeStyle = theme.strong;
  context.lineWidth = 1.5;
  context.strokeRect(x0, 1.5, x1 - x0, height - 3);
}
