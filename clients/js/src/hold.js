// A hold as the client sees it: whether it may be trusted, and until when.

import { now } from "./clock.js";
import { Lost } from "./errors.js";

export class Hold {
  #tokens;
  #deadline;
  #lost;
  #released = false;
  #uncertain = false;
  #controller = new AbortController();
  #release;
  #downgrade;

  constructor(id, mode, tokens, deadline, { release, downgrade }) {
    this.id = id;
    this.mode = mode;
    this.#tokens = tokens;
    this.#deadline = deadline;
    this.#release = release;
    this.#downgrade = downgrade;
  }

  get signal() {
    return this.#controller.signal;
  }

  // Reads the clock, so it is right even while the server is silent.
  get isLost() {
    if (this.#lost === undefined && !this.#released && now() >= this.#deadline) this.lose("deadline");
    return this.#lost !== undefined;
  }

  get state() {
    if (this.isLost) return "lost";
    return this.#released ? "released" : this.#uncertain ? "uncertain" : "held";
  }

  get validFor() {
    return this.isLost || this.#released ? 0 : Math.max(0, this.#deadline - now());
  }

  check() {
    if (this.isLost) throw this.#lost;
  }

  get tokens() {
    this.check();
    return new Map(this.#tokens);
  }

  get token() {
    const tokens = this.tokens;
    if (tokens.size !== 1) throw new TypeError("the hold has several locks: use tokens.get(name)");
    return tokens.values().next().value;
  }

  async release() {
    if (this.#released) return;
    this.check();
    this.#released = true;
    await this.#release(this);
  }

  async downgrade() {
    this.check();
    await this.#downgrade(this);
  }

  // A hold that was lost says so at the end of its block, unless an error of the block says more.
  async [Symbol.asyncDispose]() {
    await this.release();
  }

  // What follows is for the client alone.

  get deadline() {
    return this.#deadline;
  }

  get isReleased() {
    return this.#released;
  }

  confirm(deadline, uncertain) {
    // Law 2: what was lost stays lost, also if a late reply says otherwise.
    if (this.isLost) return;
    this.#deadline = Math.max(this.#deadline, deadline);
    this.#uncertain = uncertain;
  }

  doubt() {
    this.#uncertain = true;
  }

  lose(reason) {
    if (this.#lost !== undefined || this.#released) return;
    const names = [...this.#tokens.keys()].join(", ");
    const what = "stop what the lock protects, somebody else may hold it";
    this.#lost = new Lost(`the hold of ${names} is lost (${reason}): ${what}`, reason);
    this.#controller.abort(this.#lost);
  }

  forget() {
    if (!this.isLost) this.#released = true;
  }
}
