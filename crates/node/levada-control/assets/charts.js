// Charts over time: lines in SVG, drawn once a second, with one cross-hair over all of them.

import { bytes, clock, colour, count, find, h, millis, percent, s, say } from './parts.js';
import { ALL, names, series, state } from './state.js';

const WIDTH = 600;
const HEIGHT = 150;
/** The least time that charts show, in milliseconds. */
const LEAST = 30000;

/** The charts: a title, lines with their values, and how values are written. */
const CHARTS = [
  {
    title: 'Requests per second',
    unit: count,
    least: 1,
    lines: () => [
      { name: 'of clients', key: 'first', value: (at) => at.ofClients },
      { name: 'hits', key: 'second', value: (at) => at.hits },
      // Within the cluster, each of these is a client's request at another node.
      ...(find('scope').value === ALL ? [] : [{ name: 'of peers', key: 'third', value: (at) => at.ofPeers }]),
      { name: 'refused', key: 'bad', value: (at) => at.refused || NaN },
    ],
  },
  {
    title: 'Bytes per second',
    unit: bytes,
    least: 1000,
    lines: () => [
      { name: 'sent', key: 'first', value: (at) => at.bytes },
      { name: 'from origins', key: 'third', value: (at) => at.originBytes },
    ],
  },
  {
    title: 'Hit ratio',
    unit: percent,
    most: 1,
    lines: () => [{ name: 'hits', key: 'second', value: (at) => (at.lookups > 0 ? at.hits / at.lookups : NaN) }],
  },
  {
    title: 'Latency',
    unit: millis,
    log: true,
    lines: () => [
      { name: 'median', key: 'first', value: (at) => at.p50 },
      { name: '99th percentile', key: 'third', value: (at) => at.p99 },
    ],
  },
  {
    title: 'Load of the nodes',
    unit: count,
    least: 1,
    isPerNode: true,
    lines: () => names().map((name) => ({ name, key: colour(name), node: name, value: (at) => at.load })),
  },
];

let charts = [];
/** The moment under the pointer, or chosen by arrow keys; null: the latest. */
let chosen = null;

export function start() {
  charts = CHARTS.map((chart) => new Chart(chart));
  find('figures').append(...charts.map((chart) => chart.figure));
  find('scope').addEventListener('change', draw);
  find('span').addEventListener('change', draw);
  find('numbers').addEventListener('toggle', table);
}

export function draw() {
  scopes();
  const seconds = Number(find('span').value);
  const samples = series(find('scope').value, seconds);
  const to = state.at;
  // A page that knows less than that shows what it knows.
  const from = Math.max(to - seconds * 1000, Math.min(samples[0]?.at ?? to, to - LEAST));
  for (const chart of charts) chart.draw(samples, from, to);
  if (find('numbers').open) table();
}

function scopes() {
  const select = find('scope');
  const wanted = state.nodes.size > 1 ? [ALL, ...names()] : names();
  const shown = [...select.options].map((option) => option.value);
  if (shown.join() === wanted.join()) return;
  const before = select.value;
  const text = (name) => (name === ALL ? 'the cluster' : name === state.self ? `${name} (this node)` : name);
  select.replaceChildren(...wanted.map((name) => h('option', { value: name }, text(name))));
  select.value = wanted.includes(before) ? before : (state.self ?? ALL);
}

class Chart {
  constructor(kind) {
    this.kind = kind;
    this.plot = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.bands = s('g', { class: 'bands' });
    this.grid = s('g', { class: 'grid' });
    this.paths = s('g', {});
    this.cross = s('line', { class: 'cross', y1: 0, y2: HEIGHT, visibility: 'hidden' });
    this.plot.append(this.bands, this.grid, this.paths, this.cross);
    this.scale = h('div', { class: 'scale', 'aria-hidden': 'true' });
    this.labels = h('div', { class: 'marks', 'aria-hidden': 'true' });
    this.legend = h('ul', { class: 'legend' });
    this.moment = h('span', { class: 'moment' });
    this.box = h('div', {
      class: 'plot', tabindex: '0', role: 'img', 'aria-label': kind.title,
      pointermove: (event) => this.point(event), pointerleave: () => choose(null),
      keydown: (event) => this.step(event), blur: () => choose(null),
    }, this.plot, this.scale, this.labels);
    const caption = h('figcaption', {}, h('h3', {}, kind.title), this.moment, this.legend);
    this.figure = h('figure', { class: kind.isPerNode ? 'wide' : '' }, caption, this.box);
    this.told = 0;
  }

  draw(samples, from, to) {
    this.frame = { samples, from, to };
    const x = (at) => ((at - from) / (to - from)) * WIDTH;
    const lines = this.kind.lines().map((line) => ({
      ...line,
      points: (line.node ? series(line.node, (to - from) / 1000) : samples).map((each) => [each.at, line.value(each)]),
    }));
    this.lines = lines;
    const values = lines.flatMap((line) => line.points.map(([, value]) => value)).filter(Number.isFinite);
    const axis = this.kind.log ? logAxis(values) : linearAxis(values, this.kind);
    this.grid.replaceChildren(...axis.ticks.map((tick) => s('line', { x1: 0, x2: WIDTH, y1: axis.y(tick), y2: axis.y(tick) })));
    this.scale.replaceChildren(...axis.ticks.map((tick) => {
      const label = h('span', {}, this.kind.unit(tick));
      label.style.top = `${(axis.y(tick) / HEIGHT) * 100}%`;
      return label;
    }));
    this.paths.replaceChildren(...lines.flatMap((line, index) => this.line(line, index, x, axis)));
    this.markings(x, from, to);
    this.read();
    this.describe(to);
  }

  line(line, index, x, axis) {
    const runs = [[]];
    let last = null;
    for (const [at, value] of line.points) {
      // A gap is a time without samples, not a straight line.
      if (!Number.isFinite(value) || (last !== null && at - last > 3500)) runs.push([]);
      if (Number.isFinite(value)) runs.at(-1).push(`${x(at).toFixed(1)} ${axis.y(value).toFixed(1)}`);
      last = at;
    }
    const shown = runs.filter((run) => run.length > 0);
    const d = shown.map((run) => (run.length > 1 ? `M${run.join('L')}` : `M${run[0]}h1`)).join('');
    const stroke = s('path', { class: `line ${line.key}`, d });
    if (index > 0 || this.kind.log || this.kind.isPerNode) return [stroke];
    const area = shown.filter((run) => run.length > 1).map((run) => {
      const [first, end] = [run[0], run.at(-1)].map((point) => point.split(' ')[0]);
      return `M${first} ${HEIGHT}L${run.join('L')}L${end} ${HEIGHT}Z`;
    });
    return [s('path', { class: `area ${line.key}`, d: area.join('') }), stroke];
  }

  markings(x, from, to) {
    const bands = [];
    const labels = [];
    state.phases.forEach((phase, index) => {
      const [begin, end] = [Math.max(phase.begin, from), Math.min(phase.end, to)];
      if (end <= begin) return;
      bands.push(s('rect', { class: index % 2 ? 'odd' : 'even', x: x(begin), y: 0, width: x(end) - x(begin), height: HEIGHT }));
      const label = labelled(phase.text, x(begin), 'phase');
      label.style.maxWidth = `${((end - begin) / (to - from)) * 100}%`;
      labels.push(label);
    });
    for (const mark of state.marks) {
      if (mark.at < from || mark.at > to) continue;
      bands.push(s('line', { class: `mark ${mark.kind}`, x1: x(mark.at), x2: x(mark.at), y1: 0, y2: HEIGHT }));
      if (mark.label) labels.push(labelled(mark.label, x(mark.at), `event ${mark.kind}`));
    }
    this.bands.replaceChildren(...bands);
    this.labels.replaceChildren(...labels);
  }

  point(event) {
    if (!this.frame) return;
    const box = this.plot.getBoundingClientRect();
    const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    choose(this.frame.from + part * (this.frame.to - this.frame.from));
  }

  step(event) {
    if (!this.frame) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key === 'Escape') return choose(null);
    if (!(event.key in moves)) return;
    event.preventDefault();
    const at = (chosen ?? this.frame.to) + moves[event.key] * 1000;
    choose(Math.min(Math.max(at, this.frame.from), this.frame.to));
    this.box.setAttribute('aria-label', this.sentence());
  }

  /** The values of the chosen moment, or the latest ones, in the legend. */
  read() {
    if (!this.frame) return;
    const { from, to } = this.frame;
    const isChosen = chosen !== null && chosen >= from && chosen <= to;
    say(this.moment, isChosen ? clock(chosen) : '');
    this.cross.setAttribute('visibility', isChosen ? 'visible' : 'hidden');
    if (isChosen) {
      const at = ((chosen - from) / (to - from)) * WIDTH;
      this.cross.setAttribute('x1', at);
      this.cross.setAttribute('x2', at);
    }
    const items = this.values().map(([line, value]) => h('li', { class: line.key }, h('span', {}, line.name), h('b', {}, this.kind.unit(value))));
    this.legend.replaceChildren(...items);
  }

  values() {
    const at = chosen ?? this.frame.to;
    const value = (line) => nearest(line.points, at);
    const all = this.lines.map((line) => [line, value(line)]);
    return all.filter(([line, value]) => line.key !== 'bad' || value > 0);
  }

  sentence() {
    const values = this.values().map(([line, value]) => `${line.name} ${this.kind.unit(value)}`);
    const when = chosen === null ? 'now' : `at ${clock(chosen)}`;
    return `${this.kind.title}, ${when}: ${values.join(', ')}. Arrow keys read earlier values.`;
  }

  /** The text alternative. It changes rarely, since a screen reader may read every change. */
  describe(now) {
    if (now - this.told < DESCRIBED || document.activeElement === this.box) return;
    this.told = now;
    this.box.setAttribute('aria-label', this.sentence());
  }
}

const DESCRIBED = 5000;

function choose(at) {
  chosen = at;
  for (const chart of charts) chart.read();
}

function nearest(points, at) {
  let best = null;
  for (const [when, value] of points) if (!best || Math.abs(when - at) <= Math.abs(best[0] - at)) best = [when, value];
  return best && Math.abs(best[0] - at) < 3500 ? best[1] : NaN;
}

function labelled(text, x, kind) {
  const label = h('span', { class: kind }, text);
  label.style.left = `${(x / WIDTH) * 100}%`;
  return label;
}

/** The axis ends at `most`, or above the values. Where nothing happens it shows the `least` that can be told from 0. */
function linearAxis(values, { most: fixed, least }) {
  const highest = Math.max(...values, 0);
  const most = fixed ?? (highest < least ? least : rounded(highest));
  const ticks = [0, most / 2, most];
  return { ticks, y: (value) => HEIGHT - 2 - (Math.min(value, most) / most) * (HEIGHT - 10) };
}

function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= value * 1.02) ?? 10 * power;
}

function logAxis(values) {
  const positive = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...positive, 1)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...positive, 10))), low + 1);
  const ticks = [];
  const every = Math.ceil((high - low) / 3);
  for (let power = low; power <= high; power += every) ticks.push(10 ** power);
  const part = (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low);
  return { ticks, y: (value) => HEIGHT - 2 - part(value) * (HEIGHT - 10) };
}

/** The charts as a table: the last samples of the scope. */
function table() {
  const rows = series(find('scope').value, 900).slice(-30).reverse();
  const head = ['Time', 'Requests of clients/s', 'Hits/s', 'Sent/s', 'From origins/s', 'Median', '99th percentile', 'Load'];
  const cells = (at) => [
    count(at.ofClients), count(at.hits), bytes(at.bytes), bytes(at.originBytes), millis(at.p50), millis(at.p99), count(at.load),
  ];
  const body = rows.map((at) => h('tr', {}, h('th', { scope: 'row' }, clock(at.at)), ...cells(at).map((text) => h('td', {}, text))));
  find('numbers-table').replaceChildren(
    h('caption', { class: 'vh' }, 'Figures of the last 30 seconds'),
    h('thead', {}, h('tr', {}, head.map((text) => h('th', { scope: 'col' }, text)))),
    h('tbody', {}, body),
  );
}
