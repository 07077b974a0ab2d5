// The page in a real browser: what it shows is what the engine has, live; evict asks first and needs the right.
//
//   node page.mjs LOCKKEEPER CHROMIUM SCREENSHOTS
//
// LOCKKEEPER is the program, CHROMIUM the browser, SCREENSHOTS a folder for the pictures of the documentation.

import assert from 'node:assert/strict';
import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createRequire } from 'node:module';

const { chromium } = createRequire(join(process.cwd(), 'package.json'))('playwright-core');
const [program, browserPath, pictures] = process.argv.slice(2);
const place = mkdtempSync(join(tmpdir(), 'lockkeeper-page-'));
const children = [];

function start(...words) {
  const child = spawn(program, words, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, LOCKKEEPER_URL: `file:${place}/locks` },
  });
  children.push(child);
  return child;
}

async function serve(...words) {
  const child = start('serve', '--listen', '127.0.0.1:0', ...words);
  for await (const text of child.stdout) return /listening on (\S+)/.exec(String(text))[1];
  throw new Error('the server did not start');
}

async function client(url, token) {
  const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const post = async (path, body) => {
    const reply = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: reply.status, ...(await reply.json()) };
  };
  return {
    session: async (who, host, pid) => (await post('/v1/sessions', { ttl: '5m', holder: { who, host, pid } })).session,
    hold: (session, name, more = {}) => post('/v1/holds', { session, names: [name], ...more }),
    release: (hold) => fetch(`${url}/v1/holds/${hold}`, { method: 'DELETE', headers }),
  };
}

const browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox'] });
const problems = [];

async function open(url, options = {}) {
  const page = await (await browser.newContext({ viewport: { width: 1180, height: 720 }, ...options })).newPage();
  page.on(
    'console',
    (message) =>
      message.type() === 'error' && !/status of 40[13]/.test(message.text()) && problems.push(message.text()),
  );
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.goto(url);
  return page;
}

const focused = (control) => control.evaluate((one) => one === document.activeElement);

// Until a view has been drawn twice more, which shows in a time that goes on.
async function redraws(time) {
  for (let drawn = 0; drawn < 2; drawn++) await time.filter({ hasNotText: await time.innerText() }).waitFor();
}

try {
  const url = await serve();
  const locks = await client(url);
  const page = await open(url);
  await page.getByText('No lock is in use').waitFor();
  await page.getByText('live', { exact: true }).waitFor();

  // A hold appears by itself, and goes by itself.
  const billing = await locks.session('billing', 'web-1', 4021);
  const first = await locks.hold(billing, 'orders/42');
  assert.equal(first.status, 201);
  const row = page.locator('tr[data-lock="orders/42"]');
  await row.getByText('billing (web-1, pid 4021)').waitFor();
  await locks.release(first.hold);
  await row.waitFor({ state: 'detached' });

  // Names and holders of strangers are texts, and no elements.
  const element = '<img src=x onerror=alert(1)>';
  const strange = await locks.hold(await locks.session(element, 'host', 1), element);
  assert.equal(strange.status, 201);
  const strangers = page.locator('tr[data-lock]').filter({ hasText: `${element} (host, pid 1)` });
  await strangers.waitFor();
  assert.equal(await page.locator('img[src="x"]').count(), 0);
  await locks.release(strange.hold);
  await strangers.waitFor({ state: 'detached' });

  // Many locks, a queue, readers, permits, and two processes that wait for each other.
  const held = await locks.hold(billing, 'orders/42');
  const waiting = [];
  for (const [who, host, pid] of [
    ['checkout', 'web-2', 311],
    ['refunds', 'web-3', 977],
    ['nightly-report', 'batch-1', 52],
  ]) {
    const session = await locks.session(who, host, pid);
    waiting.push(locks.hold(session, 'orders/42'));
    await row.locator('td').nth(4).getByText(String(waiting.length), { exact: true }).waitFor();
  }
  const [one, two] = [await locks.session('importer', 'batch-1', 61), await locks.session('exporter', 'batch-2', 62)];
  await locks.hold(one, 'stock/warehouse-1');
  await locks.hold(two, 'stock/warehouse-2');
  waiting.push(locks.hold(one, 'stock/warehouse-2'), locks.hold(two, 'stock/warehouse-1'));
  for (const host of ['render-1', 'render-2'])
    await locks.hold(await locks.session('render', host, 9), 'gpu', { mode: { permits: 1, of: 4 } });
  for (const host of ['web-1', 'web-2', 'web-3'])
    await locks.hold(await locks.session('catalogue', host, 12), 'prices', { mode: 'shared' });
  await page.locator('tr[data-lock="gpu"]').waitFor();
  // It is said once, and not again with every redraw.
  const deadlock = page.getByRole('alert').getByText('Deadlock?');
  await deadlock.waitFor();
  await page.evaluate(() => {
    const count = () => (window.said = (window.said ?? 0) + 1);
    new MutationObserver(count).observe(document.getElementById('notices'), {
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  await redraws(row.locator('td').nth(3));
  assert.equal(await page.evaluate(() => window.said), undefined, 'the deadlock is said once');
  await row.locator('td').nth(3).getByText(/^([3-9]\.\d|\d\d) s$/).waitFor();
  await page.screenshot({ path: join(pictures, 'page-locks.png') });

  // What is shown is what the engine has.
  const shown = await page.locator('tr[data-lock]').evaluateAll((rows) => rows.map((row) => row.dataset.lock).sort());
  const listed = JSON.parse(
    execFileSync(program, ['ls', '--json'], { env: { ...process.env, LOCKKEEPER_URL: `file:${place}/locks` } }),
  );
  assert.deepEqual(shown, listed.map((lock) => lock.name).sort());

  // Search by prefix, by keyboard.
  await page.getByLabel('Name').focus();
  await page.keyboard.type('stock/');
  await page.getByText('2 in use').waitFor();
  await page.getByLabel('Name').fill('');
  await page.getByText('5 in use').waitFor();

  // The graph.
  await page.getByRole('link', { name: 'Who waits for whom' }).click();
  await page.getByRole('img', { name: /waits between/ }).waitFor();
  assert.equal(await page.locator('.edge.bad').count(), 2);
  const labels = await page.locator('.label.bad').allTextContents();
  assert.deepEqual(labels.sort(), ['stock/warehouse-1', 'stock/warehouse-2'], 'each wait names its lock');
  const hidden = await page.evaluate(() => {
    const box = (one) => one.getBoundingClientRect();
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const boxes = [...document.querySelectorAll('.node rect')].map(box);
    return [...document.querySelectorAll('.label')].filter((label) => boxes.some((one) => meet(box(label), one))).length;
  });
  assert.equal(hidden, 0, 'no name of a lock lies on a process');
  await page.screenshot({ path: join(pictures, 'page-graph.png') });

  // With many who wait for permits, each behind several, it is drawn at once.
  const many = Array.from({ length: 45 }, (_, at) => at);
  const permit = { mode: { permits: 1, of: 3 } };
  const sessions = [];
  for (const at of many) {
    sessions.push(await locks.session('pool', `host-${at}`, at));
    const held = locks.hold(sessions[at], 'pool', permit);
    if (at < 3) assert.equal((await held).status, 201);
    else waiting.push(held);
  }
  const last = page.locator('li').filter({ hasText: 'pool (host-44, pid 44) waits for pool behind' });
  await last.first().waitFor();
  for (const session of sessions) await fetch(`${url}/v1/sessions/${session}`, { method: 'DELETE' });
  await last.first().waitFor({ state: 'detached' });

  // One lock, and evict behind a question.
  await page.getByRole('link', { name: 'Locks', exact: true }).click();
  await row.getByRole('link', { name: 'orders/42' }).click();
  await page.locator('tr[data-claim]').nth(3).waitFor();
  assert.equal(await page.getByRole('meter', { name: 'TTL left' }).count(), 4);
  // By keyboard: the focus stays where it is while the view is drawn again, and comes back from the question.
  const evict = page.getByRole('button', { name: 'Evict the claim of refunds' });
  const question = page.getByRole('heading', { name: 'Evict this claim?' });
  const heldFor = page.locator('tr[data-claim]').first().locator('td').nth(5);
  await evict.focus();
  await redraws(heldFor);
  assert.ok(await focused(evict), 'the focus stays');
  await page.keyboard.press('Enter');
  await question.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'evict-no', 'the harmless answer has the focus');
  await redraws(heldFor);
  await page.keyboard.press('Escape');
  await question.waitFor({ state: 'hidden' });
  assert.ok(await focused(evict), 'the focus comes back');
  assert.equal(await page.locator('tr[data-claim]').count(), 4);
  // A click that is longer than a redraw is a click.
  await evict.hover();
  await page.mouse.down();
  await redraws(heldFor);
  await page.mouse.up();
  await question.waitFor();
  await page.keyboard.press('Escape');
  await locks.release(held.hold);
  await page.locator('tr[data-claim]').nth(3).waitFor({ state: 'detached' });
  await page.locator('svg .held').nth(1).waitFor();
  // The hold that has just ended comes back with the history.
  for (const hold of [held, await waiting[0]])
    await page.locator('svg text').filter({ hasText: String(hold.tokens[0].token) }).waitFor();
  await evict.blur();
  await page.screenshot({ path: join(pictures, 'page-lock.png') });
  await page.getByRole('button', { name: 'Evict the claim of checkout' }).click();
  await page.getByRole('button', { name: 'Evict', exact: true }).click();
  await page.getByRole('button', { name: 'Evict the claim of checkout' }).waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main', 'the focus is not lost with the row');
  // Its client is told, and the loss is marked.
  assert.equal((await locks.release((await waiting[0]).hold)).status, 410);
  await page.locator('svg g').filter({ hasText: /^checkout .*, lost/ }).locator('.gone').waitFor();

  // The figures.
  await page.getByRole('link', { name: 'Server' }).click();
  await page.getByText('grants a second').waitFor();

  // What is seldom so is shown, too: a holder that its engine has not confirmed, one whose
  // time is nearly over, and a wait of more than a minute.
  const rare = await open('about:blank');
  await rare.route(
    ({ pathname }) => pathname.startsWith('/v1/locks'),
    async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      for (const lock of json.locks ?? [json])
        for (const claim of lock.claims) {
          if (lock.name === 'gpu') claim.uncertain = true;
          else if (claim.standing === 'waits') claim.age_seconds += 3600;
          claim.ttl_left_seconds = lock.name === 'prices' ? 0.9 : null;
        }
      await route.fulfill({ response, json });
    },
  );
  await rare.goto(url);
  const marked = (name, words) => rare.locator(`tr.warn[data-lock="${name}"] .tag.warn`).getByText(words, { exact: true });
  await marked('orders/42', 'waits long').waitFor();
  await marked('gpu', 'uncertain').waitFor();
  await marked('prices', 'about to expire').waitFor();
  assert.equal(await rare.locator('tr[data-lock]').filter({ hasText: 'about to expire' }).count(), 1);
  await rare.getByRole('link', { name: 'prices' }).click();
  await rare.locator('tr.warn[data-claim] .ttl.bad[aria-valuetext^="900 ms of"]').first().waitFor();
  await rare.getByRole('link', { name: 'Locks', exact: true }).click();
  await rare.getByRole('link', { name: 'gpu' }).click();
  await rare.locator('tr.warn[data-claim] .tag.warn').getByText('uncertain', { exact: true }).first().waitFor();
  // Its requests do not outlast it.
  await rare.unrouteAll({ behavior: 'ignoreErrors' });
  await rare.close();

  // In the dark, and on a phone, where nothing is wider than the screen.
  const dark = await open(url, { colorScheme: 'dark', viewport: { width: 390, height: 800 } });
  await dark.locator('tr[data-lock="gpu"]').waitFor();
  assert.ok(await dark.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await dark.screenshot({ path: join(pictures, 'page-phone.png') });
  // Every control has a name for a screen reader.
  const unnamed = () =>
    dark
      .locator('a, button, input')
      .evaluateAll((all) => all.filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length);
  assert.equal(await unnamed(), 0);
  await dark.goto(`${url}/#/lock/orders%2F42`);
  await dark.locator('svg .held').first().waitFor();
  assert.ok(await dark.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  const letters = await dark.locator('svg text').first().evaluate((text) => text.getBoundingClientRect().height);
  assert.ok(letters >= 12, `the picture is readable: its letters are ${letters} px high`);
  assert.equal(await unnamed(), 0);

  // With tokens: asked for once, and evict is refused without the right, until a token that has it is given.
  const [looker, ops] = ['looker', 'ops'].map((name) => {
    const made = String(execFileSync(program, ['serve', '--new-token', name]));
    return { token: /token: (\S+)/.exec(made)[1], line: /file: (.*)/.exec(made)[1] };
  });
  writeFileSync(join(place, 'tokens'), `${looker.line}\n${ops.line.replace('look,hold', 'look,hold,evict')}\n`);
  const closed = await serve('--tokens', join(place, 'tokens'));
  const token = looker.token;
  const guarded = await open(closed);
  const addresses = [];
  guarded.on('request', (request) => addresses.push(request.url()));
  await guarded.getByRole('textbox', { name: 'Token' }).fill(token);
  await guarded.getByRole('button', { name: 'Use it' }).click();
  await guarded.getByRole('link', { name: 'prices' }).click();
  await guarded
    .getByRole('button', { name: /Evict the claim/ })
    .first()
    .click();
  await guarded.getByRole('button', { name: 'Evict', exact: true }).click();
  await guarded.getByRole('alert').getByText("has not the right 'evict'").waitFor();
  const other = guarded.getByLabel('Token with the right evict');
  assert.ok(await focused(other), 'the question goes on with the token');
  await other.fill('lk_wrong');
  await guarded.keyboard.press('Enter');
  await guarded.getByRole('alert').getByText('not known').waitFor();
  await other.fill(ops.token);
  await guarded.keyboard.press('Enter');
  await guarded.getByRole('heading', { name: 'Evict this claim?' }).waitFor({ state: 'hidden' });
  await guarded.locator('tr[data-claim]').nth(2).waitFor({ state: 'detached' });
  assert.equal(await guarded.locator('tr[data-claim]').count(), 2);
  // It is for this tab, is asked for once, and the page goes on with its own token.
  await guarded.getByRole('button', { name: /Evict the claim/ }).first().click();
  assert.ok(!(await other.isVisible()));
  await guarded.getByRole('button', { name: 'Evict', exact: true }).click();
  await guarded.locator('tr[data-claim]').nth(1).waitFor({ state: 'detached' });
  assert.equal(await guarded.evaluate(() => sessionStorage.getItem('token')), token);
  assert.equal(await guarded.evaluate(() => localStorage.length + document.cookie.length), 0);
  assert.ok(addresses.length > 0 && ![...addresses, guarded.url()].some((address) => address.includes(ops.token)));

  // A list that is cut says so.
  const thousand = await locks.session('many', 'host', 1);
  for (let at = 0; at < 16; at++) {
    const names = Array.from({ length: 64 }, (_, lock) => `many/${at}/${lock}`);
    assert.equal((await locks.hold(thousand, names[0], { names })).status, 201);
  }
  await guarded.getByRole('link', { name: 'Locks', exact: true }).click();
  await guarded.getByText('the first 1,000 of more', { exact: true }).waitFor();
  await guarded.getByLabel('Name').fill('many/1/');
  await guarded.getByText('64 in use', { exact: true }).waitFor();
  await fetch(`${url}/v1/sessions/${thousand}`, { method: 'DELETE' });

  assert.deepEqual(problems, [], 'errors in the console');
  console.log('the page: ok');
} finally {
  await browser.close();
  for (const child of children) child.kill('SIGTERM');
  rmSync(place, { recursive: true, force: true });
}
