// Why a request goes where it goes: the answer of /explain in a sentence, a table and bars.

import { bytes, colour, find, h, percent } from './parts.js';

const REASONS = {
  hash: 'it is first in the hash order of this URL, or assigned to it',
  replica: 'it is one of several nodes that are responsible for this object',
  spill: 'the responsible nodes are busy',
  least: 'it has the least load',
  class: 'it is the next in turn for this class of requests',
  chance: 'it was chosen at random',
  retry: 'an earlier choice failed',
  files: 'this node serves the directory itself',
};

let asked = 0;

export function start() {
  find('why-form').addEventListener('submit', (event) => {
    event.preventDefault();
    explain(find('why-url').value.trim());
  });
}

/** Asks about a URL that was chosen elsewhere on the page. */
export function explainHere(url) {
  find('why-url').value = url;
  find('why').scrollIntoView({ block: 'start' });
  find('why-url').focus({ preventScroll: true });
  explain(url);
}

async function explain(url) {
  const number = ++asked;
  let answer;
  try {
    const response = await fetch(`/explain?url=${encodeURIComponent(url)}`, { headers: { accept: 'application/json' } });
    answer = response.ok ? explained(await response.json()) : problem((await response.text()).trim());
  } catch {
    answer = problem('The node does not answer. Try again in a moment.');
  }
  // A later question may have been answered first.
  if (number === asked) find('why-answer').replaceChildren(...answer);
}

const problem = (text) => [h('p', { class: 'note bad' }, text)];

function explained(told) {
  return [
    sentence(told),
    told.file ? h('p', {}, told.file) : null,
    candidates(told),
    facts(told),
    told.pieces ? pieces(told.pieces) : null,
    details('The whole answer, as JSON', h('pre', {}, JSON.stringify(told, null, 2))),
  ].filter(Boolean);
}

function sentence(told) {
  if (!told.node) return h('p', { class: 'verdict bad' }, 'No node is up that could serve it.');
  const reason = REASONS[told.reason] ?? told.reason;
  return h('p', { class: 'verdict' },
    chip(told.node), ` serves it: ${reason}. `,
    told.set.length > 1 ? [`Responsible now: `, told.set.map((name) => [chip(name), ' '])].flat(2) : null);
}

const chip = (name) => h('span', { class: `chip ${colour(name)}` }, name);

function candidates(told) {
  if (told.candidates.length === 0) return null;
  const bound = told.bound ?? Infinity;
  const most = Math.max(...told.candidates.map((each) => each.outstanding), Number.isFinite(bound) ? bound : 0, 1);
  const row = (each, index) => {
    const isHolder = told.set.includes(each.node);
    const limit = bound * each.weight * each.ramp;
    const bar = h('span', { class: `load ${colour(each.node)}`, 'aria-hidden': 'true' }, h('i'));
    bar.style.setProperty('--part', each.outstanding / most);
    if (Number.isFinite(limit)) {
      bar.classList.add('bounded');
      bar.style.setProperty('--bound', Math.min(limit / most, 1));
    }
    return h('tr', { class: each.node === told.node ? 'chosen' : '' },
      h('td', { class: 'number' }, `${index + 1}`),
      h('th', { scope: 'row' }, chip(each.node)),
      h('td', {}, each.node === told.node ? 'serves it' : isHolder ? 'responsible' : ''),
      h('td', { class: 'number' }, `${each.outstanding}`, bar),
      h('td', { class: 'number' }, Number.isFinite(limit) ? limit.toFixed(1) : '–'),
      h('td', { class: 'number' }, `${each.weight}`),
      h('td', { class: 'number' }, each.distance.toFixed(2)),
      h('td', {}, each.up ? (each.ramp < 1 ? `slow start, ${percent(each.ramp)}` : 'up') : 'down'));
  };
  const head = ['', 'Node', '', 'Outstanding', 'Bound', 'Weight', 'Distance', 'Health'];
  return h('div', { class: 'scroll', role: 'region', 'aria-label': 'Candidates', tabindex: '0' },
    h('table', { class: 'candidates' },
      h('caption', {}, 'Candidates, in the order of the policy'),
      h('thead', {}, h('tr', {}, head.map((text) => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, told.candidates.map(row))));
}

function facts(told) {
  const rows = [
    ['Policy', told.policy],
    ['Decided by', told.redirector],
    ['Key', `${told.key}, from ${told.key_from}`],
    ['Size of the set', `${told.set_size}`],
    ['Share of requests', told.share === undefined ? null : percent(told.share)],
    ['Size', told.size ? bytes(told.size) : null],
    ['Class', told.class],
    ['Route', told.route ? routed(told.route) : null],
    ['Access', told.access?.join('; ')],
  ].filter(([, text]) => text);
  return h('dl', { class: 'facts' }, rows.map(([name, text]) => h('div', {}, h('dt', {}, name), h('dd', {}, text))));
}

function routed(route) {
  return route.name ?? (route.number === undefined || route.number === null ? 'none of the site' : `number ${route.number + 1}`);
}

function pieces({ size, count, first }) {
  const row = (piece) => h('tr', {}, h('td', {}, piece.piece), h('td', {}, piece.node ? chip(piece.node) : '–'), h('td', {}, piece.set.map((name) => [chip(name), ' ']).flat()));
  return details(`${count} pieces of ${bytes(size)}`,
    h('div', { class: 'scroll', role: 'region', 'aria-label': 'Pieces', tabindex: '0' },
      h('table', {}, h('thead', {}, h('tr', {}, ['Piece', 'From', 'Responsible'].map((text) => h('th', { scope: 'col' }, text)))), h('tbody', {}, first.map(row)))));
}

const details = (summary, ...content) => h('details', {}, h('summary', {}, summary), content);
