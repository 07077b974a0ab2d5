// The table of all locks in use.

import { duration, element, who } from './dom.js';

const LONG_WAIT = 60;
export const NEAR_END = 0.25;

const holders = (lock) => lock.claims.filter((claim) => claim.standing === 'holds');
const waiters = (lock) => lock.claims.filter((claim) => claim.standing === 'waits');
const oldest = (claims, field) => Math.max(-1, ...claims.map((claim) => claim[field] ?? -1));

// How near the end of its TTL a claim is: the engine's TTL renews at two thirds.
export function nearEnd(claim, ttl) {
  return claim.ttl_left_seconds !== null && ttl > 0 && claim.ttl_left_seconds < ttl * NEAR_END;
}

function condition(lock, data) {
  if (data.locks.deadlocks.some((circle) => circle.some((wait) => wait.waits_for_lock === lock.name)))
    return ['bad', 'deadlock?'];
  if (holders(lock).some((claim) => claim.uncertain)) return ['warn', 'uncertain'];
  if (holders(lock).some((claim) => nearEnd(claim, data.ttl))) return ['warn', 'about to expire'];
  if (oldest(waiters(lock), 'age_seconds') > LONG_WAIT) return ['warn', 'waits long'];
  return ['', ''];
}

const inUse = (count, more) =>
  more ? `the first ${count.toLocaleString('en')} of more` : `${count.toLocaleString('en')} in use`;

export function locks(data, prefix, search) {
  const shown = data.locks.locks.filter((lock) => lock.name.startsWith(prefix));
  const cell = (label, ...children) => element('td', { 'data-label': label }, ...children);
  const number = (label, ...children) => element('td', { 'data-label': label, class: 'number' }, ...children);
  const row = (lock) => {
    const [kind, words] = condition(lock, data);
    const holding = holders(lock);
    const held =
      oldest(holding, 'held_seconds') >= 0 ? oldest(holding, 'held_seconds') : oldest(holding, 'age_seconds');
    const wait = oldest(waiters(lock), 'age_seconds');
    return element(
      'tr',
      { class: kind, 'data-lock': lock.name },
      cell(
        'Lock',
        element('a', { href: `#/lock/${encodeURIComponent(lock.name)}`, class: 'mono' }, lock.name),
        ' ',
        words ? element('span', { class: `tag ${kind}` }, words) : '',
      ),
      element('td', { 'data-label': 'As', class: 'word' }, lock.claims[0]?.demand ?? ''),
      cell(
        'Held by',
        element(
          'span',
          {},
          holding.slice(0, 3).map(who).join(', ') + (holding.length > 3 ? ` and ${holding.length - 3} more` : ''),
        ),
      ),
      number('Held for', duration(held < 0 ? null : held)),
      number('Waiting', String(waiters(lock).length)),
      number('Longest wait', duration(wait < 0 ? null : wait)),
    );
  };
  const head = ['Lock', 'As', 'Held by', 'Held for', 'Waiting', 'Longest wait'];
  const input = element('input', {
    type: 'search',
    id: 'prefix',
    value: prefix,
    placeholder: 'begins with…',
    oninput: (event) => search(event.target.value),
  });
  return [
    element('h2', {}, 'Locks in use'),
    element(
      'div',
      { class: 'bar' },
      element('label', { for: 'prefix' }, 'Name'),
      input,
      element('span', { class: 'soft', role: 'status' }, inUse(shown.length, data.locks.more)),
    ),
    shown.length === 0
      ? element(
          'div',
          { class: 'card empty' },
          prefix ? 'No lock in use has a name that begins so.' : "No lock is in use. Try: curl -N '",
          prefix ? '' : element('code', {}, `${location.host}/v1/hold?name=demo`),
          prefix ? '' : "'",
        )
      : element(
          'div',
          { class: 'card' },
          element(
            'table',
            {},
            element(
              'thead',
              {},
              element(
                'tr',
                {},
                head.map((text, at) => element('th', { scope: 'col', class: at > 2 ? 'number' : '' }, text)),
              ),
            ),
            element('tbody', {}, shown.map(row)),
          ),
        ),
  ];
}

export function circles(deadlocks) {
  return deadlocks.map((circle) =>
    element(
      'p',
      { class: 'notice' },
      element('strong', {}, 'Deadlock? '),
      circle.map((wait) => `${wait.who} waits for ${wait.waits_for_lock} behind ${wait.behind}`).join('; '),
      '. Look at these processes.',
    ),
  );
}
