// The page, from top to bottom: a stream of server-sent events comes in, the parts draw themselves once per
// snapshot. Nothing is drawn while the tab is hidden, and the stream is closed.

import { find, say } from './parts.js';
import { takeHistory, takeSnapshot } from './state.js';
import * as charts from './charts.js';
import * as matrix from './matrix.js';
import * as why from './why.js';
import * as orders from './orders.js';
import * as sections from './sections.js';
import { drawFleet } from './fleet.js';

/** The stream is begun anew if nothing has come for so long: the node may be gone without a word. */
const SILENCE = 6000;

let stream = null;
let heard = 0;
let lastEvent = '';
let hasEnded = false;

function open() {
  close();
  heard = Date.now();
  // A new stream is not the browser's own second try, so it says itself where to go on.
  stream = new EventSource(lastEvent ? `/live?after=${encodeURIComponent(lastEvent)}` : '/live');
  on('hello', greet);
  on('history', (history) => {
    takeHistory(history);
    matrix.takeHistory(history);
  });
  on('snapshot', show);
  on('event', sections.takeEvent);
  stream.addEventListener('error', () => link('lost', 'reconnecting'));
  on('end', () => {
    hasEnded = true;
    close();
    link('lost', 'ended');
  });
}

function close() {
  stream?.close();
  stream = null;
}

function on(name, take) {
  stream.addEventListener(name, (event) => {
    heard = Date.now();
    if (event.lastEventId) lastEvent = event.lastEventId;
    take(JSON.parse(event.data));
  });
}

function greet(hello) {
  const title = hello.kind === 'demo' ? 'A small CDN on this machine' : `Node ${hello.name}`;
  say(find('title'), title);
  say(find('who'), hello.name);
  say(find('version'), `Levada ${hello.version}`);
  document.title = `${hello.name} – Levada`;
  document.documentElement.dataset.kind = hello.kind;
  orders.greet(hello);
}

function show(snapshot) {
  takeSnapshot(snapshot);
  link('live', 'live');
  sections.drawStory(orders.offerDemo);
  charts.draw();
  sections.drawNow();
  matrix.draw();
  sections.drawNodes();
  drawFleet();
  sections.drawHealth();
  sections.drawLarge();
  document.documentElement.dataset.shown = Number(document.documentElement.dataset.shown ?? 0) + 1;
}

function link(kind, text) {
  const element = find('link');
  if (element.dataset.state === kind) return;
  element.dataset.state = kind;
  say(element, text);
}

charts.start();
matrix.start(why.explainHere);
why.start();
sections.startEvents();
open();

document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'hidden') close();
  else if (!stream && !hasEnded) open();
});
setInterval(() => {
  if (stream && Date.now() - heard > SILENCE) {
    link('lost', 'reconnecting');
    open();
  }
}, 1000);
