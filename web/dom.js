// Elements from names and text. Text from a trace only ever becomes text.

export function element(name, attributes = {}, ...children) {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) out.addEventListener(key.slice(2), value);
    else if (value === true) out.setAttribute(key, '');
    else if (value !== false && value !== undefined) out.setAttribute(key, value);
  }
  out.append(...children.filter((child) => child !== null && child !== undefined));
  return out;
}

export const byId = (id) => document.getElementById(id);

export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}
