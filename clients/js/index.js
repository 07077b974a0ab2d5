// Distributed locks over a `lockkeeper serve` server. Times are in milliseconds.

export { Client } from "./src/client.js";
export { Busy, Closed, LockError, Lost, Refused, Unavailable } from "./src/errors.js";
