// Where every lane, row and memory curve stands, from top to bottom. Heights are in pixels of the page.

export const axisHeight = 26;
export const gutter = 160;  // left of the time axis, for the names of lanes
const sizes = { title: 26, row: 20, thin: 12, memory: 46, gap: 10 };
const least = { title: 20, row: 3, thin: 2, memory: 0, gap: 1 };

/** Whether there is anything to see in a row: an operation of a step that is shown, of a kind that is shown. */
function isEmpty(trace, { first, last }, { step, stepOf, hiddenKinds }) {
  for (let e = first; e < last; e++)
    if ((step < 0 || trace.step[e] === stepOf(trace)) && !hiddenKinds.has(trace.kinds[trace.kind[e]])) return false;
  return true;
}

function bandsOfLane(trace, lane, options) {
  const folded = options.folded.has(`${trace.index}:${lane}`);
  const rows = trace.rowsOfLane[lane].filter((row) => !options.hiddenStreams.has(trace.streams[trace.rows[row].stream])
    && !isEmpty(trace, trace.rows[row], options) && !(folded && trace.rows[row].thin));
  const bands = rows.map((row) => ({ type: 'row', trace, lane, row, size: trace.rows[row].thin ? 'thin' : 'row' }));
  const samples = trace.memory.lanes[lane];
  if (options.memory && !folded && samples.last > samples.first) bands.push({ type: 'memory', trace, lane, size: 'memory' });
  if (bands.length > 0) {
    bands[0].opens = true;
    bands.push({ type: 'gap', trace, lane, size: 'gap' });
  }
  return bands;
}

function bandsInOrder(traces, options) {
  const shown = (trace, lane) => trace.lanes[lane].some((device) => !options.hiddenDevices.has(device));
  const bands = [];
  if (options.pair && traces.length > 1) {
    const lanes = [];
    for (const trace of traces)
      trace.lanes.forEach((devices, lane) => { if (shown(trace, lane)) lanes.push({ trace, lane, device: Math.min(...devices) }); });
    lanes.sort((a, b) => a.device - b.device || a.trace.index - b.trace.index);
    for (const { trace, lane } of lanes) bands.push(...bandsOfLane(trace, lane, options));
    return bands;
  }
  for (const trace of traces) {
    if (traces.length > 1) bands.push({ type: 'title', trace, size: 'title' });
    trace.lanes.forEach((_, lane) => { if (shown(trace, lane)) bands.push(...bandsOfLane(trace, lane, options)); });
  }
  return bands;
}

/** Shrinks (or grows a little) to fit `height`; `scale` of the user multiplies. Bands get y and h; returns them with the sum. */
export function layOut(traces, options, height) {
  const bands = bandsInOrder(traces, options);
  const natural = bands.reduce((sum, band) => sum + sizes[band.size], 0);
  const factor = Math.min(1.5, Math.max(0.1, (height - 4) / Math.max(1, natural))) * options.scale;
  let y = 4;
  for (const band of bands) {
    const wanted = band.type === 'title' ? sizes.title : Math.floor(sizes[band.size] * factor);
    band.y = y;
    band.h = Math.max(least[band.size], wanted);
    if (band.type === 'memory' && band.h < 8) band.h = 0;
    y += band.h;
  }
  return { bands, height: y };
}

/** Pixels that stay free below a row, so that rows do not run together. */
export const airOf = (band) => (band.h >= 16 ? 2 : band.h >= 7 ? 1 : 0);
/** Whether memory is high enough for its marks. */
export const isMarked = (band) => band.h >= 24;
