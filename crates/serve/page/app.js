// The page: fetches what the engine has whenever something happens, and draws the view that the address names.

import { evictClaim, get, lacksRight, listen, lockPath, onTokenNeeded, setToken } from './api.js';
import { duration, element, who } from './dom.js';
import { graph } from './graph.js';
import { lock } from './lock.js';
import { circles, locks } from './locks.js';
import { update } from './update.js';

const main = document.getElementById('main');
const shown = document.getElementById('view');
const notices = document.getElementById('notices');
const data = { locks: { locks: [], more: false, deadlocks: [] }, ttl: 0, server: null, rates: [] };
let prefix = '';
let loading = false;
let again = false;
let due = 0;
let asking = null;

// Asks for a token once, however many requests need it.
onTokenNeeded(
  (error) =>
    (asking ??= new Promise((resolve) => {
      const dialog = document.getElementById('token-dialog');
      document.getElementById('token-error').textContent = error;
      dialog.addEventListener(
        'close',
        () => {
          setToken(document.getElementById('token').value.trim());
          asking = null;
          resolve();
        },
        { once: true },
      );
      dialog.showModal();
    })),
);

const view = () => {
  const [, kind = '', rest = ''] = location.hash.match(/^#\/([^/]*)\/?(.*)$/) ?? [];
  return { kind, name: decodeURIComponent(rest) };
};

// The list is searched by the server, which has more locks than it lists; the graph is of all.
const wanted = () => (view().kind === '' ? prefix : '');

// Shows a view. The focus stays, unless what had it is gone; then it goes to the view, and not to the top of the page.
function show(children) {
  const focused = document.activeElement;
  const had = shown.contains(focused);
  // Nothing of another view is kept.
  if (shown.dataset.of !== location.hash) shown.replaceChildren();
  shown.dataset.of = location.hash;
  update(shown, children);
  if (had && document.activeElement !== focused) (shown.contains(focused) ? focused : main).focus({ preventScroll: true });
}

// Says what is wrong, aloud once: what is said already stays as it is.
const warn = (children) => update(notices, children);

// Of a lock, those that it is part of.
function deadlocks({ kind, name }) {
  const concerns = (circle) => kind !== 'lock' || circle.some((wait) => wait.waits_for_lock === name);
  return kind === 'server' ? [] : circles(data.locks.deadlocks.filter(concerns));
}

function figures() {
  const server = data.server;
  if (!server) return [element('p', {}, 'loading')];
  const [first, last] = [data.rates[0], data.rates.at(-1)];
  const seconds = (last.time - first.time) / 1000;
  const rate = (name) => (seconds > 1 ? ((last[name] - first[name]) / seconds).toFixed(1) : '–');
  const one = (value, words) =>
    element('div', { class: 'figure' }, element('b', {}, String(value)), element('span', {}, words));
  return [
    element('h2', {}, 'This server'),
    element(
      'div',
      { class: 'figures' },
      one(rate('granted'), 'grants a second'),
      one(server.holds, 'holds'),
      one(server.waiters, 'waiting requests'),
      one(server.sessions, 'sessions'),
      one(server.granted, 'grants since its start'),
      one(server.busy, 'waits that ended without a grant'),
      one(server.near_misses, 'renewals near the deadline'),
      one(server.lost, 'holds lost'),
      one(server.silent, 'sessions that fell silent'),
      one(duration(server.up_ms / 1000), 'running'),
    ),
    element('h3', {}, 'Engine'),
    element(
      'dl',
      {},
      ...[
        ['Engine', `${server.engine}, style ${server.style}`],
        ['Namespace', server.namespace || '(none)'],
        ['TTL at the engine', duration(server.engine_ttl_ms / 1000)],
        ['Version', server.version],
      ].flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]),
    ),
  ];
}

async function draw() {
  const { kind, name } = view();
  for (const link of document.querySelectorAll('nav a')) {
    const here = link.dataset.view === (kind === 'lock' || kind === '' ? 'locks' : kind);
    if (here) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (kind === 'lock') {
    const one = await get(lockPath(name));
    if (view().name === name) show(lock(one, data, evict));
  } else if (kind === 'graph') show(graph(data));
  else if (kind === 'server') show(figures());
  else
    show(
      locks(data, prefix, (text) => {
        prefix = text;
        draw();
        refresh();
      }),
    );
}

async function refresh() {
  if (document.hidden) return;
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    do {
      // However much happens: the list is not renewed more often.
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - Date.now())));
      due = Date.now() + 500;
      again = false;
      const [asked, path] = [wanted(), `v1/locks?recent=true&prefix=${encodeURIComponent(wanted())}`];
      [data.locks, data.server] = await Promise.all([get(path), get('v1/server')]);
      if (asked !== wanted()) again = true;
      data.ttl = data.server.engine_ttl_ms / 1000;
      data.rates.push({ time: Date.now(), granted: data.server.granted });
      if (data.rates.length > 20) data.rates.shift();
      document.getElementById('engine').textContent =
        `${data.server.engine} · ${data.server.namespace || 'no namespace'}`;
      await draw();
      warn(deadlocks(view()));
    } while (again);
  } catch (error) {
    warn([element('p', { class: 'notice' }, error.message)]);
    // What was shown stays, unless it is of another view.
    if (shown.dataset.of !== location.hash) show([]);
  } finally {
    loading = false;
  }
}

function evict(name, claim) {
  const dialog = document.getElementById('evict-dialog');
  const error = document.getElementById('evict-error');
  const [ask, given] = [document.getElementById('evict-ask'), document.getElementById('evict-token')];
  error.textContent = '';
  ask.hidden = true;
  document.getElementById('evict-facts').replaceChildren(
    ...[
      ['Lock', name],
      ['Claim of', who(claim)],
      ['State', claim.standing],
      ['Claim', claim.id],
    ].flatMap(([term, value]) => [element('dt', {}, term), element('dd', {}, value)]),
  );
  document.getElementById('evict-yes').onclick = async (event) => {
    event.preventDefault();
    try {
      await evictClaim(name, claim.id, given.value.trim());
      dialog.close();
      refresh();
    } catch (problem) {
      error.textContent = problem.message;
      if (!lacksRight(problem)) return;
      ask.hidden = false;
      given.focus();
    }
  };
  document.getElementById('evict-no').onclick = () => dialog.close();
  dialog.showModal();
}

function state(now) {
  const live = document.getElementById('live');
  live.className = `live ${now}`;
  document.getElementById('live-text').textContent = now === 'on' ? 'live' : 'no connection; trying again';
  if (now === 'on') refresh();
}

const words = {
  holds: 'is held by',
  waits: 'is waited for by',
  left: 'was left by',
  lost: 'was lost by',
  deadlock: 'is part of a deadlock:',
};
listen((event, what) => {
  if (what && words[event]) document.getElementById('news').textContent = `${what.lock} ${words[event]} ${what.who}`;
  refresh();
}, state);
// The claim that was asked about may have gone meanwhile, and its button with it.
document.getElementById('evict-dialog').addEventListener('close', () => {
  document.getElementById('evict-token').value = '';
  if (document.activeElement === document.body) main.focus({ preventScroll: true });
});
addEventListener('hashchange', () => {
  draw().catch(() => {});
  refresh();
  main.focus();
});
// Bars and times go on between events.
setInterval(refresh, 1000);
document.addEventListener('visibilitychange', refresh);
refresh();
