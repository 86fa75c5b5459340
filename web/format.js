// Numbers as people read them.

const units = [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];

/** Three or four digits and a unit: 12.35 ms. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const size = Math.abs(seconds);
  if (size < 1e-12) return '0 s';  // rounding, not time
  const [scale, unit] = units.find(([least]) => size >= least * 0.9995) ?? units[3];
  const value = seconds / scale;
  const digits = Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return `${value.toFixed(digits)} ${unit}`;
}

/** With a sign, for differences. */
export function difference(seconds) {
  return (seconds >= 1e-12 ? '+' : '') + duration(seconds);
}

/** A moment on an axis whose ticks are `step` apart. */
export function tick(seconds, step) {
  const [scale, unit] = units.find(([least]) => Math.max(Math.abs(seconds), step) >= least * 0.9995) ?? units[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  return `${(seconds / scale).toFixed(Math.min(digits, 9))} ${unit}`;
}

/** As the program rounds: of two neighbours equally far away, the even one. */
function fixed(value, digits) {
  const scaled = value * 10 ** digits, below = Math.floor(scaled);
  return (scaled - below === 0.5 ? (below + (below % 2)) / 10 ** digits : value).toFixed(digits);
}

export function bytes(count) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = count, unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < names.length) { value /= 1024; unit++; }
  return unit === 0 ? `${count} B` : `${fixed(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2)} ${names[unit]}`;
}

export function percent(share) {
  return `${(100 * share).toFixed(1).replace(/^-(0\.0)$/, '$1')} %`;
}

export function signedPercent(share) {
  return share === null ? '–' : `${share >= 0.0005 ? '+' : ''}${percent(share)}`;
}

export function count(number) {
  return Math.round(number).toLocaleString('en-US');
}

/** [0, 1, 2, 5] is 0–2, 5. */
export function ranges(numbers) {
  const out = [];
  for (let i = 0; i < numbers.length;) {
    let k = i;
    while (k + 1 < numbers.length && numbers[k + 1] === numbers[k] + 1) k++;
    out.push(k === i ? `${numbers[i]}` : k === i + 1 ? `${numbers[i]}, ${numbers[k]}` : `${numbers[i]}–${numbers[k]}`);
    i = k + 1;
  }
  return out.length > 4 ? `${out.slice(0, 3).join(', ')}, … (${numbers.length})` : out.join(', ');
}

export function laneName(devices) {
  return devices.length === 1 ? `device ${devices[0]}` : `devices ${ranges(devices)}`;
}
