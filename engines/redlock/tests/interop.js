// Raises a counter in a file under node-redlock's lock: interop.js PORTS LOCK FILE TIMES.
const fs = require("fs");
const Redis = require("ioredis");
const Redlock = require("redlock");

const [ports, lock, path, times] = process.argv.slice(2);
const servers = ports.split(",").map((port) => new Redis({ port: Number(port), host: "127.0.0.1" }));
const redlock = new Redlock(servers, { retryCount: -1, retryDelay: 5, retryJitter: 10 });

async function main() {
  for (let i = 0; i < Number(times); i++) {
    const held = await redlock.lock(lock, 10000);
    const number = Number(fs.readFileSync(path, "utf8"));
    fs.writeFileSync(path, String(number + 1));
    await held.unlock();
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
