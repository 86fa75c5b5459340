// The panel beside the timeline: everything known about the selected operation.
import { element, fill } from 'piper/dom';
import * as format from 'piper/format';
import { dependencies, dependents, kindOf, laneOf, nameOf, passOf, streamOf, tagsOfName, waitedFor } from 'piper/trace';

function list(entries) {
  const out = element('dl');
  for (const [term, value] of entries)
    if (value !== null && value !== undefined && value !== '') out.append(element('dt', {}, term), element('dd', {}, value));
  return out;
}

function links(trace, events, note, select, from) {
  const most = 12;
  const out = element('div', {});
  for (const event of events.slice(0, most))
    out.append(element('button', { class: 'link', title: `${kindOf(trace, event)} ${nameOf(trace, event)}`, onclick: () => select({ trace, event }) },
      element('span', {}, `${kindOf(trace, event)} ${nameOf(trace, event)}${laneOf(trace, event) === from ? '' : `, ${format.laneName(trace.lanes[laneOf(trace, event)])}`}`),
      element('span', {}, note(event))));
  if (events.length > most) out.append(element('div', { class: 'quiet' }, `and ${events.length - most} more`));
  return out;
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** What it waited for, with how long before its start each ended; the last one held it back. */
function waits(trace, event, select) {
  const all = dependencies(trace, event).sort((a, b) => trace.end[b] - trace.end[a]);
  const waited = waitedFor(trace, event), cause = trace.cause[event];
  const held = waited >= 1e-12 && cause >= 0 ? `Its stream was free for ${format.duration(waited)}; then ${kindOf(trace, cause)} ${nameOf(trace, cause)} ended.`
    : waited >= 1e-12 ? `Its stream was free for ${format.duration(waited)} before the host issued it.` : 'It started as soon as its stream was free.';
  const note = (other) => {
    const before = trace.start[event] - trace.end[other];
    return before < 1e-12 ? 'ended just then' : `ended ${format.duration(before)} before`;
  };
  return [element('h3', {}, 'Waited for'), element('div', {}, held), links(trace, all, note, select, laneOf(trace, event))];
}

function dependentsOf(trace, event, select) {
  const all = dependents(trace, event).sort((a, b) => trace.start[a] - trace.start[b]);
  if (all.length === 0) return [element('h3', {}, 'Who waits for it'), element('div', { class: 'quiet' }, 'nobody')];
  const note = (other) => {
    const after = trace.start[other] - trace.end[event];
    return after < 1e-12 ? 'starts right then' : `starts ${format.duration(after)} later`;
  };
  return [element('h3', {}, 'Who waits for it'), links(trace, all, note, select, laneOf(trace, event))];
}

/** `matched`: the same operation in other traces. */
export function showOperation(place, selected, { select, searchFor, matched, titleOf }) {
  if (!selected) {
    fill(place, element('p', { class: 'quiet' }, 'Nothing is selected.'));
    return;
  }
  const { trace, event } = selected;
  const begin = trace.steps[trace.step[event]][1], lane = laneOf(trace, event), origin = trace.origin[event];
  const tags = [...tagsOfName(trace, trace.name[event]), ...(passOf(trace, event) ? [['pass', passOf(trace, event)]] : [])];
  const bytes = trace.bytes[event], seconds = trace.end[event] - trace.start[event];
  fill(place,
    element('h2', {}, nameOf(trace, event) || '(no name)'),
    element('div', { class: 'tags' }, ...tags.map(([key, value]) => element('button', {
      class: 'tag', title: 'Search for it', onclick: () => searchFor(value === '' ? key : `${key}=${value}`),
    }, value === '' ? key : `${key}=${value}`))),
    list([
      ['kind', kindOf(trace, event)],
      ['device', cut(trace.lanes[lane].join(', '), 60)],
      ['stream', streamOf(trace, event)],
      ['start', format.duration(trace.start[event] - begin)],
      ['duration', format.duration(seconds)],
      ['end', format.duration(trace.end[event] - begin)],
      ['bytes', bytes > 0 ? `${format.bytes(bytes)} (${format.count(bytes)})` : null],
      ['rate', bytes > 0 && seconds > 0 ? `${format.bytes(bytes / seconds)}/s` : null],
      ['plan operation', `${trace.op[event]}`],
      ['step', trace.steps.length > 1 ? `${trace.steps[trace.step[event]][0]}` : null],
    ]),
    ...(matched.length > 0 ? [element('h3', {}, 'In the other traces'), list(matched.map(({ trace: other, event: match }) => {
      const length = other.end[match] - other.start[match];
      return [titleOf(other), `${format.duration(length)} (${format.difference(length - seconds)})`];
    }))] : []),
    ...(origin >= 0 ? [element('h3', {}, `From the schedule, ${trace.origins[origin][0]}`), element('pre', {}, trace.origins[origin][1])] : []),
    ...waits(trace, event, select),
    ...dependentsOf(trace, event, select),
  );
}

/** One sentence for screen readers. */
export function spoken({ trace, event }) {
  return `${kindOf(trace, event)} ${nameOf(trace, event)}, ${format.laneName(trace.lanes[laneOf(trace, event)])}, stream ${streamOf(trace, event)}, `
    + `starts at ${format.duration(trace.start[event] - trace.steps[trace.step[event]][1])}, takes ${format.duration(trace.end[event] - trace.start[event])}`;
}
