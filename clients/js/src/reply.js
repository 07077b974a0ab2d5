// Requests and replies: how they are sent, and what a reply means.

import { now } from "./clock.js";
import { Busy, Lost, NoReply, Refused, Unavailable } from "./errors.js";

// The server's and the client's clocks may go at slightly different rates.
const RATE = 0.99;

/** A reply, with the moment before its request was sent: what it says about time counts from there (Law 5). */
export class Reply {
  constructor(sent, status, body) {
    this.sent = sent;
    this.status = status;
    this.body = body;
    this.code = body.code;
  }

  get deadline() {
    return this.sent + RATE * (this.body.waited_ms ?? 0) + this.body.valid_for_ms;
  }

  get reason() {
    return this.body.reason ?? this.code;
  }

  get saysSessionEnded() {
    return this.code === "unknown_session" || this.code === "session_ended";
  }

  error() {
    const detail = this.body.detail ?? `the server replied with status ${this.status}`;
    if (this.code === "busy") return new Busy(detail, (this.body.busy ?? []).flatMap((lock) => lock.holders));
    if (this.code === "lost" || this.saysSessionEnded) return new Lost(detail, this.reason);
    if (this.status === 408 || this.status === 429 || this.status >= 500) return new Unavailable(detail, { code: this.code });
    return new Refused(detail, this.code);
  }
}

/** Sends requests to one server. */
export class Http {
  #base;
  #headers = { accept: "application/json" };

  constructor(url, token) {
    const base = URL.canParse(url) ? new URL(url) : undefined;
    if (base === undefined || !["http:", "https:"].includes(base.protocol)) {
      throw new TypeError(`'${url}' is no address of a server: write it as http://127.0.0.1:7670`);
    }
    this.#base = base.href.replace(/\/$/, "");
    if (token !== undefined) this.#headers.authorization = `Bearer ${token}`;
  }

  /** Sends a request and waits for its reply. Throws `NoReply` if there is none, and the reason of the signal if it fires. */
  async call(method, path, { timeout, body, key, signal }) {
    const headers = { ...this.#headers };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (key !== undefined) headers["idempotency-key"] = key;
    const timedOut = AbortSignal.timeout(Math.max(1, Math.ceil(timeout)));
    const either = signal === undefined ? timedOut : AbortSignal.any([timedOut, signal]);
    const sent = now();
    try {
      const response = await fetch(this.#base + path, { method, headers, body: JSON.stringify(body), signal: either });
      return new Reply(sent, response.status, parse(response.status, await response.text()));
    } catch (error) {
      signal?.throwIfAborted();
      throw new NoReply(error, timedOut.aborted);
    }
  }
}

/** The body of a reply. Throws if it is not the server's, but that of a proxy or a sign-in page. */
function parse(status, text) {
  if (status === 204) return {};
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    // Not the server's, which follows from its missing marks.
  }
  const isGrant = typeof body?.session === "string" && typeof body.valid_for_ms === "number";
  const isServers = status === 200 || status === 201 ? isGrant : typeof body?.code === "string";
  if (!isServers) throw new Error(`a reply with status ${status} that is not of a lockkeeper server`);
  return body;
}
