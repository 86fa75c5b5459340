// What the page says about its traces once and for all: the title, and the legend of colours.
import { categoryColor, classColor, classOrder, css, describeClass } from 'piper/colors';
import { byId, element, fill } from 'piper/dom';
import { scheduleOf } from 'piper/numbers';

export function showTitle(traces) {
  const first = traces[0];
  document.title = `${first.model || 'trace'} – Piper`;
  byId('title').textContent = first.model || 'Piper';
  const { name } = scheduleOf(first);
  byId('about').textContent = [traces.length === 1 ? first.source : '', traces.length === 1 && name ? `with ${name}` : '', first.cluster && `on ${first.cluster}`].filter(Boolean).join(' ');
  byId('title').title = traces.map((trace) => `${trace.label}: ${trace.source}, model ${trace.model}, cluster ${trace.cluster}, plan ${trace.plan}`).join('\n');
  byId('empty').hidden = traces.some((trace) => trace.count > 0);
}

export function showLegend(traces) {
  const classes = classOrder.filter((name) => traces.some((trace) => trace.classNames.includes(name)));
  const hasMemory = traces.some((trace) => trace.memory.time.length > 0);
  const categories = hasMemory ? [...new Set(traces.flatMap((trace) => trace.categories))] : [];
  const sample = (color, text) => element('span', {}, element('i', { style: `background:${css(color)}` }), text);
  fill(byId('legend'),
    ...classes.map((name) => sample(classColor(name), describeClass(name))),
    hasMemory ? element('span', { class: 'wide' }, 'Memory') : null,
    ...categories.map((name, i) => sample(categoryColor(name, i), name)));
}
