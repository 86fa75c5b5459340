// The numbers of a step: a line for every trace, and a table by lane. The program computed them; here they are only shown.
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';

function number(name, value, what) {
  return element('span', { class: 'number', title: what }, element('b', { 'data-number': name }, value), ' ', element('span', {}, name));
}

export function showNumbers(place, traces, stepOf, titleOf) {
  fill(place, ...traces.map((trace) => {
    const s = trace.summary[stepOf(trace)];
    return element('div', { class: 'numbers-row', 'data-trace': `${trace.index}` },
      traces.length > 1 ? element('span', { class: 'of' }, titleOf(trace)) : null,
      number('step', format.duration(s.seconds), 'time of the step'),
      number('bubble', format.percent(s.bubble), "share of the devices' time without computation"),
      number('exposed communication', format.percent(s.exposed), 'the part of it in which communication was under way'),
      s.tokens_per_second > 0 ? number('tokens/s', format.count(s.tokens_per_second), 'tokens of the step by its time') : null,
      s.peak_bytes > 0 ? number('peak memory', format.bytes(s.peak_bytes), 'of the fullest device') : null,
      number('devices', format.count(trace.lanes.reduce((sum, lane) => sum + lane.length, 0)), 'devices of the trace'),
      number('operations', format.count(trace.count), 'of all lanes and steps'));
  }));
}

function table(head, rows) {
  return element('table', { class: head[0] === '' ? 'differences' : '' }, element('thead', {}, element('tr', {}, ...head.map((text) => element('th', { scope: 'col' }, text)))),
    element('tbody', {}, ...rows));
}

/** `select`: shows what is alive at the peak of a lane. */
export function showDevices(place, traces, stepOf, titleOf, select) {
  fill(place, ...traces.flatMap((trace) => {
    const s = trace.summary[stepOf(trace)], total = s.seconds || 1;
    const rows = s.lanes.map((lane, i) => element('tr', {}, ...[
      format.ranges(trace.lanes[i]), format.percent(lane.compute / total), format.percent(lane.exposed / total), format.percent(lane.idle / total),
      lane.peak_bytes > 0 ? element('button', { class: 'inline', title: 'What is alive then', onclick: () => select(trace, i) }, format.bytes(lane.peak_bytes)) : '–',
    ].map((text) => element('td', {}, text))));
    return [traces.length > 1 ? element('h2', {}, titleOf(trace)) : null, table(['devices', 'computes', 'exposed', 'idle', 'peak'], rows)];
  }));
}

/** The largest differences of every trace to the first. */
export function showDifferences(place, traces, titleOf, select) {
  fill(place, ...traces.slice(1).flatMap((trace) => {
    const { comparison } = trace, first = traces[0];
    const out = [element('h2', {}, `${titleOf(trace)} against ${titleOf(first)}`)];
    const cells = (entry) => [format.duration(entry.predicted), format.duration(entry.measured), format.difference(entry.difference), format.signedPercent(entry.relative)];
    const row = (name, entry) => element('tr', {}, ...[name, ...cells(entry)].map((text) => element('td', {}, text)));
    const operation = (o) => {  // its name has a line of its own
      const action = () => select(o.devices[0], o.op);
      return [
        element('tr', { tabindex: '0', onclick: action, onkeydown: (e) => { if (e.key === 'Enter') action(); } },
          element('td', { class: 'name', colspan: '5' }, `${o.kind} ${o.name}, device ${format.ranges(o.devices)}`)),
        element('tr', { class: 'numbers' }, ...['', ...cells(o.duration)].map((text) => element('td', {}, text)))];
    };
    const columns = ['predicted', 'measured'].includes(titleOf(trace)) ? [titleOf(first), titleOf(trace)] : ['first', 'this'];
    const head = ['', ...columns, 'difference', ''];
    if (!comparison.operations) {
      out.push(element('p', { class: 'quiet' }, comparison.why));
      out.push(table(head, [row('step', comparison.step)]));
    } else {
      out.push(table(head, [row('step', comparison.step)]), element('h3', {}, 'Busy time of a device'));
      out.push(table(head, [...comparison.kinds.map((k) => row(k.name, k)), ...comparison.passes.map((k) => row(`pass ${k.name}`, k))]));
      out.push(element('h3', {}, 'Largest differences'));
      if (comparison.largest.length === 0) out.push(element('p', { class: 'quiet' }, 'none'));
      else out.push(table(head, comparison.largest.flatMap(operation)));
      if (comparison.divergence) {
        const d = comparison.divergence;
        out.push(element('h3', {}, 'First divergence'));
        out.push(element('button', { class: 'link', onclick: () => select(d.devices[0], d.op) }, element('span', {}, `${d.kind} ${d.name}`),
          element('span', {}, `ends ${format.difference(d.start.difference + d.duration.difference)}`)));
      }
    }
    return out;
  }));
}
