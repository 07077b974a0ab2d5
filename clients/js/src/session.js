// A session at the server: its heartbeats, its holds, and the deadlines of both.

import { LONGEST_SLEEP_MS, later, now } from "./clock.js";
import { NoReply } from "./errors.js";

export class Session {
  #http;
  #deadline;
  #isEnded = false;
  #beat;
  #timer;
  // Holds that the last heartbeat listed and this client knows nothing of: the reply that told of them was lost.
  #unknown = new Set();
  #givenUp = new Set();
  #holds = new Map();

  constructor(http, reply) {
    this.#http = http;
    this.id = reply.body.session;
    this.ttl = reply.body.ttl_ms;
    // How long after one heartbeat the next is sent; no deadline goes beyond the TTL at the server's engine.
    this.heartbeat = reply.body.heartbeat_ms;
    this.#deadline = reply.deadline;
    this.#beat = later(this.heartbeat, () => this.#heartbeat());
    this.#watch();
  }

  get isOver() {
    if (!this.#isEnded && now() >= this.#deadline) this.end("deadline");
    return this.#isEnded;
  }

  /** It has ended, and all that it held is lost. */
  end(reason) {
    for (const hold of this.stop()) hold.lose(reason);
  }

  /** Stops its heartbeats. Returns what it held. */
  stop() {
    this.#isEnded = true;
    clearTimeout(this.#beat);
    clearTimeout(this.#timer);
    const holds = [...this.#holds.values()];
    this.#holds.clear();
    return holds;
  }

  /** Takes a hold in, unless it was given up. */
  add(hold) {
    if (this.isOver || this.#givenUp.has(hold.id) || now() >= hold.deadline) return false;
    this.#holds.set(hold.id, hold);
    this.#watch();
    return true;
  }

  remove(hold) {
    this.#holds.delete(hold.id);
  }

  /** Fires the lost signals whose time has come, and waits for the next. Apart from the heartbeats, which may hang. */
  #watch() {
    clearTimeout(this.#timer);
    if (this.isOver) return;
    let next = this.#deadline;
    for (const hold of this.#holds.values()) {
      if (hold.isLost) this.#holds.delete(hold.id);
      else next = Math.min(next, hold.deadline);
    }
    // Rounded up: a timer that comes just before the deadline would come once more at once.
    this.#timer = later(Math.min(LONGEST_SLEEP_MS, Math.ceil(next - now())), () => this.#watch());
  }

  async #heartbeat() {
    const pause = await this.#beatOnce();
    if (!this.isOver) this.#beat = later(pause, () => this.#heartbeat());
  }

  /** Sends a heartbeat. Returns how long to wait before the next. */
  async #beatOnce() {
    if (this.isOver) return 0;
    const known = new Set(this.#holds.keys());
    let reply;
    try {
      reply = await this.#http.call("POST", `/v1/sessions/${this.id}/heartbeat`, { timeout: this.heartbeat });
    } catch (error) {
      if (!(error instanceof NoReply)) throw error;
      for (const hold of this.#holds.values()) hold.doubt();
      return this.heartbeat / 6;
    }
    if (reply.saysSessionEnded) this.end(reply.reason);
    if (this.isOver) return 0;
    if (reply.status !== 200) return this.heartbeat / 3;
    await Promise.all(this.#confirm(reply, known).map((orphan) => this.discard(orphan)));
    return Math.max(0, reply.sent + this.heartbeat - now());
  }

  /** Takes over what a heartbeat's reply says. Returns the holds that nobody here has or waits for. */
  #confirm(reply, known) {
    const listed = new Map(reply.body.holds.map((hold) => [hold.hold, hold]));
    this.#deadline = Math.max(this.#deadline, reply.deadline);
    for (const [id, hold] of this.#holds) {
      const said = listed.get(id);
      if (said !== undefined && said.state !== "lost") {
        hold.confirm(reply.sent + said.valid_for_ms, said.state === "uncertain");
      } else if (said !== undefined || known.has(id)) {
        hold.lose(said?.reason ?? "gone");
      }
      if (hold.isLost) this.#holds.delete(id);
    }
    // One that is listed twice, a third of the TTL apart, and unknown: its reply was lost, or its caller gave up.
    const unknown = [...listed.keys()].filter((id) => !this.#holds.has(id));
    const orphans = unknown.filter((id) => this.#unknown.has(id));
    this.#unknown = new Set(unknown.filter((id) => !orphans.includes(id)));
    for (const id of orphans) this.#givenUp.add(id);
    return orphans;
  }

  /** Releases a hold that nobody here has. */
  discard(id) {
    return quietly(this.#http, `/v1/holds/${id}`, this.ttl / 3);
  }

  /** Takes back a request for a hold: its wait ends, its hold is released. */
  takeBack(key) {
    return quietly(this.#http, `/v1/sessions/${this.id}/requests/${key}`, this.ttl / 3);
  }
}

/** Deletes what ends by itself, later, if the request gets lost. */
export async function quietly(http, path, timeout) {
  for (let tries = 0; tries < 2; tries++) {
    try {
      return void (await http.call("DELETE", path, { timeout }));
    } catch (error) {
      if (!(error instanceof NoReply)) throw error;
    }
  }
}
