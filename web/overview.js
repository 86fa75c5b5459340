// The first tab of the panel: what the step time consists of, and the schedule.
import { classColor, classOrder, css } from 'piper/colors';
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { pathShares, scheduleOf } from 'piper/numbers';

const colorOf = (name) => (classOrder.includes(name) ? css(classColor(name)) : 'var(--line)');

/** A bar and a table: the shares of the critical path. */
function breakdown(trace, step) {
  const shares = pathShares(trace, step), total = shares.reduce((sum, share) => sum + share.seconds, 0) || 1;
  const bar = element('div', { class: 'bar', 'aria-hidden': 'true' }, ...shares.map(({ name, seconds }) => element('i', {
    style: `background:${colorOf(name)};flex-grow:${seconds / total}`, title: `${name} ${format.percent(seconds / total)}`,
  })));
  const rows = [...shares].sort((a, b) => b.seconds - a.seconds).map(({ name, seconds }) => element('tr', {},
    element('td', {}, element('i', { class: 'swatch', style: `background:${colorOf(name)}` }), name),
    element('td', {}, format.duration(seconds)), element('td', {}, format.percent(seconds / total))));
  return [bar, element('table', { class: 'shares' }, element('tbody', {}, ...rows))];
}

function schedule(trace) {
  const { name, text } = scheduleOf(trace);
  return text ? [element('h3', {}, `Schedule ${name}`), element('pre', { class: 'schedule' }, text)] : [];
}

export function showOverview(place, { traces, stepOf, titleOf }) {
  fill(place, ...traces.flatMap((trace) => [
    traces.length > 1 ? element('h2', {}, titleOf(trace)) : null,
    element('h3', {}, trace.steps.length > 1 ? `Critical path of step ${trace.steps[stepOf(trace)][0]}` : 'Critical path'),
    ...breakdown(trace, stepOf(trace)), ...schedule(trace)]),
    element('p', { class: 'quiet' }, 'Select an operation to see what it waited for and who waits for it; a moment of memory to see what is alive; drag on the axis to add up a range. ? lists the keys.'));
}
