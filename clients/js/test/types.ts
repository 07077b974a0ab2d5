// A program as TypeScript sees it: this is checked against index.d.ts by `scripts/interop-server types`, and never runs.

import { Busy, Client, Closed, type Hold, LockError, type LockOptions, Lost, Refused, Unavailable } from "lockkeeper-client";

export async function first(): Promise<number> {
  await using client = new Client("http://127.0.0.1:7670");
  await using hold = await client.lock("orders/42");
  return hold.token;
}

export async function every(signal: AbortSignal): Promise<void> {
  const client = new Client("http://127.0.0.1:7670", { ttl: 10_000, holder: "checkout", token: "secret" });
  const options: LockOptions = { wait: 5000, lease: 60_000, signal };
  const held: Hold[] = [
    await client.lock(["a", "b"] as const, options),
    await client.read("a", options),
    await client.permits("pool", 2, { of: 8 }),
  ];
  const tried: Hold | undefined = await client.tryLock("a", { lease: 1000 });
  const done: string = await client.withLock("a", {}, async (hold) => `${hold.id} ${hold.mode} ${hold.tokens.get("a")}`);
  for (const hold of held) {
    hold.check();
    await fetch(done, { headers: { "x-token": String(hold.token) }, signal: hold.signal });
    if (hold.isLost || hold.state === "lost" || hold.validFor < 1000) await hold.downgrade();
    await hold.release();
  }
  await tried?.release();
  await client.close();
}

export function words(error: unknown): readonly string[] {
  if (error instanceof Busy) return error.holders;
  if (error instanceof Lost) return [error.reason];
  if (error instanceof Unavailable) return [error.code ?? ""];
  if (error instanceof Refused) return [error.code];
  return error instanceof Closed || error instanceof LockError ? [error.message] : [];
}

export async function mistakes(client: Client): Promise<void> {
  // @ts-expect-error a try does not wait
  await client.tryLock("a", { wait: 1 });
  // @ts-expect-error the number of permits is needed
  await client.permits("a", 1, {});
  // @ts-expect-error a name is a text
  await client.lock(1);
}
