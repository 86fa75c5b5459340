// The trace as the program packed it: base64 of deflated bytes; in them a length, a JSON header, and columns of numbers whose
// bytes are sorted by significance (they deflate better so).

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);  // three times as fast, where browsers have it
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function inflate(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Puts the bytes of each number together again, some thousand numbers at a time: they stay in the cache. */
function reals(bytes, at, count, width) {
  const out = new Uint8Array(count * width), block = 4096;
  for (let begin = 0; begin < count; begin += block) {
    const end = Math.min(count, begin + block);
    for (let plane = 0; plane < width; plane++) {
      const from = at + plane * count;
      for (let i = begin, o = begin * width + plane; i < end; i++, o += width) out[o] = bytes[from + i];
    }
  }
  return new Float64Array(out.buffer);
}

/** Whole numbers are stored as differences to the one before, in one, two or four bytes. */
function integers(bytes, at, count, width) {
  const out = new Int32Array(count), shift = 32 - 8 * width;
  let last = 0;
  for (let i = 0; i < count; i++) {
    let difference = bytes[at + i];
    if (width > 1) difference |= bytes[at + count + i] << 8;
    if (width > 2) difference |= (bytes[at + 2 * count + i] << 16) | (bytes[at + 3 * count + i] << 24);
    last = (last + ((difference << shift) >> shift)) | 0;
    out[i] = last;
  }
  return out;
}

/** Header and columns by name. Throws if the page was damaged. */
export async function decode(base64) {
  const bytes = await inflate(base64);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const [name, type, count, width] of header.columns) {
    if (at + count * width > bytes.length) throw new Error(`the column ${name} is cut off`);
    columns[name] = (type === 'real' ? reals : integers)(bytes, at, count, width);
    at += count * width;
  }
  return { header, columns };
}
