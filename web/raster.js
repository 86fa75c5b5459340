// Draws operations into an image, a row at a time: one line of pixels is worked out and copied down the row. Operations wider
// than a few pixels are filled; narrower ones add their exact share of a pixel, so that a crowd shows its true density and
// idle time stays visible at every zoom. Work per frame: one visit of every operation in view, and one copy of the image.
import { blend, classColor, isLight } from 'piper/colors';
import { firstAfter } from 'piper/trace';

const littleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
const packed = (r, g, b) => (littleEndian ? ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0 : ((r << 24) | (g << 16) | (b << 8) | 255) >>> 0);
const pack = ([r, g, b]) => packed(r, g, b);

/** Blocks that touch are told apart by a line of their own colour, darker: idle time alone has the colour of idle time. */
const edgeOf = (color) => blend(color, [0, 0, 0], 0.72);

/** Colours of a trace's classes: as they are, and faded. */
export function makePalette(trace, theme) {
  const plain = trace.classNames.map(classColor);
  const faded = plain.map((color) => blend(color, theme.track, 0.16));
  const colors = [...faded, ...plain];
  return {
    classes: plain.length, colors, packed: Uint32Array.from(colors, pack), edges: Uint32Array.from(colors, (color) => pack(edgeOf(color))),
    red: Float32Array.from(colors, (c) => c[0]), green: Float32Array.from(colors, (c) => c[1]), blue: Float32Array.from(colors, (c) => c[2]), inks: [...faded.map(() => theme.faded), ...plain.map((color) => (isLight(color) ? [20, 23, 26] : [255, 255, 255]))],
    track: pack(theme.track), trackColor: theme.track, page: pack(theme.page), over: pack(theme.over),
  };
}

export function makeRaster(width, height) {
  return {
    width, height,
    image: new ImageData(width, height),
    pixels: null,
    line: new Uint32Array(width),
    red: new Float32Array(width), green: new Float32Array(width), blue: new Float32Array(width), share: new Float32Array(width),
    digits: new Map(),
  };
}

export function clear(raster, palette) {
  raster.pixels ??= new Uint32Array(raster.image.data.buffer);
  raster.pixels.fill(palette.page);
}

/** Masks of 0-9 at a height, made once. */
function digitMasks(size) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = size * 2;
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
  context.textBaseline = 'alphabetic';
  const width = Math.ceil(context.measureText('0').width), height = Math.ceil(size * 0.78) + 1;
  const masks = [];
  for (let digit = 0; digit < 10; digit++) {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillText(`${digit}`, 0, height - 1);
    const data = context.getImageData(0, 0, width, height).data;
    masks.push(Uint8Array.from({ length: width * height }, (_, i) => data[4 * i + 3]));
  }
  return { size, width, height, masks };
}

function digitsOf(raster, size) {
  if (!raster.digits.has(size)) raster.digits.set(size, digitMasks(size));
  return raster.digits.get(size);
}

function drawNumber(raster, { width, height, masks }, number, x, y, ink) {
  const text = `${number}`;
  const data = raster.image.data;
  for (let i = 0; i < text.length; i++) {
    const mask = masks[text.charCodeAt(i) - 48];
    for (let row = 0; row < height; row++) {
      let at = ((y + row) * raster.width + x + i * width) * 4;
      for (let column = 0; column < width; column++, at += 4) {
        const share = mask[row * width + column] / 255;
        if (share === 0) continue;
        for (let c = 0; c < 3; c++) data[at + c] += (ink[c] - data[at + c]) * share;
      }
    }
  }
}

const separate = 10;  // pixels from which on an operation is a block of its own

/** Collects where blocks end: wide operations, and narrow neighbours of one pass and slice together. */
function makeEdges(ratio) {
  const edges = [];
  let slice = -1, color = -1, left = -1, right = -1, wide = true;
  const flush = () => { if (left >= 0 && right - left >= 3) edges.push(Math.round(right) - 1, color); };
  const add = (number, shade, from, to) => {
    const alone = to - from >= separate * ratio;
    if (!alone && !wide && number === slice && shade === color && from - right < 1) { right = to; return; }
    flush();
    [slice, color, left, right, wide] = [number, shade, from, to, alone];
  };
  return { edges, add, flush };
}

/** Collects what gets a number: wide blocks alone, narrow neighbours of one pass and slice together. */
function makeLabels(ratio) {
  const labels = [];
  let event = -1, slice = -1, color = -1, left = 0, right = 0;
  const flush = () => {
    if (event >= 0 && right - left >= 7 * ratio) labels.push(event, color, Math.round(left), Math.round(right));
    event = -1;
  };
  const add = (e, number, shade, from, to) => {
    const alone = to - from >= 16 * ratio;
    if (!alone && event >= 0 && number === slice && shade === color && from - right < 4 * ratio) { right = to; return; }
    flush();
    [event, slice, color, left, right] = [e, number, shade, from, to];
    if (alone) flush();
  };
  return { labels, add, flush };
}

/**
 * One row of operations at y..y+h of the image. `emphasis`: by operation 0 hidden, 1 faded, 2 plain, or null. `wide.blocks` gets
 * at most `wide.most` blocks of at least `wide.least` pixels, which have room for a name. All sizes are in pixels of the image.
 */
export function drawRow(raster, trace, palette, row, view, y, h, emphasis, wide) {
  const { line, red, green, blue, share, width } = raster;
  const top = Math.max(0, y), bottom = Math.min(raster.height, y + h);
  if (bottom <= top) return;
  line.fill(palette.track);
  const scale = width / (view.to - view.from), from = view.from;
  const labels = h >= 11 ? makeLabels(wide.ratio) : null, edges = makeEdges(wide.ratio);
  let touchedFrom = width, touchedTo = 0;
  const { start, end, classOf, slice } = trace, { last } = row, { to } = view;
  for (let e = firstAfter(trace, row, from); e < last; e++) {
    if (start[e] >= to) break;
    const emphasized = emphasis ? emphasis[e] : 2;
    if (emphasized === 0) continue;
    const color = classOf[e] + (emphasized === 2 ? palette.classes : 0);
    const x0 = Math.max(0, (start[e] - from) * scale), x1 = Math.min(width, (end[e] - from) * scale);
    edges.add(slice[e], color, x0, x1);
    if (x1 - x0 >= 3) {
      const left = Math.round(x0), right = Math.round(x1);
      line.fill(palette.packed[color], left, right);
      if (labels && (slice[e] >= 0 || right - left >= wide.least)) labels.add(e, slice[e], color, left, right);
      continue;
    }
    if (labels && slice[e] >= 0) labels.add(e, slice[e], color, x0, x1);
    const r = palette.red[color], g = palette.green[color], b = palette.blue[color];
    let x = x0 | 0;
    if (x < touchedFrom) touchedFrom = x;
    for (; x < x1 && x < width; x++) {
      const part = (x1 < x + 1 ? x1 : x + 1) - (x0 > x ? x0 : x);
      red[x] += r * part; green[x] += g * part; blue[x] += b * part; share[x] += part;
    }
    if (x > touchedTo) touchedTo = x;
  }
  const [tr, tg, tb] = palette.trackColor;
  for (let x = touchedFrom; x < touchedTo; x++) {
    const part = share[x];
    if (part === 0) continue;
    if (line[x] === palette.track) {
      const rest = part < 1 ? 1 - part : 0, sum = part + rest;
      line[x] = packed((red[x] + tr * rest) / sum + 0.5, (green[x] + tg * rest) / sum + 0.5, (blue[x] + tb * rest) / sum + 0.5);
    }
    red[x] = green[x] = blue[x] = share[x] = 0;
  }
  edges.flush();
  for (let i = 0; i < edges.edges.length; i += 2) line[edges.edges[i]] = palette.edges[edges.edges[i + 1]];
  for (let at = top; at < bottom; at++) raster.pixels.set(line, at * width);
  if (!labels || y < 0 || y + h > raster.height) return;
  labels.flush();
  drawLabels(raster, trace, palette, labels.labels, scale, y, h, wide);
}

function drawLabels(raster, trace, palette, labels, scale, y, h, wide) {
  const { ratio } = wide;
  const lengthOf = (number) => (number < 10 ? 1 : number < 100 ? 2 : number < 1000 ? 3 : `${number}`.length);
  const smaller = digitsOf(raster, Math.round(9 * ratio));
  let digits = digitsOf(raster, Math.max(9, Math.min(Math.round(h * 0.62), Math.round(12 * ratio))));
  for (let i = 0; i < labels.length; i += 4) {  // one size for the row: the largest that all have room for
    const room = labels[i + 3] - labels[i + 2] - 2, length = lengthOf(trace.slice[labels[i]]);
    if (room < length * digits.width && room >= length * smaller.width) { digits = smaller; break; }
  }
  if (digits.height > h) return;
  for (let i = 0; i < labels.length; i += 4) {
    const [e, color, left, right] = [labels[i], labels[i + 1], labels[i + 2], labels[i + 3]];
    if (right - left >= wide.least && wide.blocks.length < wide.most && (trace.end[e] - trace.start[e]) * scale >= wide.least) {
      wide.blocks.push({ event: e, left, right, y, h, ink: palette.inks[color] });
      continue;
    }
    const number = trace.slice[e];
    if (number < 0) continue;
    const need = lengthOf(number) * digits.width;
    if (right - left - 2 < need) continue;
    const x = Math.round((left + right - need) / 2), top = y + Math.round((h - digits.height) / 2);
    for (let at = top - 1; at <= top + digits.height; at++)  // no border of a neighbour through a digit
      if (at >= y && at < y + h) raster.pixels.fill(palette.packed[color], at * raster.width + x - 1, at * raster.width + x + need + 1);
    drawNumber(raster, digits, number, x, top, palette.inks[color]);
  }
}

/** The fullest sample of every column of pixels: `visit(x, sample)` where there is one. */
export function eachColumn(trace, lane, view, width, visit) {
  const { time, categories, lanes } = trace.memory, { first, last } = lanes[lane];
  if (last <= first) return;
  const step = (view.to - view.from) / width;
  let at = first;
  while (at + 1 < last && time[at + 1] <= view.from) at++;
  for (let x = 0; x < width; x++) {
    const end = view.from + (x + 1) * step;
    if (time[first] >= end) continue;
    if (end - step > trace.steps[trace.steps.length - 1][2]) break;
    let best = at, bestTotal = -1;
    for (;; at++) {
      let total = 0;
      for (const category of categories) total += category[at];
      if (total > bestTotal) { best = at; bestTotal = total; }
      if (at + 1 >= last || time[at + 1] >= end) break;
    }
    visit(x, best);
  }
}

/** The stacked memory of a lane at y..y+h; `most` bytes are the full height. What is above the lane's capacity is red. */
export function drawMemory(raster, trace, lane, view, y, h, most, colors, palette) {
  const { width, pixels } = raster;
  const top = Math.max(0, y), bottom = Math.min(raster.height, y + h);
  for (let at = top; at < bottom; at++) pixels.fill(palette.track, at * width, (at + 1) * width);
  const { categories } = trace.memory, paints = colors.map(pack), capacity = trace.capacity[lane] ?? 0;
  const rowOf = (bytes) => Math.round(y + h - (bytes / most) * h), limit = capacity > 0 ? rowOf(capacity) : top;
  eachColumn(trace, lane, view, width, (x, sample) => {
    let floor = y + h, sum = 0;
    for (let c = 0; c < categories.length; c++) {
      sum += categories[c][sample];
      const ceiling = Math.max(top, rowOf(sum));
      for (let row = Math.min(floor, bottom) - 1; row >= ceiling; row--) pixels[row * width + x] = row < limit ? palette.over : paints[c];
      floor = Math.min(floor, ceiling);
    }
  });
}
