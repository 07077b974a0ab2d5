// Requests to the server: the tokens of this tab, JSON, and the stream of events.

const base = new URL('.', location.href.split('#')[0]);
let askForToken = async () => {};

export function onTokenNeeded(ask) {
  askForToken = ask;
}
export function setToken(token) {
  sessionStorage.setItem('token', token);
}

const headers = (token) => (token ? { authorization: `Bearer ${token}` } : {});

export class Refused extends Error {
  constructor(problem) {
    super(problem.detail ?? 'the server refused the request');
    this.code = problem.code;
    this.status = problem.status;
  }
}

const problemOf = (reply) => reply.json().catch(() => ({ status: reply.status }));

async function send(path, options = {}) {
  for (;;) {
    const reply = await fetch(new URL(path, base), { ...options, headers: headers(sessionStorage.getItem('token')) });
    if (reply.ok) return reply;
    const problem = await problemOf(reply);
    if (reply.status !== 401) throw new Refused(problem);
    await askForToken(problem.code === 'bad_token' ? problem.detail : '');
  }
}

export const get = async (path) => (await send(path)).json();
export const lockPath = (name) => `v1/locks/${name.split('/').map(encodeURIComponent).join('/')}`;

// Evicts with this token, or else with that of the last eviction that needed one, or else with the page's. One that may evict is
// kept for this tab.
export async function evictClaim(lock, claim, given) {
  const path = `${lockPath(lock)}/claims/${encodeURIComponent(claim)}`;
  const token = given || sessionStorage.getItem('evict-token');
  if (!token) return send(path, { method: 'DELETE' });
  const reply = await fetch(new URL(path, base), { method: 'DELETE', headers: headers(token) });
  if (!reply.ok) {
    const refused = new Refused(await problemOf(reply));
    if (lacksRight(refused)) sessionStorage.removeItem('evict-token');
    throw refused;
  }
  sessionStorage.setItem('evict-token', token);
}

// Whether another token could do what this one was refused.
export const lacksRight = (problem) => ['forbidden', 'no_token', 'bad_token'].includes(problem.code);

// Calls `happened(event, data)` for every event, and `state(text)` when the connection comes and goes. Never ends.
export async function listen(happened, state) {
  for (;;) {
    try {
      const reply = await send('v1/events');
      state('on');
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        rest += value;
        const parts = rest.split('\n\n');
        rest = parts.pop();
        for (const part of parts) {
          const field = (name) =>
            part
              .split('\n')
              .find((line) => line.startsWith(`${name}: `))
              ?.slice(name.length + 2);
          if (field('event')) happened(field('event'), JSON.parse(field('data') ?? 'null'));
        }
      }
    } catch {
      /* It is tried again, and the page says so. */
    }
    state('off');
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}
