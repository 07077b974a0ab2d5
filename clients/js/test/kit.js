// A real server for each test, and a proxy in front of it that breaks what it is told to break.

import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const BINARY =
  process.env.LOCKKEEPER_BINARY || fileURLToPath(new URL("../../../target/debug/lockkeeper", import.meta.url));

const PAGE = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Sign in</html>";

/** A reply as the server's to what it refuses. */
export function refusal(status, code) {
  const body = JSON.stringify({ status, code, detail: code });
  return `HTTP/1.1 ${status} Refused\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`;
}

/** A server of its own on a free port. */
export class Server {
  static async start(...options) {
    const server = new Server();
    const words = ["serve", "--listen", "127.0.0.1:0", "--engine", "memory:", ...options];
    server.process = spawn(BINARY, words, { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(createInterface(server.process.stdout), "line");
    server.url = line.replace("listening on ", "");
    server.port = Number(new URL(server.url).port);
    return server;
  }

  /** The claims of a lock, in order. */
  async claims(name) {
    return (await (await fetch(`${this.url}/v1/locks/${name}`)).json()).claims;
  }

  /** A request for a hold that no client knows of. */
  async ask(session, ...names) {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${this.url}/v1/holds`, { method: "POST", headers, body: JSON.stringify({ session, names }) });
    if (reply.status !== 201) throw new Error(await reply.text());
  }

  async evict(name) {
    const [{ id }] = await this.claims(name);
    await fetch(`${this.url}/v1/locks/${name}/claims/${id}`, { method: "DELETE" });
  }

  async waitForClaims(name, count) {
    await until(async () => (await this.claims(name)).length === count);
  }

  pause() {
    this.process.kill("SIGSTOP");
  }

  goOn() {
    this.process.kill("SIGCONT");
  }

  async kill() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill("SIGKILL");
    await once(this.process, "exit");
  }
}

export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Waits for something that no message tells of. */
export async function until(condition, milliseconds = 20_000) {
  const end = performance.now() + milliseconds;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error("it did not happen");
    await sleep(10);
  }
}

/** Resolves when the signal has fired, rejects if it does not in time. */
export function aborted(signal, milliseconds) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(() => reject(new Error("no signal")), milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Forwards connections to a server, until it is told otherwise. */
export class Proxy {
  #sockets = new Set();
  #isFrozen = false;
  #kept = [];
  /** The session that the client speaks of. */
  session;
  /** Replies to requests that begin with this text are lost with their connection, this many times, */
  loses = { text: undefined, times: 0 };
  lost = 0;
  /** or something else comes in their place, */
  replaces = { text: undefined, times: 0, by: PAGE };
  replaced = 0;
  /** or come late. */
  delays = { text: undefined, milliseconds: 0 };

  static async start(port) {
    const proxy = new Proxy();
    proxy.listener = net.createServer((client) => proxy.#join(client, net.connect(port, "127.0.0.1")));
    proxy.listener.listen(0, "127.0.0.1");
    await once(proxy.listener, "listening");
    proxy.url = `http://127.0.0.1:${proxy.listener.address().port}`;
    return proxy;
  }

  /** Keeps back all data, in both directions, and keeps the connections open. */
  freeze() {
    this.#isFrozen = true;
  }

  thaw() {
    this.#isFrozen = false;
    for (const go of this.#kept.splice(0)) go();
  }

  close() {
    this.listener.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(work) {
    if (this.#isFrozen) this.#kept.push(work);
    else work();
  }

  #join(client, server) {
    let asked = "";
    const end = () => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => {});
      socket.on("close", () => this.#pass(end));
    }
    client.on("data", (data) => {
      const text = data.toString("latin1");
      if (text.includes(" HTTP/1.1\r\n")) asked = text;
      this.session = /^POST \/v1\/sessions\/(.*)\/heartbeat /.exec(text)?.[1] ?? this.session;
      this.#pass(() => server.write(data));
    });
    server.on("data", (data) =>
      this.#pass(async () => {
        if (this.loses.times > 0 && asked.startsWith(this.loses.text)) {
          this.loses.times--;
          this.lost++;
          return end();
        }
        if (this.replaces.times > 0 && asked.startsWith(this.replaces.text)) {
          this.replaces.times--;
          this.replaced++;
          client.end(this.replaces.by ?? PAGE);
          return server.destroy();
        }
        if (this.delays.text !== undefined && asked.startsWith(this.delays.text)) await sleep(this.delays.milliseconds);
        client.write(data);
      }),
    );
  }
}
