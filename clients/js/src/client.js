// The client: one process at a server.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { basename } from "node:path";
import { now } from "./clock.js";
import { Busy, Closed, NoReply, Refused, Unavailable } from "./errors.js";
import { Hold } from "./hold.js";
import { Http } from "./reply.js";
import { Session, quietly } from "./session.js";

const open = new Set();

// The program has nothing left to do: what it holds is released at once.
process.on("beforeExit", () => {
  for (const client of open) client.close();
});

export class Client {
  #http;
  #ttl;
  #holder;
  #session;
  #opening;
  #isClosed = false;

  constructor(url, { ttl = 10_000, holder, token } = {}) {
    this.#http = new Http(url, token);
    this.#ttl = ttl;
    this.#holder = { who: holder ?? basename(process.argv[1] ?? "node"), host: hostname(), pid: process.pid };
    open.add(this);
  }

  lock(names, options) {
    return this.#acquire(names, "exclusive", options);
  }

  async tryLock(names, options) {
    try {
      return await this.#acquire(names, "exclusive", { ...options, wait: 0 });
    } catch (error) {
      if (error instanceof Busy) return undefined;
      throw error;
    }
  }

  read(names, options) {
    return this.#acquire(names, "shared", options);
  }

  permits(name, count, { of, ...options }) {
    return this.#acquire(name, { permits: count, of }, options);
  }

  async withLock(names, options, work) {
    const hold = await this.lock(names, options);
    let result;
    try {
      result = await work(hold);
    } catch (error) {
      // An error of the work itself says more than that of a release.
      await hold.release().catch(() => {});
      throw error;
    }
    await hold.release();
    return result;
  }

  async close() {
    this.#isClosed = true;
    open.delete(this);
    const session = this.#session;
    this.#session = undefined;
    if (session === undefined || session.isOver) return;
    for (const hold of session.stop()) hold.forget();
    await quietly(this.#http, `/v1/sessions/${session.id}`, session.ttl / 3);
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  /** The session of this client; a new one if there is none, or if it has ended. Callers at the same time share it. */
  async #open() {
    if (this.#isClosed) throw new Closed();
    if (this.#session !== undefined && !this.#session.isOver) return this.#session;
    this.#opening ??= this.#openNew().finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  async #openNew() {
    const body = { ttl: Math.round(this.#ttl), holder: this.#holder };
    const key = randomUUID();
    for (let tries = 1; ; tries++) {
      let reply;
      try {
        reply = await this.#http.call("POST", "/v1/sessions", { timeout: this.#ttl, body, key });
      } catch (error) {
        if (!(error instanceof NoReply)) throw error;
        if (tries > 1) throw new Unavailable(`no session: ${error.message}`, { cause: error });
        continue;
      }
      if (reply.status !== 201) throw reply.error();
      if (this.#isClosed) {
        await quietly(this.#http, `/v1/sessions/${reply.body.session}`, this.#ttl);
        throw new Closed();
      }
      return (this.#session = new Session(this.#http, reply));
    }
  }

  /** Waits for the locks. If the session ends meanwhile, waits anew in another. */
  async #acquire(names, mode, { wait, lease, signal } = {}) {
    signal?.throwIfAborted();
    const body = { names: typeof names === "string" ? [names] : [...names], mode };
    if (wait !== undefined) body.wait = Math.round(wait);
    if (lease !== undefined) body.lease = Math.round(lease);
    const end = wait === undefined ? Infinity : now() + wait;
    for (;;) {
      const session = await this.#open();
      // Law 4: chosen before anything is sent, so that a retry finds the same wait or the same hold.
      const key = randomUUID();
      let hold;
      try {
        hold = await this.#ask(session, key, { session: session.id, ...body }, end, signal);
      } catch (error) {
        // The caller gave up: those who wait behind it must not wait for the server to notice.
        if (signal?.aborted && !session.isOver) session.takeBack(key);
        throw error;
      }
      if (hold !== undefined) return hold;
    }
  }

  /** One request by its key, repeated until there is a reply. Undefined if it must be made anew. */
  async #ask(session, key, body, end, signal) {
    let pause = 20;
    for (;;) {
      // A long wait is cut and sent again, so that a dead connection does not go unnoticed. Its place is kept.
      const longest = Math.min(30_000, Math.max(1000, session.ttl));
      const timeout = Math.min(longest, Math.max(0, end - now()) + session.ttl);
      let reply;
      try {
        reply = await this.#http.call("POST", "/v1/holds", { timeout, body, key, signal });
      } catch (error) {
        if (!(error instanceof NoReply)) throw error;
        if (now() >= end + session.ttl) {
          throw new Unavailable(`the wait ended without a reply: ${error.message}`, { cause: error });
        }
        if (session.isOver) return undefined;
        if (!error.timedOut) {
          await sleep(pause);
          pause = Math.min(2 * pause, session.ttl / 10);
        }
        continue;
      }
      if (reply.status === 201) return this.#believe(session, reply);
      if (reply.saysSessionEnded) {
        session.end(reply.reason);
        return undefined;
      }
      if (reply.code === "lost" || reply.code === "released") return undefined;
      // The server had given up the wait when the retry came.
      if (reply.code === "busy" && reply.body.busy === undefined && now() < end) return undefined;
      throw reply.error();
    }
  }

  /** The hold of a grant, if there is time left to trust it. */
  async #believe(session, { body, deadline }) {
    if (deadline - now() < body.valid_for_ms / 2) {
      // After a long wait little may be left, because of the rate of the clocks: a short request tells it exactly.
      try {
        const again = await this.#http.call("GET", `/v1/holds/${body.hold}`, { timeout: session.ttl / 3 });
        if (again.status === 404 || again.status === 410) return undefined;
        // A refusal leaves the hold where it is, and the next request would wait behind it: it is released.
        deadline = again.status === 200 ? Math.max(deadline, again.deadline) : 0;
      } catch (error) {
        if (!(error instanceof NoReply)) throw error;
      }
    }
    const tokens = new Map(body.tokens.map(({ name, token }) => [name, token]));
    const hold = new Hold(body.hold, body.mode, tokens, deadline, {
      release: (hold) => this.#release(session, hold),
      downgrade: (hold) => this.#downgrade(session, hold),
    });
    if (session.add(hold)) return hold;
    await session.discard(hold.id);
    return undefined;
  }

  async #release(session, hold) {
    session.remove(hold);
    const reply = await this.#untilReplied(session, hold, "DELETE", "");
    if (reply.status !== 204) throw reply.error();
  }

  async #downgrade(session, hold) {
    let reply = await this.#untilReplied(session, hold, "POST", "/downgrade");
    // The reply to an earlier try may have been lost.
    if (reply.code === "invalid") reply = await this.#untilReplied(session, hold, "GET", "");
    if (reply.code === "lost") hold.lose(reply.reason);
    if (reply.status !== 200) throw reply.error();
    if (reply.body.mode !== "shared") throw new Refused("only an exclusive hold can be downgraded", "invalid");
    hold.mode = "shared";
    hold.confirm(reply.deadline, reply.body.state === "uncertain");
  }

  async #untilReplied(session, hold, method, what) {
    for (;;) {
      try {
        return await this.#http.call(method, `/v1/holds/${hold.id}${what}`, { timeout: session.ttl / 3 });
      } catch (error) {
        if (!(error instanceof NoReply)) throw error;
        if (now() >= hold.deadline || session.isOver) {
          const detail = `no reply: ${error.message}. The lock is free at the latest after the TTL`;
          throw new Unavailable(detail, { cause: error });
        }
        await sleep(session.ttl / 100);
      }
    }
  }
}

// Keeps the program alive: somebody waits for what comes after it.
function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
