// Queries: `layer=3 mb=2 pass=BI`, ranges `layer=0..3`, lists `mb=[0,2]`, and plain words that a name contains.
import { laneOf, streamOf, tagsOfName, textOf } from 'piper/trace';

function valueTest(text) {
  if (text === '*') return () => true;
  const list = text.replace(/^\[|\]$/g, '').split(',').filter((part) => part !== '');
  const tests = list.map((part) => {
    const range = /^(\d+)\.\.(\d+)$/.exec(part);
    if (range) return (value) => /^\d+$/.test(value) && +value >= +range[1] && +value <= +range[2];
    return (value) => value.toLowerCase() === part.toLowerCase();
  });
  return (value) => tests.some((test) => test(value));
}

/** Terms of a query; blanks inside square brackets do not separate. */
export function parseQuery(text) {
  const plain = text.trim().replace(/^\{|\}$/g, '').replace(/\[[^\]]*\]?/g, (list) => list.replace(/\s+/g, ''));
  return plain.split(/\s+|,(?![^[]*\])/).filter((term) => term !== '').map((term) => {
    const at = term.indexOf('=');
    if (at <= 0) return { word: term.toLowerCase() };
    const value = term.slice(at + 1);
    return { key: term.slice(0, at).toLowerCase(), value, test: valueTest(value) };
  });
}

/** What each term asks of a single operation, where it is not about its name. */
const fields = {
  pass: (trace, e) => trace.passes[trace.pass[e]],
  kind: (trace, e) => trace.kinds[trace.kind[e]],
  comm: (trace, e) => trace.kinds[trace.kind[e]],
  stream: (trace, e) => streamOf(trace, e),
  op: (trace, e) => `${trace.op[e]}`,
  slice: (trace, e) => `${trace.slice[e]}`,
};
const passTest = (value) => (value.toUpperCase() === 'B' ? valueTest('B,BI,BW') : valueTest(value));

/** For every operation 1 if it is meant, else 0; null if the query is empty. */
export function search(trace, terms) {
  if (terms.length === 0) return null;
  const ofName = terms.filter((term) => term.word !== undefined || !(term.key in fields || term.key === 'device'));
  const names = new Uint8Array(trace.nameStem.length).fill(1);
  for (let n = 0; n < names.length; n++)
    for (const term of ofName) {
      const fits = term.word !== undefined
        ? textOf(trace, n).toLowerCase().includes(term.word)
        : tagsOfName(trace, n).some(([key, value]) => key.toLowerCase() === term.key && term.test(value));
      if (!fits) { names[n] = 0; break; }
    }
  const others = terms.filter((term) => !ofName.includes(term)).map((term) => {
    if (term.key === 'device') {
      const lanes = trace.lanes.map((devices) => devices.some((device) => term.test(`${device}`)));
      return (e) => lanes[laneOf(trace, e)];
    }
    const read = fields[term.key], test = term.key === 'pass' ? passTest(term.value) : term.test;
    return (e) => test(read(trace, e));
  });
  const out = new Uint8Array(trace.count);
  for (let e = 0; e < trace.count; e++) out[e] = names[trace.name[e]] && others.every((fits) => fits(e)) ? 1 : 0;
  return out;
}
