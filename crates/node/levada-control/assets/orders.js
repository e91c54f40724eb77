// Orders: drain, reload, purge; and those of a demo. They need the token of [admin], unless the node takes
// orders from this machine.

import { find, h, say } from './parts.js';
import { names, state } from './state.js';

const TOKEN = 'levada-token';
let hello = { orders: 'refused' };

export function greet(told) {
  hello = told;
  const hints = {
    here: 'This node takes orders from this machine without a token.',
    token: 'Orders need the token of [admin]. It stays in this tab until it is closed.',
    refused: 'This node takes orders from its own machine only: set token_file in [admin].',
  };
  find('orders-hint').textContent = hints[told.orders] ?? '';
  find('orders-body').replaceChildren(...(told.orders === 'refused' ? [] : forms()));
}

function forms() {
  const ask = hello.orders === 'token' ? tokenForm() : null;
  const run = hello.kind === 'demo' ? [] : [
    group('Service', [
      button('Drain', () => order('/drain', 'The node drains.'), 'Clients are sent away, and no new ones are taken'),
      button('Undo the drain', () => order('/drain?undo', 'The drain is undone.')),
      button('Reload', () => order('/reload', (told) => (told.changed?.length ? `Reloaded. Changed: ${told.changed.join(', ')}.` : 'Reloaded. Nothing has changed.')), 'Reads the configuration again'),
    ]),
    purgeForm(),
  ];
  return [ask, ...run].filter(Boolean);
}

function tokenForm() {
  const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false' });
  field.value = sessionStorage.getItem(TOKEN) ?? '';
  field.addEventListener('input', () => {
    if (field.value) sessionStorage.setItem(TOKEN, field.value);
    else sessionStorage.removeItem(TOKEN);
  });
  return h('form', { class: 'ask', submit: (event) => event.preventDefault() }, h('label', { for: 'token' }, 'Token'), field);
}

function purgeForm() {
  const what = h('select', { id: 'purge-what' },
    h('option', { value: 'url' }, 'URL'), h('option', { value: 'prefix' }, 'Prefix'), h('option', { value: 'tag' }, 'Tag'));
  const target = h('input', { id: 'purge-target', type: 'text', autocomplete: 'off', spellcheck: 'false', required: true });
  const soft = h('input', { id: 'purge-soft', type: 'checkbox' });
  const submit = (event) => {
    event.preventDefault();
    const told = (report) => {
      const nodes = Object.values(report.nodes ?? []);
      const confirmed = nodes.filter((node) => (node.result ?? node.state) === 'confirmed').length;
      return `Purged: ${confirmed} of ${nodes.length || 1} nodes have confirmed.`;
    };
    order('/purge', told, { [what.value]: target.value.trim(), soft: soft.checked });
  };
  return group('Purge', [h('form', { class: 'ask', submit },
    h('label', { for: 'purge-what', class: 'vh' }, 'Purge by'), what,
    h('label', { for: 'purge-target', class: 'vh' }, 'Target'), target,
    h('label', {}, soft, ' soft'),
    h('button', {}, 'Purge'))]);
}

const group = (title, content) => h('fieldset', {}, h('legend', {}, title), content);

function button(text, act, hint) {
  return h('button', { type: 'button', click: act, title: hint }, text);
}

/** Posts an order and says how it went. */
export async function order(path, done, body = {}) {
  const answer = find('orders-answer');
  answer.classList.remove('bad');
  say(answer, 'Sent ...');
  const headers = { 'content-type': 'application/json', accept: 'application/json' };
  const token = sessionStorage.getItem(TOKEN);
  if (hello.orders === 'token' && token) headers.authorization = `Bearer ${token}`;
  try {
    const response = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
    const text = await response.text();
    answer.classList.toggle('bad', !response.ok);
    if (!response.ok) return say(answer, text.trim() || `The node refuses: ${response.status}`);
    let told = {};
    try { told = JSON.parse(text); } catch { /* a plain text */ }
    say(answer, typeof done === 'function' ? done(told) : done);
  } catch {
    answer.classList.add('bad');
    say(answer, 'The node does not answer.');
  }
}

/** The buttons of a demo. Kept as long as the nodes and policies stay the same. */
let offered = '';
export function offerDemo(place) {
  const { policies = [], policy = '' } = state.demo ?? {};
  const nodes = names();
  const wanted = JSON.stringify([nodes, policies]);
  if (wanted !== offered) {
    offered = wanted;
    const victim = h('select', { id: 'demo-node' }, nodes.map((name) => h('option', {}, name)));
    const choice = h('select', { id: 'demo-policy' }, policies.map((name) => h('option', {}, name)));
    choice.value = policy;
    place.replaceChildren(
      h('span', { class: 'pair' }, h('label', { for: 'demo-node', class: 'vh' }, 'Node'), victim,
        button('Kill it', () => order(`/demo/kill?node=${encodeURIComponent(victim.value)}`, `${victim.value} is killed, and starts again in a few seconds.`), 'As by kill -9')),
      h('span', { class: 'pair' }, button('Start a crowd', () => order('/demo/crowd', 'A crowd comes for the hot object.'))),
      h('span', { class: 'pair' }, h('label', { for: 'demo-policy', class: 'vh' }, 'Policy'), choice,
        button('Change the policy', () => order(`/demo/policy?name=${encodeURIComponent(choice.value)}`, `The nodes decide by ${choice.value} now.`))));
  }
}
