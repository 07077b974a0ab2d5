// One lock: holders, queue, and the picture of its last claims.

import { duration, element, svg, who } from './dom.js';
import { nearEnd } from './locks.js';

function ttlBar(claim, ttl) {
  if (claim.ttl_left_seconds === null || !ttl) return '';
  const share = Math.max(0, Math.min(1, claim.ttl_left_seconds / ttl));
  const kind = claim.ttl_left_seconds < ttl * 0.1 ? 'bad' : nearEnd(claim, ttl) ? 'warn' : '';
  const bar = element('i', {});
  bar.style.width = `${Math.round(share * 100)}%`;
  return element(
    'div',
    {
      class: `ttl ${kind}`,
      role: 'meter',
      'aria-label': 'TTL left',
      'aria-valuemin': 0,
      'aria-valuemax': Math.round(ttl * 1000) / 1000,
      'aria-valuenow': claim.ttl_left_seconds.toFixed(1),
      'aria-valuetext': `${duration(claim.ttl_left_seconds)} of ${duration(ttl)}`,
    },
    bar,
  );
}

function claims(lock, data, evict) {
  const name = (id) => lock.claims.find((claim) => claim.id === id);
  const cell = (label, ...children) => element('td', { 'data-label': label }, ...children);
  const row = (claim, at) =>
    element(
      'tr',
      {
        'data-claim': claim.id,
        class: claim.uncertain || (claim.standing === 'holds' && nearEnd(claim, data.ttl)) ? 'warn' : '',
      },
      cell('Place', String(at + 1)),
      cell(
        'State',
        element('span', { class: `tag ${claim.standing}` }, claim.standing),
        claim.uncertain ? element('span', { class: 'tag warn' }, 'uncertain') : '',
      ),
      cell(
        'Who',
        element(
          'span',
          {},
          who(claim),
          claim.foreign ? ' ' : '',
          claim.foreign ? element('span', { class: 'tag' }, 'another client') : '',
        ),
      ),
      element('td', { 'data-label': 'As', class: 'word' }, claim.demand),
      cell('Token', element('span', { class: 'mono' }, claim.token === null ? '–' : String(claim.token))),
      cell(
        claim.standing === 'holds' ? 'Held for' : 'Waited',
        element(
          'span',
          {},
          duration(claim.standing === 'holds' ? (claim.held_seconds ?? claim.age_seconds) : claim.age_seconds),
        ),
      ),
      cell('TTL left', element('div', { class: 'grow' }, duration(claim.ttl_left_seconds), ttlBar(claim, data.ttl))),
      cell(
        'Behind',
        element(
          'span',
          { class: 'soft' },
          claim.waits_for.map((id) => name(id)?.who ?? id.slice(0, 8)).join(', ') || '–',
        ),
      ),
      cell(
        '',
        element(
          'button',
          { class: 'danger', 'aria-label': `Evict the claim of ${claim.who}`, onclick: () => evict(lock.name, claim) },
          'Evict',
        ),
      ),
    );
  const head = ['Place', 'State', 'Who', 'As', 'Token', 'For', 'TTL left', 'Behind', ''];
  return element(
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
          head.map((text) =>
            element('th', { scope: 'col' }, text || element('span', { class: 'visually-hidden' }, 'Action')),
          ),
        ),
      ),
      element('tbody', {}, lock.claims.map(row)),
    ),
  );
}

function legend() {
  const one = (kind, words) => element('span', {}, element('i', { class: kind, 'aria-hidden': 'true' }), words);
  return element('p', { class: 'legend' }, one('wait', 'waits'), one('held', 'holds, with its token'), one('gone', 'lost'));
}

// Waits pale, holds solid, losses marked, the tokens on them.
export function timeline(lock) {
  const now = Date.now();
  const live = lock.claims.map((claim) => {
    const joined = now - (claim.age_seconds ?? 0) * 1000;
    const held = claim.standing === 'holds' ? now - (claim.held_seconds ?? claim.age_seconds ?? 0) * 1000 : null;
    return { who: who(claim), joined_ms: joined, held_ms: held, left_ms: null, token: claim.token, lost: false };
  });
  const rows = [...(lock.history ?? []).slice(0, 20).reverse(), ...live];
  if (rows.length === 0)
    return element('p', { class: 'soft' }, 'Nothing was seen yet. Claims of others are remembered while somebody watches.');
  // Not smaller than its text can be read; it scrolls where there is less room.
  const [width, left, step] = [Math.max(640, Math.min(1000, innerWidth - 80)), 190, 24];
  const from = Math.min(...rows.map((row) => row.joined_ms));
  const span = Math.max(now - from, 1000);
  const x = (time) => left + ((time - from) / span) * (width - left - 12);
  const height = rows.length * step + 30;
  // On its hold if it fits there, or else beside it: a token is of use only as a whole.
  const token = (text, start, end, y) => {
    const needs = text.length * 7 + 10;
    if (end - start > needs) return svg('text', { x: start + 6, y, style: 'fill:var(--on)' }, text);
    if (end + needs < width - 12) return svg('text', { x: end + 8, y, class: 'token' }, text);
    return svg('text', { x: start - 6, y, class: 'token', 'text-anchor': 'end' }, text);
  };
  const marks = rows.map((row, at) => {
    const y = at * step + 6;
    const end = row.left_ms ?? now;
    const granted = row.held_ms ?? end;
    const box = (kind, a, b) =>
      svg('rect', { class: kind, x: x(a), y, width: Math.max(2, x(b) - x(a)), height: 14, rx: 3 });
    const label =
      `${row.who}: waited ${duration((granted - row.joined_ms) / 1000)}` +
      (row.held_ms ? `, held ${duration((end - row.held_ms) / 1000)}, token ${row.token}` : '') +
      (row.lost ? ', lost' : '');
    return svg(
      'g',
      {},
      svg('title', {}, label),
      svg('text', { x: left - 10, y: y + 11.5, 'text-anchor': 'end' }, shorten(row.who, 26)),
      granted > row.joined_ms ? box('wait', row.joined_ms, granted) : undefined,
      row.held_ms ? box('held', row.held_ms, end) : undefined,
      row.lost
        ? svg('path', {
            class: 'gone',
            d: `M${x(end) - 5} ${y + 2}l10 10m0 -10l-10 10`,
            stroke: 'var(--red)',
            'stroke-width': 3,
          })
        : undefined,
      row.token ? token(String(row.token), x(granted), x(end), y + 11.5) : undefined,
    );
  });
  return element(
    'div',
    { class: 'card', style: 'padding:14px;overflow:auto' },
    legend(),
    svg(
      'svg',
      {
        class: 'picture',
        style: 'min-width:640px',
        viewBox: `0 0 ${width} ${height}`,
        role: 'img',
        'aria-label': `The last ${rows.length} claims of ${lock.name}`,
      },
      svg('line', { class: 'axis', x1: left, x2: width - 12, y1: height - 20, y2: height - 20 }),
      marks,
      svg('text', { class: 'soft', x: left, y: height - 5 }, `${duration(span / 1000)} ago`),
      svg('text', { class: 'soft', x: width - 12, y: height - 5, 'text-anchor': 'end' }, 'now'),
    ),
  );
}

export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function lock(one, data, evict) {
  return [
    element('p', { style: 'margin:0' }, element('a', { href: '#/' }, '← all locks')),
    element(
      'h2',
      {},
      element('span', { class: 'mono' }, one.name),
      ' ',
      element('span', { class: 'soft', style: 'font-weight:400;font-size:14px' }, one.full_name),
    ),
    one.claims.length === 0 ? element('div', { class: 'card empty' }, 'The lock is free.') : claims(one, data, evict),
    element('h3', {}, 'Its last claims'),
    timeline(one),
  ];
}
