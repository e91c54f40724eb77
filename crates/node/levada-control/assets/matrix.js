// The hottest objects and the nodes that hold each one: a table whose cells fill and empty as sets grow and
// shrink.

import { claimColours, colour, count, find, h, hidden, s, say } from './parts.js';
import { holders, hottest, state } from './state.js';

const SHOWN = 12;
/** Seconds of the line that shows the size of a set: at most, and at least, while the page knows less. */
const SPAN = 120;
const LEAST = 30;
/** The first moment that the page knows. */
let first = 0;

let table = null;
let columns = '';
/** URL -> row. */
const rows = new Map();
/** URL -> sizes of its set: { at, size }. */
const sizes = new Map();
let explain = () => {};

export function start(explainUrl) {
  explain = explainUrl;
}

/** Takes in the sizes from before this page was opened. */
export function takeHistory(history) {
  for (const [url, known] of Object.entries(history.sets ?? {})) {
    sizes.set(url, known.map(([at, size]) => ({ at, size })));
    first = Math.min(first || Infinity, known[0][0]);
  }
}

export function draw() {
  const nodes = holders();
  first ||= state.at;
  claimColours(nodes);
  frame(nodes);
  const objects = hottest(SHOWN);
  const shown = new Set(objects.map((object) => object.url));
  for (const [url, row] of rows) if (!shown.has(url)) leave(url, row);
  for (const object of objects) {
    note(object);
    const row = rows.get(object.url) ?? enter(object.url, nodes);
    fill(row, object, nodes, objects[0].rate);
  }
  order(objects);
  table.empty.hidden = objects.length > 0;
  forget();
}

/** The table and its columns; made anew when nodes come or go. */
function frame(nodes) {
  const wanted = nodes.join('\n');
  if (table && wanted === columns) {
    nodes.forEach((name, index) => head(table.heads[index], name));
    return;
  }
  columns = wanted;
  rows.clear();
  const heads = nodes.map((name) => h('th', { scope: 'col', class: `node ${colour(name)}` }, h('span', {}, name)));
  const body = h('tbody');
  const element = h('table', { class: 'matrix' },
    h('caption', { class: 'vh' }, 'The hottest objects, with the nodes that are responsible for each one'),
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Object'), h('th', { scope: 'col', class: 'number' }, 'Requests/s'), heads, h('th', { scope: 'col' }, 'Set size over time'))),
    body);
  const empty = h('p', { class: 'note' }, 'No object has been requested lately.');
  element.style.setProperty('--columns', nodes.length);
  find('matrix').replaceChildren(element, empty);
  table = { body, heads, empty };
  nodes.forEach((name, index) => head(heads[index], name));
}

function head(cell, name) {
  const node = state.nodes.get(name);
  cell.classList.toggle('away', node ? !node.up : false);
}

function enter(url, nodes) {
  const cells = nodes.map((name) => ({
    drop: h('span', { class: 'drop' }),
    text: hidden(''),
    name,
  }));
  const size = h('b', { class: 'size' });
  const line = s('path', { class: 'line first' });
  const area = s('path', { class: 'area first' });
  const chart = s('svg', { viewBox: `0 0 ${SPAN} 30`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, line);
  const rate = h('span', {});
  const bar = h('span', { class: 'bar', 'aria-hidden': 'true' });
  const { host, path } = parts(url);
  const name = h('button', { type: 'button', class: 'object', title: `Why ${url} goes where it goes`, click: () => explain(url) },
    h('span', { class: 'host' }, host), h('span', { class: 'path' }, path));
  const element = h('tr', { class: 'entering' },
    h('th', { scope: 'row' }, name),
    h('td', { class: 'number' }, rate, bar),
    cells.map((cell) => h('td', { class: `cell ${colour(cell.name)}` }, cell.drop, cell.text)),
    h('td', { class: 'sizes' }, size, chart));
  const row = { element, cells, size, line, area, rate, bar, mean: 0 };
  rows.set(url, row);
  table.body.append(element);
  requestAnimationFrame(() => element.classList.remove('entering'));
  return row;
}

function leave(url, row) {
  row.element.remove();
  rows.delete(url);
}

function fill(row, object, nodes, most) {
  row.mean = row.mean === 0 ? object.rate : row.mean * 0.6 + object.rate * 0.4;
  say(row.rate, count(object.rate));
  row.bar.style.setProperty('--part', most > 0 ? object.rate / most : 0);
  for (const cell of row.cells) {
    const part = object.holders.get(cell.name) ?? 0;
    cell.drop.style.setProperty('--part', part.toFixed(2));
    cell.drop.classList.toggle('held', part > 0);
    const text = part === 0 ? 'no' : part === 1 ? 'holds it' : `holds it, say ${Math.round(part * 100)} % of the nodes`;
    say(cell.text, text);
    cell.drop.title = `${cell.name}: ${text}`;
  }
  const size = Number.isInteger(object.size) ? `${object.size}` : object.size.toFixed(1);
  say(row.size, `${size} of ${nodes.length}`);
  curve(row, sizes.get(object.url), nodes.length);
}

function note({ url, size }) {
  const known = sizes.get(url) ?? [];
  sizes.set(url, known);
  known.push({ at: state.at, size });
  while (known[0].at < state.at - SPAN * 1000) known.shift();
}

/** Objects that were not hot for the whole span. */
function forget() {
  for (const [url, known] of sizes) if (known.at(-1).at < state.at - SPAN * 1000) sizes.delete(url);
}

function curve(row, known, most) {
  const span = Math.min(Math.max((state.at - first) / 1000, LEAST), SPAN);
  const x = (at) => (1 - (state.at - at) / 1000 / span) * SPAN;
  const y = (size) => 28 - (size / Math.max(most, 1)) * 26;
  let d = '';
  known.forEach(({ at, size }, index) => {
    const begins = index === 0 || at - known[index - 1].at > 3500;
    d += begins ? `M${x(at).toFixed(1)} ${y(size).toFixed(1)}` : `H${x(at).toFixed(1)}V${y(size).toFixed(1)}`;
  });
  row.line.setAttribute('d', `${d}h.1`);
  const begin = x(known[0].at).toFixed(1);
  row.area.setAttribute('d', `M${begin} 30V${y(known[0].size).toFixed(1)}${d.replace(/^M[\d.-]+ [\d.-]+/, '').replace(/M([\d.-]+) ([\d.-]+)/g, 'H$1V$2')}V30Z`);
}

/** Puts rows in order. They glide to their places, and only when their means have really changed. */
function order(objects) {
  const wanted = objects.map(({ url }) => rows.get(url)).sort((a, b) => b.mean - a.mean);
  const now = [...table.body.children];
  const isCalm = now.every((element, index) => {
    const next = now[index + 1];
    return !next || mean(element) >= mean(next) * 0.85;
  });
  if (isCalm) return;
  const before = new Map(now.map((element) => [element, element.offsetTop]));
  table.body.append(...wanted.map((row) => row.element));
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) return;
  for (const { element } of wanted) {
    const moved = before.get(element) - element.offsetTop;
    if (moved) element.animate([{ transform: `translateY(${moved}px)` }, { transform: 'none' }], { duration: 400, easing: 'ease-out' });
  }
}

function mean(element) {
  for (const row of rows.values()) if (row.element === element) return row.mean;
  return 0;
}

function parts(url) {
  const match = /^[a-z]+:\/\/([^/]*)(.*)$/i.exec(url);
  return match ? { host: match[1], path: match[2] || '/' } : { host: '', path: url };
}
