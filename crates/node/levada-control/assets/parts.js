// Elements, numbers and times: what every part of the page is made of. Text from nodes becomes text nodes
// only, never markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element. Attributes that are functions are listeners; `class` and others are set as they are. */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function s(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets text only if it differs, so that a screen reader is not told of what stayed the same. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const find = (id) => document.getElementById(id);

/** Text for screen readers only. */
export const hidden = (text) => h('span', { class: 'vh' }, text);

export function count(number) {
  if (!Number.isFinite(number)) return '–';
  if (number >= 1e6) return `${(number / 1e6).toFixed(number >= 1e7 ? 0 : 1)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(number >= 1e5 ? 0 : 1)} k`;
  if (number >= 100 || Number.isInteger(number)) return Math.round(number).toLocaleString('en');
  return number.toFixed(1);
}

export function bytes(number) {
  if (!Number.isFinite(number)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) [number, unit] = [number / 1000, unit + 1];
  return `${number >= 100 || unit === 0 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

export const percent = (part) => (Number.isFinite(part) ? `${(part * 100).toFixed(part < 0.995 ? 1 : 0)} %` : '–');

export function millis(number) {
  if (!Number.isFinite(number)) return '–';
  if (number >= 1000) return `${(number / 1000).toFixed(number >= 10000 ? 0 : 1)} s`;
  return `${number >= 10 ? Math.round(number) : number.toFixed(1)} ms`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const clock = (at) => new Date(at).toLocaleTimeString('en-GB');

/** The class with a node's colour. Names keep their colours while the page is open. */
export function colour(name) {
  if (!colours.has(name)) colours.set(name, colours.size % COLOURS);
  return `n${colours.get(name)}`;
}

/** Gives colours to nodes in the order of their names. */
export function claimColours(names) {
  [...names].sort(byName).forEach(colour);
}

export const byName = (a, b) => a.localeCompare(b, 'en', { numeric: true });

const colours = new Map();
const COLOURS = 8;
