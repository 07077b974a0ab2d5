// What can go wrong, one class for each thing that a caller does about it.

export class LockError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

export class Busy extends LockError {
  constructor(message, holders) {
    super(message);
    this.holders = holders;
  }
}

export class Lost extends LockError {
  constructor(message, reason) {
    super(message);
    this.reason = reason;
  }
}

export class Unavailable extends LockError {
  constructor(message, { code, cause } = {}) {
    super(message, { cause });
    this.code = code;
  }
}

export class Refused extends LockError {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

export class Closed extends LockError {
  constructor() {
    super("the client was closed: make a new one");
  }
}

/** A request without a reply: it may have been done or not. Not seen by callers. */
export class NoReply extends Error {
  constructor(cause, timedOut) {
    super(cause?.cause?.message || cause?.message || String(cause), { cause });
    this.timedOut = timedOut;
  }
}
