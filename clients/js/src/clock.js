// The clock that deadlines are measured on, and timers that keep no program alive.

import { uptime } from "node:os";

// Node's clock stands still while the machine is suspended; that of `uptime` goes on, in coarser steps. Their difference grows
// by a suspend alone, so the largest that was seen is the best known. It is read first: a delay between the two then makes it
// too small, which the next reading mends.
let difference = -Infinity;

/** Milliseconds since some moment in the past. */
export function now() {
  const coarse = uptime() * 1000;
  const fine = performance.now();
  difference = Math.max(difference, coarse - fine);
  return fine + difference;
}

/** The longest sleep of those who wait for a deadline: timers do not count the time that the machine is suspended. */
export const LONGEST_SLEEP_MS = 500;

/** A timer that does not keep the program alive. */
export function later(milliseconds, work) {
  return setTimeout(work, milliseconds).unref();
}
