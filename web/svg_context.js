// As much of a canvas' 2D context as the page's drawing uses; what is drawn becomes SVG.

const escape = (text) => `${text}`.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const short = (number) => `${+number.toFixed(2)}`;
const anchors = { left: 'start', center: 'middle', right: 'end' };

/** `measuring`: a canvas' context that knows how wide texts are. */
export class SvgContext {
  fillStyle = '#000'; strokeStyle = '#000'; lineWidth = 1; font = '10px sans-serif'; textAlign = 'left'; textBaseline = 'alphabetic'; globalAlpha = 1; lineJoin = 'miter';

  constructor(width, height, measuring) {
    Object.assign(this, { width, height, measuring, parts: [], path: '', dash: [], groups: [0], clips: 0 });
  }

  setLineDash(dash) { this.dash = dash; }
  measureText(text) { this.measuring.font = this.font; return this.measuring.measureText(text); }
  save() { this.groups.push(0); }
  restore() { this.parts.push('</g>'.repeat(this.groups.pop())); }
  beginPath() { this.path = ''; }
  moveTo(x, y) { this.path += `M${short(x)} ${short(y)}`; }
  lineTo(x, y) { this.path += `L${short(x)} ${short(y)}`; }
  bezierCurveTo(...at) { this.path += `C${at.map(short).join(' ')}`; }
  rect(x, y, w, h) { this.path += `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}z`; }
  closePath() { this.path += 'z'; }
  clip() {
    const id = `c${this.clips++}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`);
    this.groups[this.groups.length - 1]++;
  }
  fill() { this.add('path', `d="${this.path}"`, this.filled()); }
  stroke() { this.add('path', `d="${this.path}" fill="none"`, this.stroked()); }
  fillRect(x, y, w, h) { this.add('rect', `x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, w))}" height="${short(Math.max(0, h))}"`, this.filled()); }
  strokeRect(x, y, w, h) { this.add('rect', `x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, w))}" height="${short(Math.max(0, h))}" fill="none"`, this.stroked()); }
  fillText(text, x, y) { this.addText(text, x, y, this.filled()); }
  strokeText(text, x, y) { this.addText(text, x, y, `fill="none" ${this.stroked()}`); }

  filled() { return `fill="${this.fillStyle}"${this.faint()}`; }
  stroked() { return `stroke="${this.strokeStyle}" stroke-width="${short(this.lineWidth)}"${this.dash.length > 0 ? ` stroke-dasharray="${this.dash.join(' ')}"` : ''}${this.faint()}`; }
  faint() { return this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : ''; }
  add(name, shape, paint) { this.parts.push(`<${name} ${shape} ${paint}/>`); }
  addText(text, x, y, paint) {
    const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.font) ?? [0, 400, 10];
    const baseline = this.textBaseline === 'middle' ? ' dominant-baseline="central"' : '';
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" font-size="${size}" font-weight="${weight ?? 400}" text-anchor="${anchors[this.textAlign]}"${baseline} ${paint}>${escape(text)}</text>`);
  }

  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="system-ui, 'DejaVu Sans', sans-serif">\n${this.parts.join('\n')}\n</svg>\n`;
  }
}
