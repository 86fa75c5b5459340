// Colours: of computations by pass, safe for colour-blind readers (Okabe and Ito), of communications by kind; and what the canvas needs of the theme.

const passes = {
  F: ['forward', [86, 180, 233]],
  B: ['backward', [230, 159, 0]],
  BI: ['backward, inputs', [213, 94, 0]],
  BW: ['backward, weights', [0, 158, 115]],
  R: ['recompute', [240, 228, 66]],
};
const noPass = {
  update: ['update', [90, 104, 160]],
  run: ['without pass', [150, 150, 150]],
};
const communications = {
  'send, recv': [204, 121, 167],
  all_to_all: [126, 87, 194],
  all_gather: [0, 114, 178],
  reduce_scatter: [140, 86, 75],
  all_reduce: [176, 58, 82],
  'other communication': [99, 110, 114],
};
/** Memory: cool for what stays during the step, warm for what comes and goes; unlike the passes. */
const memoryColors = {
  weights: [72, 91, 120], gradients: [122, 141, 171], optimizer: [168, 181, 202], activations: [201, 163, 98], communication: [158, 125, 176],
  temporaries: [220, 203, 160],
};
const moreColors = [[110, 130, 110], [150, 170, 140], [190, 200, 170], [120, 110, 100], [170, 150, 140], [205, 190, 185]];

const themes = {
  light: { page: [247, 247, 245], track: [236, 236, 234], line: '#d9dcdf', text: '#1d2126', quiet: '#5d6670', strong: '#0b62a8', halo: '#ffffff', path: '#b3003c', faded: [150, 155, 160], over: [208, 0, 48] },
  dark: { page: [22, 25, 29], track: [35, 40, 46], line: '#363d45', text: '#e6e8ea', quiet: '#9aa4ae', strong: '#6cb6ff', halo: '#000000', path: '#ff6f91', faded: [110, 118, 126], over: [255, 64, 96] },
};

export function isCommunication(kind) {
  return kind !== 'run' && kind !== 'update';
}

/** In the order of the legend. */
export const classOrder = [...Object.keys(passes), ...Object.keys(noPass), ...Object.keys(communications)];

/** The colour class of an operation: the kind of a communication, the pass of a computation, or what it is if it has none. */
export function colorClass(kind, pass) {
  if (kind === 'send' || kind === 'recv') return 'send, recv';
  if (isCommunication(kind)) return kind in communications ? kind : 'other communication';
  return pass in passes ? pass : kind === 'update' ? 'update' : 'run';
}

/** For the legend. */
export function describeClass(name) {
  return name in passes ? `${name} ${passes[name][0]}` : (noPass[name]?.[0] ?? name);
}

export function classColor(name) {
  return communications[name] ?? (passes[name] ?? noPass[name])[1];
}

export const categoryColor = (name, index) => memoryColors[name] ?? moreColors[index % moreColors.length];
export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
export const theme = (dark) => themes[dark ? 'dark' : 'light'];
/** Whether dark text reads better on it. */
export const isLight = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 110;
export const blend = (a, b, share) => a.map((x, i) => Math.round(x * share + b[i] * (1 - share)));
