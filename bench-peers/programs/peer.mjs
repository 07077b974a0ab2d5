// Locks by node-redlock, as lines on standard input say: THREAD VERB NAME …; see the README.
//
//   peer.mjs HOST:PORT TTL_MS
//
// A lock is a routine of redlock's `using`, which renews it and aborts a signal when it cannot.

import { createInterface } from "node:readline";
import Redis from "ioredis";
import redlock from "redlock";

const [host, ttl] = [process.argv[2], Number(process.argv[3])];
const client = new Redis(`redis://${host}`);
client.on("error", () => {});
const Redlock = redlock.default ?? redlock;
const manager = new Redlock([client], { automaticExtensionThreshold: Math.min(500, ttl / 2) });
manager.on("error", () => {});

const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

// Runs until it is let go; resolves when the lock is held.
function lock(thread, name, retryCount) {
  return new Promise((resolve, reject) => {
    let release;
    const released = new Promise((end) => (release = end));
    const routine = async (signal) => {
      signal.addEventListener("abort", () => say(thread, "lost!"));
      resolve({ signal, release: () => (release(), ended) });
      await released;
    };
    const ended = manager.using([name], ttl, { retryCount }, routine);
    ended.catch(reject);
  });
}

const threads = new Map();

async function run(thread, own, [verb, name, limit]) {
  switch (verb) {
    case "lock":
    case "token":
      own.held = await lock(thread, name, -1);
      return verb === "lock" ? "locked" : "token";
    case "wait":
      // It gives up by a number of tries; one takes 200 ms and up to 100 more.
      try {
        own.held = await lock(thread, name, Math.max(1, Math.round(Number(limit) / 250)));
        return "locked";
      } catch {
        return "gave-up";
      }
    case "held":
      return own.held.signal.aborted ? "lost" : "held";
    case "unlock":
      await own.held.release();
      return "unlocked";
    default:
      throw new Error(`unknown verb ${verb}`);
  }
}

say("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [thread, ...words] = line.split(" ");
  const own = threads.get(thread) ?? { last: Promise.resolve() };
  threads.set(thread, own);
  own.last = own.last.then(async () => {
    try {
      say(thread, await run(thread, own, words));
    } catch (error) {
      say(thread, "failed", String(error.message).replaceAll("\n", " "));
    }
  });
}
process.exit(0);
