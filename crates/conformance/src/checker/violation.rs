//! What can be wrong with a history.

/// One broken promise. Its `Display` tells the story. Times are those of the history's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The moment at which the promise was certainly broken.
    pub at_ns: u64,
    /// The lock it happened to.
    pub lock: u32,
    /// The claim it shows at: the newcomer, the later grant, the one overtaken, released or stuck.
    pub party: Party,
    /// What happened.
    pub breach: Breach,
}

/// A claim and the client that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    /// The claim's id.
    pub claim: u128,
    /// The client's number.
    pub client: u32,
}

/// A claim that was granted, and how long its client believed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who held.
    pub owner: Party,
    /// With which token.
    pub token: u64,
    /// How much of the limit.
    pub weight: u32,
    /// When the grant's reply arrived.
    pub from_ns: u64,
    /// When the client stopped believing: release, lost signal or deadline.
    pub until_ns: u64,
}

/// The promises, by what they protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Each claim's own story makes sense.
    Claim,
    /// Holds fit the limit.
    Exclusion,
    /// Tokens are unique and grow.
    Token,
    /// First come, first served.
    Order,
    /// Only the owner releases, once, and only what it holds.
    Release,
    /// Nobody waits at a free lock.
    Liveness,
    /// The resource accepts growing tokens only.
    Effect,
}

/// How the history proves that one grant came before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRule {
    /// The two exclude each other, and the hold of the first ended before the second's began.
    HeldBefore,
    /// The first one's reply arrived before the second one asked.
    RepliedBefore,
}

/// What happened, with the others who had a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// A claim was granted that had not asked.
    GrantedUnasked,
    /// One claim was granted twice, with two tokens.
    GrantedTwice {
        /// The token of the first grant.
        first_token: u64,
        /// The token of the second.
        second_token: u64,
    },
    /// A claim was granted after it had been cancelled or had expired.
    GrantedAfterDeath {
        /// When it was cancelled or expired.
        died_at_ns: u64,
    },
    /// More was held at once than the limit allows.
    Overlap {
        /// Whose grant was too much.
        newcomer: Holder,
        /// Who held already; the oldest few.
        beside: Vec<Holder>,
        /// How much was held in all.
        held: u64,
        /// How much may be held.
        limit: u32,
    },
    /// Two claims held at once that do not agree on the limit.
    MixedLimits {
        /// Who came later.
        newcomer: Holder,
        /// What it takes the limit to be.
        newcomer_limit: u32,
        /// Who held for the longest.
        oldest: Holder,
        /// What that one takes the limit to be.
        oldest_limit: u32,
    },
    /// Two grants came with the same token.
    DuplicateToken {
        /// Who was given the token first.
        first: Holder,
        /// Who was given it again.
        second: Holder,
    },
    /// A later grant came with a smaller token.
    TokenWentBack {
        /// Whose token is larger.
        earlier: Holder,
        /// Whose token should have been.
        later: Holder,
        /// Why the one came before the other.
        rule: TokenRule,
    },
    /// A claim that had its place was made to wait for one that asked later.
    Overtaken {
        /// Who had to wait.
        overtaken: Holder,
        /// Since when it had its place.
        queued_at_ns: u64,
        /// Who was first to pass it.
        by: Holder,
        /// When that one asked.
        by_invoked_at_ns: u64,
        /// How much was held while it waited.
        held: u64,
        /// How much may be held.
        limit: u32,
    },
    /// Somebody else was told that it released the claim.
    ReleasedByStranger {
        /// The client that is not the owner.
        stranger: u32,
    },
    /// A claim was released that was never granted.
    ReleasedUnheld,
    /// A claim was released more than once.
    ReleasedTwice {
        /// When it was released first.
        first_at_ns: u64,
    },
    /// A claim was 'released' when the lock had already passed on to another.
    ReleasedAfterSuccessor {
        /// When the release was sent.
        invoked_at_ns: u64,
        /// Who released what it had already lost.
        stale: Holder,
        /// Who had the lock by then.
        successor: Holder,
    },
    /// A claim waited for longer than the bound while the lock was free.
    StuckWaiter {
        /// When it asked.
        invoked_at_ns: u64,
        /// Since when it waited for nobody.
        free_from_ns: u64,
    },
    /// A claim was still waiting when the history ended.
    NeverEnded {
        /// When it asked.
        invoked_at_ns: u64,
    },
    /// The resource accepted a token smaller than one it had accepted before.
    StaleEffect {
        /// The stale token.
        token: u64,
        /// The largest token accepted before.
        highest_token: u64,
        /// Who had come with that one.
        highest: Party,
    },
}

impl Violation {
    /// The promise that is broken.
    pub fn rule(&self) -> Rule {
        use Breach::*;
        match self.breach {
            GrantedUnasked | GrantedTwice { .. } | GrantedAfterDeath { .. } => Rule::Claim,
            Overlap { .. } | MixedLimits { .. } => Rule::Exclusion,
            DuplicateToken { .. } | TokenWentBack { .. } => Rule::Token,
            Overtaken { .. } => Rule::Order,
            ReleasedByStranger { .. }
            | ReleasedUnheld
            | ReleasedTwice { .. }
            | ReleasedAfterSuccessor { .. } => Rule::Release,
            StuckWaiter { .. } | NeverEnded { .. } => Rule::Liveness,
            StaleEffect { .. } => Rule::Effect,
        }
    }

    /// By time, so that a report reads as a story; then by what keeps it the same from run to run.
    pub(super) fn place_in_report(&self) -> (u64, u32, Rule, Party) {
        (self.at_ns, self.lock, self.rule(), self.party)
    }
}
