//! Tells violations so that a reader sees what happened, to whom, and when.

use std::fmt::{self, Display, Formatter};

use super::violation::{Breach, Holder, Party, TokenRule, Violation};

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Violation { at_ns, lock, party, breach } = self;
        write!(formatter, "lock {lock}, at {}: ", Moment(*at_ns))?;
        match breach {
            Breach::GrantedUnasked => write!(formatter, "{party} was granted without having asked"),
            Breach::GrantedTwice { first_token, second_token } => {
                write!(formatter, "{party} was granted twice, with token {first_token} and {second_token}")
            }
            Breach::GrantedAfterDeath { died_at_ns } => {
                let died = Moment(*died_at_ns);
                write!(formatter, "{party} was granted although it was cancelled or expired at {died}")
            }
            Breach::Overlap { newcomer, beside, held, limit } => {
                write!(formatter, "{newcomer} was granted {}", Beside(beside))?;
                write!(formatter, "{held} are held, but the limit is {limit}")
            }
            Breach::MixedLimits { newcomer, newcomer_limit, oldest, oldest_limit } => {
                write!(formatter, "{newcomer} takes the limit to be {newcomer_limit}, ")?;
                write!(formatter, "beside {oldest}, for whom it is {oldest_limit}")
            }
            Breach::DuplicateToken { first, second } => {
                write!(formatter, "{second} was given the token of {first}")
            }
            Breach::TokenWentBack { earlier, later, rule } => {
                write!(formatter, "{later} was given a smaller token than {earlier}, {rule}")
            }
            Breach::Overtaken { overtaken, queued_at_ns, by, by_invoked_at_ns, held, limit } => {
                let (queued, invoked) = (Moment(*queued_at_ns), Moment(*by_invoked_at_ns));
                write!(formatter, "{overtaken}, queued since {queued}, was overtaken by {by}, ")?;
                write!(formatter, "who asked at {invoked}; {held} of {limit} are held, and leave it no room")
            }
            Breach::ReleasedByStranger { stranger } => {
                write!(formatter, "client {stranger} was told that it released {party}")
            }
            Breach::ReleasedUnheld => write!(formatter, "{party} was released, but was never granted"),
            Breach::ReleasedTwice { first_at_ns } => {
                write!(formatter, "{party} was released again; it was released at {}", Moment(*first_at_ns))
            }
            Breach::ReleasedAfterSuccessor { invoked_at_ns, stale, successor } => {
                write!(formatter, "{stale} sent its release at {} and was told ", Moment(*invoked_at_ns))?;
                write!(formatter, "'released', but the lock had passed to {successor}")
            }
            Breach::StuckWaiter { invoked_at_ns, free_from_ns } => {
                let (invoked, free) = (Moment(*invoked_at_ns), Moment(*free_from_ns));
                write!(formatter, "{party}, who asked at {invoked}, still waited; nobody held since {free}")
            }
            Breach::NeverEnded { invoked_at_ns } => {
                write!(formatter, "{party}, who asked at {}, waits to the end", Moment(*invoked_at_ns))
            }
            Breach::StaleEffect { token, highest_token, highest } => {
                write!(formatter, "the resource accepted {party} with token {token}, ")?;
                write!(formatter, "after {highest} with token {highest_token}")
            }
        }
    }
}

impl Display for Party {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "claim {:x} of client {}", self.claim, self.client)
    }
}

impl Display for Holder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Holder { owner, token, weight, from_ns, until_ns } = self;
        let (from, until) = (Moment(*from_ns), Moment(*until_ns));
        write!(formatter, "{owner} (token {token}, weight {weight}, held from {from} to {until})")
    }
}

impl Display for TokenRule {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TokenRule::HeldBefore => "whose hold had ended",
            TokenRule::RepliedBefore => "who had its grant before the other asked",
        })
    }
}

struct Beside<'holders>(&'holders [Holder]);

impl Display for Beside<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for holder in self.0 {
            write!(formatter, "beside {holder}; ")?;
        }
        Ok(())
    }
}

/// A time as people read it.
struct Moment(u64);

impl Display for Moment {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => formatter.write_str("the end of time"),
            ns => write!(formatter, "{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000),
        }
    }
}
