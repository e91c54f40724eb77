// The fleet of the node: its regions with their nodes, who is behind and why, and the last orders.

import { colour, duration, find, h, hidden, millis, say } from './parts.js';
import { state } from './state.js';

/** The words and the tone of a node's condition. */
const CONDITIONS = {
  active: ['active', 'good'],
  drained: ['drained', 'warn'],
  not_ready: ['not ready', 'warn'],
  waiting: ['waits', 'warn'],
  behind: ['behind', 'bad'],
  failed: ['failed', 'bad'],
  away: ['away', 'bad'],
};

export function drawFleet() {
  const { fleet } = state;
  find('fleet').hidden = !fleet;
  document.querySelector('[data-for="fleet"]').hidden = !fleet;
  if (!fleet) return;
  say(find('fleet-title'), `Fleet ${fleet.overview.fleet}`);
  say(find('fleet-hint'), summary(fleet));
  const cards = regions(fleet.overview);
  const orders = fleet.orders.map(order);
  // Made again only if something has changed, so that focus and reading position stay.
  const text = [...cards, ...orders].map((each) => each.textContent).join('\n');
  if (find('fleet').dataset.text === text) return;
  find('fleet').dataset.text = text;
  find('fleet-regions').replaceChildren(...cards);
  find('fleet-orders').replaceChildren(...orders);
}

function summary({ overview: { head, rollout, nodes }, heard, error }) {
  const active = nodes.filter(({ condition }) => condition === 'active' || condition === 'drained').length;
  const words = [head ? `Revision ${head}` : 'No revision yet', `${active} of ${nodes.length} nodes are as they should be`];
  if (rollout) words.splice(1, 0, `${rollout} is tried`);
  if (error && heard) words.push(`as of ${duration(state.at / 1000 - heard)} ago: ${error}`);
  else if (error) words.push(error);
  return `${words.join(', ')}.`;
}

/** One card for each region, the own one first, then by round trip and name. */
function regions({ nodes, head, rollout }) {
  const all = new Map();
  for (const node of nodes) {
    const name = node.region ?? '';
    all.set(name, [...(all.get(name) ?? []), node]);
  }
  const own = nodes.find((node) => node.name === state.self)?.region ?? '';
  const cards = [...all].map(([name, members]) => ({ name, members, trip: name === own ? 0 : nearest(members) }));
  cards.sort((a, b) => (a.trip ?? Infinity) - (b.trip ?? Infinity) || a.name.localeCompare(b.name));
  const farthest = Math.max(...cards.map(({ trip }) => trip ?? 0), 1e-9);
  return cards.map((card) => region(card, card.name === own, farthest, head, rollout));
}

/** The shortest round trip to a node of a region, in seconds. */
function nearest(members) {
  const trips = members.map(({ name }) => state.nodes.get(name)?.roundTrip).filter(Number.isFinite);
  return trips.length > 0 ? Math.min(...trips) : null;
}

function region({ name, members, trip }, isOwn, farthest, head, rollout) {
  const far = h('span', { class: 'trip', 'aria-hidden': 'true' }, h('i'));
  far.style.setProperty('--part', isOwn ? 0 : (trip ?? 0) / farthest);
  const words = isOwn ? 'this node’s region' : trip === null ? 'round trip not known' : `${millis(trip * 1000)} away`;
  return h('article', { class: 'card region' },
    h('div', { class: 'region-head' }, h('h3', {}, name || 'All nodes'), name ? h('span', { class: 'faint' }, words) : null),
    name ? far : null,
    h('ul', { class: 'plain' }, members.map((node) => member(node, head, rollout))));
}

function member({ name, condition, alive }, head, rollout) {
  const [word, tone] = CONDITIONS[condition] ?? [condition, 'warn'];
  const seen = state.nodes.get(name);
  const facts = [];
  if (alive && alive.revision > 0) facts.push(alive.revision === rollout && rollout > head ? `tries revision ${rollout}` : `revision ${alive.revision}`);
  if (seen?.isKnown) facts.push(...known(seen.status));
  const why = alive?.error ?? (condition === 'not_ready' ? alive.missing.join('; ') : null);
  return h('li', { class: 'member' },
    h('span', { class: `chip ${colour(name)}` }, name), name === state.self ? hidden(' this node') : null, ' ',
    h('span', { class: `state ${tone}` }, word), h('span', { class: 'faint' }, facts.length > 0 ? ` ${facts.join(', ')}` : ''),
    why ? h('p', { class: `why ${tone}` }, why) : null);
}

/** The facts that the node itself tells: its drain, purges on their way, the first certificate that ends. */
function known(status) {
  const facts = [];
  if (status.drain.draining) facts.push(`drains, ${status.drain.downloads} downloads`);
  if (status.purges_pending > 0) facts.push(`${status.purges_pending} purges in flight`);
  const ends = status.certificates.filter((one) => one.ends > 0).map((one) => one.days);
  if (ends.length > 0) facts.push(`certificates for ${Math.floor(Math.min(...ends))} days`);
  return facts;
}

function order({ time, token, from, what }) {
  const at = new Date(time * 1000);
  return h('li', {}, h('time', { datetime: at.toISOString() }, at.toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' })),
    h('span', { class: 'text' }, what), h('span', { class: 'faint' }, `by ${token} from ${from}`));
}
