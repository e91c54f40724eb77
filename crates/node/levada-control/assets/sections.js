// The sections that only show: figures of now, nodes, health, large files, events, the story of a demo.

import { bytes, clock, colour, count, duration, find, h, millis, percent, s, say } from './parts.js';
import { ALL, names, series, state } from './state.js';

// ---------------------------------------------------------------------------------------------- figures of now

const TILES = [
  ['Requests of clients', (now) => `${count(now.ofClients)}/s`, (at) => at.ofClients],
  ['Sent', (now) => `${bytes(now.bytes)}/s`, (at) => at.bytes],
  ['Hit ratio', (now) => percent(now.hits / now.lookups), (at) => (at.lookups > 0 ? at.hits / at.lookups : NaN)],
  ['From origins', (now) => `${bytes(now.originBytes)}/s`, (at) => at.originBytes],
  ['Median latency', (now) => millis(now.p50), (at) => at.p50],
  ['99th percentile', (now) => millis(now.p99), (at) => at.p99],
  ['In service', (now) => count(now.load), (at) => at.load],
];

let tiles = [];

export function drawNow() {
  if (tiles.length === 0) tiles = TILES.map(tile);
  const scope = find('scope').value || ALL;
  const samples = series(scope, 60);
  const now = samples.at(-1);
  for (const { value, line, write, read } of tiles) {
    say(value, now ? write(now) : '–');
    line.setAttribute('d', spark(samples.map(read)));
  }
}

function tile([name, write, read]) {
  const value = h('dd', {}, '–');
  const line = s('path', {});
  const chart = s('svg', { viewBox: '0 0 60 20', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, line);
  find('tiles').append(h('div', {}, h('dt', {}, name), value, chart));
  return { value, line, write, read };
}

function spark(values) {
  const most = Math.max(...values.filter(Number.isFinite), 1e-9);
  let d = '';
  values.forEach((value, index) => {
    if (!Number.isFinite(value)) return;
    const x = 60 - (values.length - 1 - index);
    d += `${d ? 'L' : 'M'}${x} ${(19 - (value / most) * 17).toFixed(1)}`;
  });
  return d;
}

// ---------------------------------------------------------------------------------------------- nodes

const NODE_HEADS = ['Node', 'State', 'Load', 'Requests/s', 'Sent', 'Hit ratio', 'From origins', '99 %', 'Stored', 'Last heard'];
/** Name -> row. */
let nodeRows = new Map();
let nodeBody = null;

export function drawNodes() {
  const wanted = names();
  if (!nodeBody || wanted.join('\n') !== [...nodeRows.keys()].join('\n')) nodeTable(wanted);
  for (const name of wanted) nodeRow(nodeRows.get(name), state.nodes.get(name));
}

function nodeTable(wanted) {
  nodeRows = new Map();
  nodeBody = h('tbody');
  for (const name of wanted) {
    const bar = h('span', { class: `load ${colour(name)}`, 'aria-hidden': 'true' }, h('i'));
    const cells = NODE_HEADS.slice(1).map(() => h('span', {}));
    const tr = h('tr', {}, h('th', { scope: 'row' }, h('span', { class: `chip ${colour(name)}` }, name), name === state.self ? h('span', { class: 'faint' }, ' this node') : null),
      cells.map((cell, index) => h('td', { class: index === 0 ? '' : 'number' }, cell, index === 1 ? bar : null)));
    nodeRows.set(name, { tr, cells, bar });
    nodeBody.append(tr);
  }
  find('nodes-list').replaceChildren(h('table', { class: 'nodes' },
    h('caption', { class: 'vh' }, 'The nodes of the cluster'),
    h('thead', {}, h('tr', {}, NODE_HEADS.map((text, index) => h('th', { scope: 'col', class: index > 1 ? 'number' : '' }, text)))), nodeBody));
}

function nodeRow({ tr, cells, bar }, node) {
  const { status, isKnown } = node;
  const now = isKnown ? node.sample : null;
  const [word, kind] = health(node);
  const load = status?.in_service ?? 0;
  const texts = [
    word,
    isKnown ? `${load} of ${status.capacity}` : '–',
    count(now?.requests), now ? `${bytes(now.bytes)}/s` : '–',
    percent(now ? now.hits / now.lookups : NaN), now ? `${bytes(now.originBytes)}/s` : '–', millis(now?.p99),
    isKnown ? bytes(status.cache_bytes) : '–',
    node.age === null || node.age === undefined ? '–' : node.age < 2 ? 'now' : `${duration(node.age)} ago`,
  ];
  texts.forEach((text, index) => say(cells[index], text));
  cells[0].className = `state ${kind}`;
  tr.classList.toggle('away', !isKnown);
  bar.style.setProperty('--part', isKnown ? Math.min(load / Math.max(status.capacity, 1), 1) : 0);
}

function health(node) {
  if (!node.up) return ['down', 'bad'];
  // A node that is never asked is as healthy as the own node's health check says.
  if (!node.status) return ['up', 'good'];
  if (!node.isKnown) return ['unknown', 'warn'];
  if (node.status.drain.draining) return ['draining', 'warn'];
  return node.status.ready ? ['up', 'good'] : ['not ready', 'warn'];
}

// ---------------------------------------------------------------------------------------------- health

export function drawHealth() {
  const own = state.nodes.get(state.self) ?? [...state.nodes.values()].find((node) => node.isKnown);
  const status = own?.status;
  if (!status) return;
  const cards = [
    serversCard('Origins', status.origins),
    serversCard('Peers, as this node sees them', status.peers),
    ...switches(status.switches),
    draining(),
    route(status.route),
    purges(status.purges_pending, status.purge_rules),
    certificates(status.certificates),
  ].filter(Boolean);
  const text = cards.map((card) => card.textContent).join('\n');
  // Made anew only if something has changed, so that focus and reading position stay.
  if (find('health-list').dataset.text === text) return;
  find('health-list').dataset.text = text;
  find('health-list').replaceChildren(...cards);
}

const card = (title, ...content) => h('article', { class: 'card' }, h('h3', {}, title), content);
const pill = (text, kind) => h('span', { class: `state ${kind}` }, text);

function serversCard(title, servers) {
  if (servers.length === 0) return null;
  const rows = servers.map((server) => h('li', {}, pill(server.up ? 'up' : 'down', server.up ? 'good' : 'bad'), ' ', h('b', {}, server.name),
    h('span', { class: 'faint' }, [server.address !== server.name ? ` ${server.address}` : null, server.site ? ` for ${server.site}` : null, server.why ? `: ${server.why}` : null].filter(Boolean).join(''))));
  return card(title, h('ul', { class: 'plain' }, rows));
}

function draining() {
  const on = [...state.nodes.values()].filter((node) => node.isKnown && node.status.drain.draining);
  if (on.length === 0) return card('Drains', h('p', {}, pill('none', 'good'), ' No node drains.'));
  return card('Drains', h('ul', { class: 'plain' }, on.map((node) => {
    const { downloads, moved, in_flight: inFlight } = node.status.drain;
    return h('li', {}, pill('draining', 'warn'), ' ', h('b', {}, node.name), ` ${inFlight} requests in flight, ${downloads} downloads, ${moved} moved`);
  })));
}

function switches(all) {
  const kinds = { up: 'good', down: 'bad' };
  return all.map(({ site, policy, servers }) => card(`Servers of ${site}`, h('p', { class: 'faint' }, policy), h('ul', { class: 'plain' },
    servers.map((server) => h('li', {}, pill(server.state, kinds[server.state] ?? 'warn'), ' ', h('b', {}, server.name),
      h('span', { class: 'faint' }, ` ${server.outstanding} of ${server.max_conns}${server.why ? `, ${server.why}` : ''}`))))));
}

function route(told) {
  if (!told) return null;
  const kind = told.error ? 'bad' : told.level === 'announced' ? 'good' : 'warn';
  return card('Route', h('p', {}, pill(told.level, kind), ` ${told.error ?? told.reason}`), h('p', { class: 'faint' }, `for ${duration(told.seconds)}`));
}

function purges(pending, rules) {
  const text = pending > 0 ? 'that a peer has not confirmed' : 'Every purge is confirmed.';
  return card('Purges', h('p', {}, pill(`${pending} in flight`, pending > 0 ? 'warn' : 'good'), ` ${text}`), rules > 0 ? h('p', { class: 'faint' }, `${rules} are still being applied`) : null);
}

function certificates(told) {
  if (told.length === 0) return null;
  return card('Certificates', h('ul', { class: 'plain' }, told.map(({ names: hosts, days, file, ends, alarm, problem }) => {
    const kind = alarm ? 'bad' : problem ? 'warn' : 'good';
    const left = ends === 0 ? 'missing' : `${Math.floor(days)} days`;
    return h('li', {}, pill(left, kind), ` ${hosts.join(', ') || file}`, problem ? h('p', { class: 'faint' }, problem) : null);
  })));
}

// ---------------------------------------------------------------------------------------------- large files

/** At most this many squares of one transfer; beyond it, the oldest go. */
const SQUARES = 600;
/** Transfer -> { sources: pieces by node so far, order: nodes in the order in which pieces came, element }. */
const transfers = new Map();

export function drawLarge() {
  const all = [...state.nodes.values()].filter((node) => node.isKnown)
    .flatMap((node) => node.status.transfers.map((told) => ({ ...told, at: node.name })));
  find('large').hidden = all.length === 0;
  document.querySelector('[data-for="large"]').hidden = all.length === 0;
  const shown = new Set();
  for (const told of all) {
    // Transfers have no number: node, URL and begin tell them apart.
    const key = `${told.at} ${told.url} ${Math.round(state.at / 1000 - told.seconds)}`;
    const near = [key, ...[-1, 1].map((off) => `${told.at} ${told.url} ${Math.round(state.at / 1000 - told.seconds) + off}`)];
    const known = near.find((each) => transfers.has(each)) ?? key;
    shown.add(known);
    drawTransfer(known, told);
  }
  for (const [key, { element }] of transfers) {
    if (shown.has(key)) continue;
    element.remove();
    transfers.delete(key);
  }
}

function drawTransfer(key, told) {
  const known = transfers.get(key) ?? newTransfer(key, told);
  for (const { node, pieces } of told.sources) {
    for (let more = pieces - (known.sources.get(node) ?? 0); more > 0; more -= 1) {
      known.squares.append(h('i', { class: colour(node) }));
      if (known.squares.children.length > SQUARES) known.squares.firstChild.remove();
    }
    known.sources.set(node, pieces);
  }
  known.bar.style.setProperty('--part', told.done / Math.max(told.bytes, 1));
  const rate = told.seconds > 0 ? told.done / told.seconds : NaN;
  say(known.words, `${bytes(told.done)} of ${bytes(told.bytes)} at ${told.at}, ${bytes(rate)}/s`);
  known.legend.replaceChildren(...told.sources.map(({ node, pieces }) => h('li', { class: colour(node) }, h('span', {}, node), h('b', {}, count(pieces)))));
}

function newTransfer(key, told) {
  const known = {
    sources: new Map(),
    squares: h('div', { class: 'pieces', 'aria-hidden': 'true' }),
    bar: h('span', { class: 'load', 'aria-hidden': 'true' }, h('i')),
    words: h('span', { class: 'faint' }),
    legend: h('ul', { class: 'legend', 'aria-label': 'Pieces by source' }),
  };
  known.element = h('article', { class: 'transfer' }, h('h3', {}, told.url), known.words, known.bar, known.squares, known.legend);
  transfers.set(key, known);
  find('large-list').append(known.element);
  return known;
}

// ---------------------------------------------------------------------------------------------- events

const KEPT = 200;
const KINDS = {
  bad: ['peer_down', 'server_down', 'reload_failed', 'route_withdrawn', 'capacity_refused', 'certificate_failed', 'name_taken'],
  warn: ['drain_begun', 'certificate_expiring', 'set_shrank', 'purged'],
  good: ['peer_up', 'server_up', 'drain_undone', 'route_announced', 'certificate_renewed', 'set_grew'],
};
/** Events that charts mark, with their labels. */
const MARKED = { peer_down: 'down', peer_up: 'up', reloaded: 'reload', drain_begun: 'drain', upgraded: 'upgrade' };
const seen = new Set();

export const kindOf = (event) => event.fields?.tone ?? Object.keys(KINDS).find((kind) => KINDS[kind].includes(event.kind)) ?? 'plain';

export function startEvents() {
  const quiet = find('events-quiet');
  quiet.addEventListener('change', () => find('events-list').setAttribute('aria-live', quiet.checked ? 'off' : 'polite'));
  find('events-list').append(h('li', { class: 'note' }, 'Nothing has happened yet.'));
}

export function takeEvent(event) {
  const key = `${event.number}/${event.time}`;
  // After a break the server sends events again.
  if (seen.has(key)) return;
  seen.add(key);
  const list = find('events-list');
  list.querySelector('.note')?.remove();
  const at = event.time * 1000;
  list.prepend(h('li', { class: kindOf(event) },
    h('time', { datetime: new Date(at).toISOString() }, clock(at)), event.node ? h('span', { class: `chip ${colour(event.node)}` }, event.node) : null, h('span', { class: 'text' }, event.text)));
  while (list.children.length > KEPT) list.lastElementChild.remove();
  if (event.kind in MARKED || event.fields?.mark) state.marks.push({ at, kind: kindOf(event), label: event.fields?.mark ?? MARKED[event.kind] });
  if (state.marks.length > KEPT) state.marks.shift();
}

// ---------------------------------------------------------------------------------------------- the demo

export function drawStory(offer) {
  const { demo } = state;
  const place = find('story');
  place.hidden = !demo;
  if (!demo) return;
  state.phases = demo.phases.map(({ name, begin, end }) => ({ text: name, begin: begin * 1000, end: end * 1000 }));
  if (!place.firstChild) {
    place.append(h('ol', { class: 'phases' }), h('p', { class: 'words' }), h('div', { class: 'buttons' }));
  }
  const [steps, words, buttons] = place.children;
  if (steps.children.length !== demo.phases.length) {
    steps.replaceChildren(...demo.phases.map(({ name }) => h('li', {}, h('i', { 'aria-hidden': 'true' }), h('span', {}, name))));
  }
  demo.phases.forEach(({ begin, end, name }, index) => {
    const step = steps.children[index];
    const part = Math.min(Math.max((state.at / 1000 - begin) / (end - begin), 0), 1);
    step.firstChild.style.setProperty('--part', part);
    if (name === demo.phase) step.setAttribute('aria-current', 'step');
    else step.removeAttribute('aria-current');
  });
  say(words, demo.words ?? '');
  offer(buttons);
}
