/** Distributed locks over a `lockkeeper serve` server. Times are in milliseconds. */

/** Settings of a client. */
export interface ClientOptions {
  /** Milliseconds after which the server gives up a silent client; default 10 000. */
  ttl?: number;
  /** Name shown to operators as the holder; default the program's name. */
  holder?: string;
  /** The server's token for this client, if it asks for one. */
  token?: string;
}

/** How to wait for a lock. */
export interface LockOptions {
  /** Milliseconds to wait at most, after which `Busy` is thrown; 0 to try. Without it, as long as the server allows. */
  wait?: number;
  /** Milliseconds after which the hold ends by itself. */
  lease?: number;
  /** Gives up the wait. */
  signal?: AbortSignal;
}

/** One lock, or several as one: all or nothing. */
export type Names = string | readonly string[];

/** A process at a lockkeeper server, with a session of its own. */
export class Client implements AsyncDisposable {
  constructor(url: string, options?: ClientOptions);
  /** Waits for these locks and holds them exclusively. */
  lock(names: Names, options?: LockOptions): Promise<Hold>;
  /** Holds these locks if all of them are free. */
  tryLock(names: Names, options?: Omit<LockOptions, "wait">): Promise<Hold | undefined>;
  /** As `lock`, shared with other readers. */
  read(names: Names, options?: LockOptions): Promise<Hold>;
  /** As `lock`, for `count` of the `of` permits of a name. */
  permits(name: string, count: number, options: LockOptions & { of: number }): Promise<Hold>;
  /** Holds these locks while the work runs. Throws `Lost` at the end if they were lost meanwhile. */
  withLock<T>(names: Names, options: LockOptions, work: (hold: Hold) => T | Promise<T>): Promise<T>;
  /** Ends the session: all that it holds is released at once. Called when the program has nothing left to do, too. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A held lock. */
export interface Hold extends AsyncDisposable {
  readonly id: string;
  /** `exclusive`, `shared` or `2/4`. */
  readonly mode: string;
  /** Aborted with `Lost` when the hold is lost. */
  readonly signal: AbortSignal;
  /** Whether somebody else may hold the lock. Reads the clock, so it is right even while the server is silent. */
  readonly isLost: boolean;
  /** `uncertain`: the server or its engine does not reply; the hold is good until its deadline. */
  readonly state: "held" | "uncertain" | "lost" | "released";
  /** For how many milliseconds the hold may be trusted without another word from the server. */
  readonly validFor: number;
  /** The fencing token: larger than that of every earlier hold of this lock. Throws `Lost` if the hold is lost. */
  readonly token: number;
  /** The fencing token of each lock. Throws `Lost` if the hold is lost. */
  readonly tokens: Map<string, number>;
  /** Throws `Lost` if the hold is lost. */
  check(): void;
  /** Releases the locks, and waits until the server has done so. Throws `Lost` if they were lost before. */
  release(): Promise<void>;
  /** Makes an exclusive hold a shared one; no other writer comes between. */
  downgrade(): Promise<void>;
  /** The same as `release`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base of all errors of this package. */
export class LockError extends Error {}

/** The wait ended without a grant. */
export class Busy extends LockError {
  /** Who holds the locks. */
  readonly holders: string[];
}

/** The hold is lost: somebody else may hold the lock. Stop what it protects. */
export class Lost extends LockError {
  /** Why. */
  readonly reason: string;
}

/** The server or its engine did not reply. The same request may succeed later. */
export class Unavailable extends LockError {
  /** The server's word for it, if it said one. */
  readonly code?: string;
}

/** The server refused the request; sending it again does not help. */
export class Refused extends LockError {
  /** The server's word for it. */
  readonly code: string;
}

/** The client was closed. */
export class Closed extends LockError {}
