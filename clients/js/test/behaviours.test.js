// The shared list of behaviours (docs/clients.md).

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Busy, Client, Closed, Lost, Refused, Unavailable } from "../index.js";
import { now } from "../src/clock.js";
import { Hold } from "../src/hold.js";
import { BINARY, Proxy, Server, aborted, refusal, sleep, until } from "./kit.js";

/** A test with a server, and with clients and proxies that end with it. */
function behaviour(name, work) {
  test(name, { timeout: 60_000 }, async () => {
    const ends = [];
    const kit = {
      async start(...options) {
        const server = await Server.start(...options);
        ends.push(() => server.kill());
        return server;
      },
      client(options = {}) {
        const client = new Client(options.url ?? kit.server.url, { ttl: 30_000, ...options });
        ends.push(() => client.close());
        return client;
      },
      async proxy(server = kit.server) {
        const proxy = await Proxy.start(server.port);
        ends.push(() => proxy.close());
        return proxy;
      },
    };
    kit.server = await kit.start();
    try {
      await work(kit);
    } finally {
      for (const end of ends.reverse()) await end();
    }
  });
}

/** The moment at which a promise was fulfilled. */
async function timed(promise) {
  const value = await promise;
  return { value, at: now() };
}

behaviour("lock excludes and a release hands over", async ({ server, client }) => {
  const [a, b] = [client(), client()];
  const first = await a.lock("orders/42");
  assert.equal(first.state, "held");
  const token = first.token;
  const waiting = b.lock("orders/42");
  await server.waitForClaims("orders/42", 2);
  await first.release();
  assert.equal(first.state, "released");
  const second = await waiting;
  assert.ok(second.token > token);
  await second[Symbol.asyncDispose]();
  await server.waitForClaims("orders/42", 0);
});

behaviour("withLock releases at the end of the work, also after an error", async ({ server, client }) => {
  const a = client();
  assert.equal(await a.withLock("x", {}, (hold) => hold.token > 0), true);
  await assert.rejects(a.withLock("x", {}, () => Promise.reject(new RangeError("mine"))), RangeError);
  await server.waitForClaims("x", 0);
});

behaviour("try finds a held lock busy at once", async ({ client }) => {
  const [a, b] = [client({ holder: "the first" }), client()];
  const hold = await a.lock("x");
  assert.equal(await b.tryLock("x"), undefined);
  await assert.rejects(b.lock("x", { wait: 0 }), (error) => error instanceof Busy && error.holders[0].includes("the first"));
  await hold.release();
  await (await b.tryLock("x")).release();
});

behaviour("a timed wait ends busy and leaves the queue", async ({ server, client }) => {
  const [a, b] = [client(), client()];
  await a.lock("x");
  const began = now();
  await assert.rejects(b.lock("x", { wait: 500 }), Busy);
  assert.ok(now() - began >= 500);
  await server.waitForClaims("x", 1);
});

behaviour("readers share and a downgrade lets them in", async ({ client }) => {
  const [a, b] = [client(), client()];
  const reads = [await a.read("x"), await b.read("x", { wait: 0 })];
  assert.equal(await b.tryLock("x"), undefined);
  for (const read of reads) await read.release();
  const hold = await a.lock("x", { wait: 0 });
  await assert.rejects(b.read("x", { wait: 0 }), Busy);
  await hold.downgrade();
  assert.equal(hold.mode, "shared");
  await (await b.read("x", { wait: 0 })).release();
});

behaviour("permits are counted", async ({ client }) => {
  const [a, b] = [client(), client()];
  await a.permits("x", 2, { of: 3 });
  await b.permits("x", 1, { of: 3, wait: 0 });
  await assert.rejects(a.permits("x", 1, { of: 3, wait: 0 }), Busy);
});

behaviour("several locks are all or nothing", async ({ client }) => {
  const [a, b] = [client(), client()];
  const one = await a.lock("y");
  assert.equal(await b.tryLock(["x", "y"]), undefined);
  await (await a.lock("x", { wait: 0 })).release();
  await one.release();
  const both = await b.lock(["y", "x"], { wait: 0 });
  assert.deepEqual([...both.tokens.keys()].sort(), ["x", "y"]);
  assert.throws(() => both.token, TypeError);
});

behaviour("tokens grow", async ({ client }) => {
  const clients = [client(), client()];
  let last = 0;
  for (let turn = 0; turn < 20; turn++) {
    const hold = await clients[turn % 2].lock("x");
    assert.ok(hold.token > last);
    last = hold.token;
    await hold.release();
  }
});

behaviour("the first lock of the page works as it stands", async ({ server }) => {
  const root = new URL("../../../", import.meta.url);
  const [, code] = /```js\n(.*?)```/s.exec(readFileSync(new URL("docs/serve.md", root), "utf8"));
  assert.match(code, /http:\/\/127.0.0.1:7670/);
  const here = code
    .replace("http://127.0.0.1:7670", server.url)
    .replace('"lockkeeper-client"', JSON.stringify(new URL("clients/js/index.js", root)));
  const output = execFileSync(process.execPath, ["--input-type=module", "-e", here], { encoding: "utf8" });
  assert.match(output, /^held with token \d+\n$/);
});

behaviour("renewal keeps a hold and a wait over many TTLs", async ({ server, client }) => {
  const [a, b] = [client({ ttl: 2000 }), client({ ttl: 2000 })];
  const hold = await a.lock("x");
  const waiting = b.lock("x");
  await server.waitForClaims("x", 2);
  const place = (await server.claims("x"))[1].id;
  await assert.rejects(aborted(hold.signal, 7000), /no signal/);
  assert.equal(hold.state, "held");
  assert.equal((await server.claims("x"))[1].id, place, "it has kept its place");
  await hold.release();
  await (await waiting).release();
});

behaviour("a TTL longer than the engine's loses nothing", async ({ start, client }) => {
  const server = await start("--ttl", "2s");
  const hold = await client({ ttl: 60_000, url: server.url }).lock("x");
  await assert.rejects(aborted(hold.signal, 6000), /no signal/);
  await hold.release();
});

behaviour("a lease ends a hold", async ({ client }) => {
  const [a, b] = [client(), client()];
  const hold = await a.lock("x", { lease: 500 });
  const lost = aborted(hold.signal, 5000);
  // By the clock: the signal and the grant may come to a busy event loop in one turn.
  assert.ok(await b.lock("x").then(() => hold.isLost));
  await lost;
});

behaviour("lost before regrant when the server is paused", async ({ server, client }) => {
  const [a, b] = [client({ ttl: 1000 }), client()];
  const hold = await a.lock("x");
  const waiting = b.lock("x");
  await server.waitForClaims("x", 2);
  server.pause();
  // The deadline comes without a word from the server.
  await aborted(hold.signal, 2000).finally(() => server.goOn());
  assert.equal(hold.state, "lost");
  await (await waiting).release();
});

behaviour("lost before regrant when the network is cut", async ({ server, client, proxy }) => {
  const between = await proxy();
  const [a, b] = [client({ ttl: 3000, url: between.url }), client()];
  const hold = await a.lock("x");
  const lost = timed(aborted(hold.signal, 30_000));
  const granted = timed(b.lock("x"));
  await server.waitForClaims("x", 2);
  // Some heartbeats have come and gone: the deadline is a moved one.
  await assert.rejects(aborted(hold.signal, 2500), /no signal/);
  between.freeze();
  assert.ok((await lost).at < (await granted).at);
  between.thaw();
  assert.ok(hold.isLost, "what was lost stays lost");
});

test("a late confirmation revives nothing", () => {
  const hold = new Hold("h", "exclusive", new Map([["x", 1]]), now(), {});
  hold.confirm(now() + 60_000, false);
  assert.equal(hold.isLost, true);
});

behaviour("the deadline counts from the send", async ({ client, proxy }) => {
  const between = await proxy();
  const a = client({ ttl: 4000, url: between.url });
  await (await a.lock("first")).release();
  between.delays = { text: "POST /v1/holds ", milliseconds: 1000 };
  const hold = await a.lock("x");
  assert.ok(hold.validFor < 3000);
});

behaviour("a release after the loss says so and the client goes on", async ({ server, client }) => {
  const a = client({ ttl: 500 });
  const hold = await a.lock("x");
  server.pause();
  await aborted(hold.signal, 5000).finally(() => server.goOn());
  assert.ok(hold.signal.reason instanceof Lost);
  assert.throws(() => hold.token, Lost);
  await assert.rejects(hold.release(), Lost);
  await assert.rejects(hold[Symbol.asyncDispose](), Lost);
  await (await a.lock("x", { wait: 10_000 })).release();
});

behaviour("a retry after a lost reply finds the same", async ({ server, client, proxy }) => {
  const between = await proxy();
  const a = client({ url: between.url });
  between.loses = { text: "POST /v1/sessions ", times: 1 };
  await (await a.lock("first")).release();
  between.loses = { text: "POST /v1/holds ", times: 2 };
  const hold = await a.lock("x", { wait: 5000 });
  assert.deepEqual((await server.claims("x")).map((claim) => claim.token), [hold.token]);
  between.loses = { text: "DELETE ", times: 1 };
  await hold.release();
  assert.equal(between.lost, 4);
  await server.waitForClaims("x", 0);
});

behaviour("a hold that no client knows of is released", async ({ client, proxy }) => {
  const between = await proxy();
  const [a, b] = [client({ ttl: 1000, url: between.url }), client()];
  await (await a.lock("first")).release();
  between.loses = { text: "POST /v1/holds ", times: 1000 };
  await assert.rejects(a.lock("x", { wait: 0 }), Unavailable);
  assert.ok(between.lost > 0);
  await (await b.lock("x", { wait: 10_000 })).release();
});

behaviour("a hold of a late copy is released", async ({ server, client, proxy }) => {
  const between = await proxy();
  const a = client({ ttl: 1500, url: between.url });
  const hold = await a.lock("mine");
  await until(() => between.session !== undefined);
  await server.ask(between.session, "x");
  assert.equal((await server.claims("x")).length, 1);
  await server.waitForClaims("x", 0);
  assert.equal(hold.state, "held", "it was not the session that ended");
});

behaviour("a reply of somebody else is no reply", async ({ server, client, proxy }) => {
  const between = await proxy();
  const a = client({ ttl: 3000, url: between.url });
  between.replaces = { text: "POST ", times: 1 };
  await (await a.lock("first")).release();
  assert.equal(between.replaced, 1, "it has opened its session after all");
  between.replaces = { text: "POST /v1/holds ", times: 2 };
  const hold = await a.lock("x", { wait: 5000 });
  assert.deepEqual((await server.claims("x")).map((claim) => claim.token), [hold.token]);
  between.replaces = { text: "POST /v1/sessions/", times: 2 };
  await until(() => between.replaced === 5);
  await assert.rejects(aborted(hold.signal, 5000), /no signal/);
  assert.equal(hold.state, "held", "heartbeats go on");
  between.replaces = { text: "DELETE ", times: 1 };
  await hold.release();
  assert.equal(between.replaced, 6);
  await server.waitForClaims("x", 0);
});

behaviour("a reply that leaves little time is asked for again", async ({ start, client, proxy }) => {
  const between = await proxy(await start("--ttl", "2s"));
  const a = client({ url: between.url });
  await (await a.lock("first")).release();
  between.delays = { text: "POST ", milliseconds: 1200 };
  const hold = await a.lock("x");
  assert.ok(hold.validFor > 1000, "the short request tells more");
});

behaviour("a grant that cannot be looked at is released", async ({ start, client, proxy }) => {
  const server = await start("--ttl", "2s");
  const between = await proxy(server);
  const a = client({ url: between.url });
  await (await a.lock("first")).release();
  between.delays = { text: "POST ", milliseconds: 1200 };
  between.replaces = { text: "GET ", times: 1, by: refusal(503, "ending") };
  const hold = await a.lock("x", { wait: 5000 });
  assert.deepEqual((await server.claims("x")).map((claim) => claim.token), [hold.token]);
  assert.equal(between.replaced, 1);
});

behaviour("a request that was too slow may be repeated", async ({ client, proxy }) => {
  const between = await proxy();
  const a = client({ url: between.url });
  await (await a.lock("first")).release();
  between.replaces = { text: "POST /v1/holds ", times: 1, by: refusal(408, "too_slow") };
  await assert.rejects(a.lock("x"), (error) => error instanceof Unavailable && error.code === "too_slow");
});

behaviour("an evicted hold is lost with the next heartbeat", async ({ start, client }) => {
  // The server itself learns of it when it renews.
  const server = await start("--ttl", "1s");
  const hold = await client({ ttl: 1000, url: server.url }).lock("x");
  await server.evict("x");
  await aborted(hold.signal, 5000);
  assert.equal(hold.signal.reason.reason, "gone");
});

behaviour("the end of the session releases at once and ends its waits", async ({ server, client }) => {
  const [a, b, c] = [client(), client(), client()];
  await a.lock("x");
  const waiting = [b.lock("x"), c.lock("x")];
  await server.waitForClaims("x", 3);
  await Promise.all([b.close(), assert.rejects(waiting[0], Closed)]);
  await a.close();
  await (await waiting[1]).release();
  await assert.rejects(a.lock("x"), Closed);
});

behaviour("the end of the program releases at once", async ({ server, client }) => {
  const index = fileURLToPath(new URL("../index.js", import.meta.url));
  const program = `import { Client } from ${JSON.stringify(index)};
    await new Client(process.argv[1], { ttl: 30000 }).lock("x");
    console.log("held");
    process.stdin.once("data", () => process.stdin.destroy());`;
  const words = ["--input-type=module", "-e", program, server.url];
  const child = spawn(process.execPath, words, { stdio: ["pipe", "pipe", "inherit"] });
  assert.deepEqual(await once(createInterface(child.stdout), "line"), ["held"]);
  const waiting = client().lock("x", { wait: 10_000 });
  await server.waitForClaims("x", 2);
  child.stdin.write("end\n");
  await (await waiting).release();
});

behaviour("a killed server is learned by the deadline", async ({ server, client }) => {
  const [a, b] = [client({ ttl: 1000 }), client({ ttl: 1000 })];
  const hold = await a.lock("x");
  const waiting = assert.rejects(b.lock("x"), Unavailable);
  await server.waitForClaims("x", 2);
  await until(() => hold.validFor > 500);
  await server.kill();
  assert.equal(hold.isLost, false, "a broken connection alone loses nothing");
  await aborted(hold.signal, 2000);
  await assert.rejects(a.lock("x"), Unavailable);
  await waiting;
});

behaviour("bad input is refused", async ({ server, client }) => {
  await assert.rejects(client().lock(""), (error) => error instanceof Refused && error.code === "invalid");
  await assert.rejects(client().lock([]), Refused);
  await assert.rejects(client({ ttl: 10 }).lock("x"), Refused);
  assert.throws(() => new Client(server.url.replace("http://", "")), TypeError);
});

behaviour("many callers share a client", async ({ client }) => {
  const a = client();
  let inside = 0;
  const work = async () => {
    for (let turn = 0; turn < 5; turn++) {
      await a.withLock("x", {}, async () => {
        assert.equal(++inside, 1);
        await sleep(1);
        inside--;
      });
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
});

behaviour("a cancelled wait leaves the queue", async ({ server, client }) => {
  const [a, b] = [client(), client()];
  await a.lock("x");
  const controller = new AbortController();
  const waiting = b.lock("x", { signal: controller.signal });
  await server.waitForClaims("x", 2);
  const began = now();
  controller.abort(new RangeError("enough"));
  await assert.rejects(waiting, RangeError);
  await server.waitForClaims("x", 1);
  // The server alone would keep the wait for five seconds.
  assert.ok(now() - began < 4000);
});

behaviour("a token is sent", async ({ start, client }) => {
  const [token, line] = execFileSync(BINARY, ["serve", "--new-token", "ci"], { encoding: "utf8" })
    .trim()
    .split("\n")
    .map((text) => text.slice(text.indexOf(": ") + 2));
  const folder = mkdtempSync(join(tmpdir(), "lockkeeper-"));
  try {
    writeFileSync(join(folder, "tokens"), `${line}\n`);
    const server = await start("--tokens", join(folder, "tokens"));
    await assert.rejects(client({ url: server.url }).lock("x"), (error) => error.code === "no_token");
    await (await client({ url: server.url, token }).lock("x")).release();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
