// The trace as the program packed it: base64 of deflated bytes; in them a length, a JSON header, and columns of numbers whose
// bytes are sorted by significance (they deflate better so).

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Puts the bytes of each number together again. */
function gather(bytes, at, count, width) {
  const out = new Uint8Array(count * width);
  for (let plane = 0; plane < width; plane++) {
    const from = at + plane * count;
    for (let i = 0, o = plane; i < count; i++, o += width) out[o] = bytes[from + i];
  }
  return out.buffer;
}

/** Whole numbers are stored as differences to the one before. */
function integers(bytes, at, count) {
  const out = new Int32Array(gather(bytes, at, count, 4));
  for (let i = 1; i < count; i++) out[i] += out[i - 1];
  return out;
}

/** Header and columns by name. Throws if the page was damaged. */
export async function decode(base64) {
  const bytes = await inflate(base64);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const [name, type, count] of header.columns) {
    const width = type === 'real' ? 8 : 4;
    if (at + count * width > bytes.length) throw new Error(`the column ${name} is cut off`);
    columns[name] = type === 'real' ? new Float64Array(gather(bytes, at, count, 8)) : integers(bytes, at, count);
    at += count * width;
  }
  return { header, columns };
}
