// Requests to the server: the token of this tab, JSON, and the stream of events.

const base = new URL('.', location.href.split('#')[0]);
let askForToken = async () => {};

export function onTokenNeeded(ask) {
  askForToken = ask;
}
export function setToken(token) {
  sessionStorage.setItem('token', token);
}

function headers() {
  const token = sessionStorage.getItem('token');
  return token ? { authorization: `Bearer ${token}` } : {};
}

export class Refused extends Error {
  constructor(problem) {
    super(problem.detail ?? 'the server refused the request');
    this.code = problem.code;
    this.status = problem.status;
  }
}

async function send(path, options = {}) {
  for (;;) {
    const reply = await fetch(new URL(path, base), { ...options, headers: headers() });
    if (reply.ok) return reply;
    const problem = await reply.json().catch(() => ({ status: reply.status }));
    if (reply.status !== 401) throw new Refused(problem);
    await askForToken(problem.code === 'bad_token' ? problem.detail : '');
  }
}

export const get = async (path) => (await send(path)).json();
export const remove = (path) => send(path, { method: 'DELETE' });
export const lockPath = (name) => `v1/locks/${name.split('/').map(encodeURIComponent).join('/')}`;

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
