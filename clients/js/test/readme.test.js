// The examples of the pages run as they stand there, but for `await using`, which Node 20 does not know yet.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as lockkeeper from "../index.js";
import { Server } from "./kit.js";

const PAGES = ["clients/js/README.md", "docs/clients.md"];
const AsyncFunction = (async () => {}).constructor;

/** Runs an example with the names that it has from its surroundings, and returns what it tells of its hold. */
async function run(example, url, client) {
  const told = [];
  const names = {
    Client: lockkeeper.Client,
    console: { log: (...words) => told.push(words) },
    fetch: async (_, { headers, signal }) => told.push([headers["x-token"], signal.aborted]),
    store: "",
    ends: [],
  };
  const text = example
    .replace(/^import .* from "lockkeeper-client";$/m, "")
    .replaceAll("http://127.0.0.1:7670", url)
    .replace(/await using (\w+) = (.*);/g, "const $1 = $2; ends.push($1);");
  if (!text.includes("new Client")) names.client = client;
  try {
    await new AsyncFunction(...Object.keys(names), text)(...Object.values(names));
  } finally {
    for (const resource of names.ends.reverse()) await resource[Symbol.asyncDispose]();
  }
  return told;
}

test("every example runs", { timeout: 60_000 }, async () => {
  const server = await Server.start();
  const client = new lockkeeper.Client(server.url);
  try {
    for (const page of PAGES) {
      const text = readFileSync(new URL(`../../../${page}`, import.meta.url), "utf8");
      const examples = [...text.matchAll(/```(?:ts|js)\n(.*?)```/gs)].map(([, example]) => example);
      assert.ok(examples.length > 0, page);
      for (const example of examples) {
        assert.equal((await run(example, server.url, client)).length, 1, example);
        assert.deepEqual(await server.claims("orders/42"), [], "it has released");
      }
    }
  } finally {
    await client.close();
    await server.kill();
  }
});
