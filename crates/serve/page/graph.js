// Who waits for whom across locks: processes as boxes, waits as arrows, circles in red.

import { element, svg, who } from './dom.js';

// Names that differ at their ends stay different.
const squeeze = (text, length) =>
  text.length > length ? `${text.slice(0, Math.ceil(length / 2) - 1)}…${text.slice(-Math.floor(length / 2))}` : text;

// The last column.
const LAST = 6;

export function graph(data) {
  const nodes = new Map();
  const edges = [];
  const node = (claim) => {
    const name = who(claim);
    if (!nodes.has(name)) nodes.set(name, { name, claim, waits: [], depth: 0 });
    return nodes.get(name);
  };
  for (const lock of data.locks.locks) {
    const byId = new Map(lock.claims.map((claim) => [claim.id, claim]));
    for (const claim of lock.claims) {
      for (const ahead of claim.waits_for.slice(0, 3)) {
        if (!byId.has(ahead)) continue;
        const [from, to] = [node(claim), node(byId.get(ahead))];
        edges.push({ from, to, lock: lock.name });
        from.waits.push(to);
      }
    }
  }
  const inCircle = new Set(data.locks.deadlocks.flat().map((wait) => `${wait.waits_for_lock} ${wait.who}`));
  const title = element('h2', {}, 'Who waits for whom');
  if (edges.length === 0) return [title, element('div', { class: 'card empty' }, 'Nobody waits.')];
  // The column is the length of the way to somebody who waits for nobody; the processes of a circle stand side by side.
  for (let round = 0; round < LAST; round++)
    for (const one of nodes.values())
      for (const next of one.waits) one.depth = Math.max(one.depth, Math.min(LAST, next.depth + 1));
  const columns = [];
  const put = (one, level) => {
    if (one && one.level === undefined) {
      one.level = level;
      (columns[level] ??= []).push(one);
    }
  };
  for (const circle of data.locks.deadlocks)
    circle.forEach((wait, at) => put(nodes.get(wait.who), Math.min(LAST, circle.length - 1 - at)));
  for (const one of [...nodes.values()].slice(0, 60)) put(one, one.depth);
  const [boxWidth, boxHeight, gapX, gapY] = [170, 44, 130, 40];
  const used = columns.filter(Boolean);
  // Beside the one that it waits for, where there is room.
  const wish = (one) => Math.min(99, ...one.waits.filter((next) => next.row !== undefined).map((next) => next.row));
  used.forEach((column, at) => {
    let row = 0;
    for (const [one, wanted] of column.map((one) => [one, wish(one)]).sort((a, b) => a[1] - b[1])) {
      one.row = wanted < 99 ? Math.max(row, wanted) : row;
      row = one.row + 1;
      one.x = 12 + at * (boxWidth + gapX);
      one.y = 12 + one.row * (boxHeight + gapY);
    }
  });
  const width = Math.max(640, used.length * (boxWidth + gapX) - gapX + 24);
  const height = (Math.max(...used.flat().map((one) => one.row)) + 1) * (boxHeight + gapY) + 10;
  const isBad = (edge) => inCircle.has(`${edge.lock} ${edge.from.name}`);
  const arrow = (edge) => {
    const bad = isBad(edge);
    const back = edge.to.x >= edge.from.x;
    const x1 = back ? edge.from.x + boxWidth / 2 : edge.from.x;
    const y1 = edge.from.y + (back ? boxHeight : boxHeight / 2);
    const x2 = edge.to.x + (back ? boxWidth / 2 : boxWidth);
    const y2 = edge.to.y + (back ? boxHeight : boxHeight / 2);
    const path = back
      ? `M${x1} ${y1}C${x1} ${y1 + 34} ${x2} ${y2 + 34} ${x2} ${y2 + 4}`
      : `M${x1} ${y1}C${x1 - 40} ${y1} ${x2 + 40} ${y2} ${x2 + 4} ${y2}`;
    return svg(
      'g',
      {},
      svg('title', {}, `${edge.from.name} waits for ${edge.lock} behind ${edge.to.name}`),
      svg('path', { class: `edge ${bad ? 'bad' : ''}`, d: path, 'marker-end': `url(#${bad ? 'bad' : 'tip'})` }),
      svg(
        'text',
        { class: `label ${bad ? 'bad' : ''}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 + (back ? 20 : -6), 'text-anchor': 'middle' },
        squeeze(edge.lock, 18),
      ),
    );
  };
  const box = (one) =>
    svg(
      'g',
      { class: `node ${edges.some((edge) => edge.from === one && isBad(edge)) ? 'bad' : ''}` },
      svg('title', {}, one.name),
      svg('rect', { x: one.x, y: one.y, width: boxWidth, height: boxHeight, rx: 9 }),
      svg('text', { x: one.x + 12, y: one.y + 19, style: 'font-weight:600' }, squeeze(one.claim.who, 22)),
      svg(
        'text',
        { class: 'soft', x: one.x + 12, y: one.y + 35 },
        squeeze([one.claim.host, one.claim.pid || ''].filter(Boolean).join(' · '), 25),
      ),
    );
  const tip = (id, colour) =>
    svg(
      'marker',
      { id, viewBox: '0 0 8 8', refX: 6, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: 'userSpaceOnUse', orient: 'auto' },
      svg('path', { d: 'M0 0L8 4L0 8z', style: `fill:${colour}` }),
    );
  return [
    title,
    element(
      'div',
      { class: 'card', style: 'padding:10px;overflow:auto' },
      svg(
        'svg',
        {
          class: 'picture',
          style: `min-width:${width}px`,
          viewBox: `0 0 ${width} ${height}`,
          role: 'img',
          'aria-label': `${edges.length} waits between ${nodes.size} processes`,
        },
        svg('defs', {}, tip('tip', 'var(--soft)'), tip('bad', 'var(--red)')),
        edges.filter((edge) => edge.from.x && edge.to.x).map(arrow),
        used.flat().map(box),
      ),
    ),
    element('h3', {}, 'The same in words'),
    element(
      'ul',
      {},
      edges
        .slice(0, 200)
        .map((edge) =>
          element(
            'li',
            {},
            `${edge.from.name} waits for `,
            element('a', { href: `#/lock/${encodeURIComponent(edge.lock)}` }, edge.lock),
            ` behind ${edge.to.name}`,
          ),
        ),
    ),
  ];
}
