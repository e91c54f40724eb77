// The knowledge of the page: the nodes as they were last told, and their samples of the last 15 minutes.

import { byName, claimColours } from './parts.js';

/** Samples that are kept of each node. */
const KEPT = 900;

export const state = {
  /** The node that serves the page; null for the page of a demo. */
  self: null,
  /** Name -> node. */
  nodes: new Map(),
  /** Name -> samples, oldest first: { at, requests, ofClients, ofPeers, bytes, hits, lookups, originBytes, refused, p50, p99, load }. */
  samples: new Map(),
  /** Moments that charts mark: { at, text, kind }. */
  marks: [],
  /** The phases of a demo: { text, begin, end }, in milliseconds. */
  phases: [],
  demo: null,
  /** The fleet of the node, if it is of one. */
  fleet: null,
  at: 0,
};

export const names = () => [...state.nodes.keys()].sort(byName);

/** The nodes, and the servers that hold objects instead of nodes, where a site has a switch. */
export function holders() {
  const sets = [...state.nodes.values()].flatMap((each) => each.hot).flatMap((hot) => hot.set);
  return [...new Set([...names(), ...sets])].sort(byName);
}

/** Takes in the history of one or several nodes. */
export function takeHistory(history) {
  for (const [name, samples] of Object.entries(history.samples ?? {})) {
    state.samples.set(name, samples.map(sample).slice(-KEPT));
  }
}

/** Takes in a snapshot. */
export function takeSnapshot(snapshot) {
  state.at = snapshot.at;
  state.self = snapshot.self ?? null;
  state.demo = snapshot.demo ?? null;
  state.fleet = snapshot.fleet ?? null;
  const nodes = snapshot.nodes.map(node);
  claimColours(nodes.map((each) => each.name));
  state.nodes = new Map(nodes.map((each) => [each.name, each]));
  for (const each of nodes) if (each.sample) keep(each.name, each.sample);
}

function keep(name, latest) {
  const samples = state.samples.get(name) ?? [];
  state.samples.set(name, samples);
  if (samples.length > 0 && samples.at(-1).at >= latest.at) return;
  samples.push(latest);
  if (samples.length > KEPT) samples.shift();
}

function node({ name, address, up, age_seconds: age, round_trip: roundTrip, status }) {
  return {
    name,
    address,
    up,
    age,
    roundTrip,
    status,
    isKnown: Boolean(status) && (age ?? 0) < STALE,
    sample: status?.now && (age ?? 0) < STALE ? sample(status.now) : null,
    hot: status?.hottest ?? [],
  };
}

/** An answer that is older says nothing of now. */
const STALE = 5;

function sample(told) {
  const ms = (seconds) => (Number.isFinite(seconds) ? seconds * 1000 : NaN);
  return {
    at: Math.round(told.time * 1000),
    requests: told.requests,
    ofClients: told.requests - told.peer_requests,
    ofPeers: told.peer_requests,
    bytes: told.bytes,
    hits: told.hits,
    lookups: told.hits + told.misses,
    originBytes: told.origin_bytes,
    refused: told.refused,
    p50: ms(told.p50),
    p99: ms(told.p99),
    load: told.in_service,
  };
}

/** The samples of a node, or of all nodes together: one per second, oldest first. */
export function series(scope, seconds) {
  const from = state.at - seconds * 1000;
  if (scope !== ALL) return (state.samples.get(scope) ?? []).filter((each) => each.at >= from);
  // One sample per node and second. Where the clock's jitter leaves a second out, the one before stands for it.
  const tellers = names().map((name) => {
    const own = (state.samples.get(name) ?? []).filter((each) => each.at >= from);
    return new Map(own.map((each) => [Math.round(each.at / 1000), each]));
  });
  const all = [...new Set(tellers.flatMap((own) => [...own.keys()]))].sort((a, b) => a - b);
  // The last second is not complete until every node has told.
  if (all.length > 1 && tellers.some((own) => own.has(all.at(-2)) && !own.has(all.at(-1)))) all.pop();
  return all.map((second) => {
    const parts = tellers.map((own) => own.get(second) ?? (own.has(second + 1) ? own.get(second - 1) : null)).filter(Boolean);
    return parts.slice(1).reduce(added, { ...parts[0], at: second * 1000 });
  });
}

export const ALL = '*';

function added(sum, each) {
  const both = { at: sum.at };
  for (const key of ['requests', 'ofClients', 'ofPeers', 'bytes', 'hits', 'lookups', 'originBytes', 'refused', 'load']) {
    both[key] = sum[key] + each[key];
  }
  // The slowest node's percentile is an upper bound of the cluster's.
  both.p50 = worst(sum.p50, each.p50);
  both.p99 = worst(sum.p99, each.p99);
  return both;
}

const worst = (a, b) => (Number.isFinite(a) && Number.isFinite(b) ? Math.max(a, b) : Number.isFinite(a) ? a : b);

/** The hottest objects as all nodes see them: { url, rate, share, holders: name -> part of the nodes that say so }. */
export function hottest(most) {
  const objects = new Map();
  for (const each of state.nodes.values()) {
    if (!each.isKnown) continue;
    for (const hot of each.hot) {
      const known = objects.get(hot.url) ?? { url: hot.url, rate: 0, tellers: 0, holders: new Map() };
      objects.set(hot.url, known);
      known.rate += hot.rate ?? 0;
      known.policy = hot.policy ?? known.policy;
      known.tellers += 1;
      for (const holder of hot.set ?? []) known.holders.set(holder, (known.holders.get(holder) ?? 0) + 1);
    }
  }
  for (const object of objects.values()) {
    for (const [holder, tellers] of object.holders) object.holders.set(holder, tellers / object.tellers);
    object.size = [...object.holders.values()].reduce((sum, part) => sum + part, 0);
  }
  return [...objects.values()].sort((a, b) => b.rate - a.rate || byName(a.url, b.url)).slice(0, most);
}
