//! The faults, by the names under which they are asked for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is done to the clients, the network or the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// A client's process is stopped for longer than its TTL, in the middle of a hold, and goes on.
    Pause,
    /// As [`Pause`](Self::Pause), judged by the resource that does not check tokens: updates must be lost there.
    Unfenced,
    /// A client's process is killed, and another one started.
    Kill,
    /// The async executor of a client is blocked for longer than its TTL.
    Block,
    /// Waits are dropped after random times, some 200 times a second.
    Cancels,
    /// 2,000 tasks wait for one lock.
    Waiters,
    /// Nothing passes between clients and servers, either way; connections stay open.
    Cut,
    /// Requests are held up, replies pass.
    CutRequests,
    /// Replies are held up, and arrive late: requests take effect, and nobody learns it.
    CutReplies,
    /// Everything takes 50 to 200 ms longer, each way.
    Delay,
    /// Connections are reset, again and again.
    Reset,
    /// The connections that there are carry nothing any more, and neither side learns it.
    HalfOpen,
    /// The same, but the server learns it.
    HalfOpenClients,
    /// The servers are stopped for longer than the TTL, and go on.
    ServerPause,
    /// The servers are killed, and started again.
    ServerKill,
    /// The servers end in an orderly way, and are started again.
    ServerStop,
    /// The leader is killed, and started again later.
    LeaderKill,
    /// The leader is stopped, and goes on.
    LeaderPause,
    /// A minority of independent nodes is killed, and started again later without their data.
    NodesKill,
    /// A majority of independent nodes is killed, and started again at once without their data.
    NodesForget,
    /// The master is killed, and a replica takes its place.
    Failover,
    /// The wall clock of the servers is set forward by an hour.
    ClockForward,
    /// The wall clock of the servers is set back by an hour.
    ClockBack,
    /// The wall clock of the clients is set forward and back by an hour.
    ClientClock,
    /// One of the above after the other, as the seed has it.
    Mixed,
}

/// The faults that one process or its network can suffer, whatever server it uses.
pub(crate) const OF_CLIENTS: [Fault; 3] = [Fault::Pause, Fault::Kill, Fault::Block];
/// Those of a network, for which a proxy must be in between.
pub(crate) const OF_NETWORKS: [Fault; 7] = [
    Fault::Cut,
    Fault::CutRequests,
    Fault::CutReplies,
    Fault::Delay,
    Fault::Reset,
    Fault::HalfOpen,
    Fault::HalfOpenClients,
];

impl Fault {
    /// All of them, in the order of the tables.
    pub const ALL: [Fault; 25] = [
        Fault::Pause,
        Fault::Unfenced,
        Fault::Kill,
        Fault::Block,
        Fault::Cancels,
        Fault::Waiters,
        Fault::Cut,
        Fault::CutRequests,
        Fault::CutReplies,
        Fault::Delay,
        Fault::Reset,
        Fault::HalfOpen,
        Fault::HalfOpenClients,
        Fault::ServerPause,
        Fault::ServerKill,
        Fault::ServerStop,
        Fault::LeaderKill,
        Fault::LeaderPause,
        Fault::NodesKill,
        Fault::NodesForget,
        Fault::Failover,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::ClientClock,
        Fault::Mixed,
    ];

    /// Whether servers are started with a wall clock that can be set.
    pub(crate) fn sets_server_clock(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        f.pad(name.as_str().unwrap_or_default())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.to_string() == name);
        found.ok_or_else(|| format!("there is no fault {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse::<Fault>(), Ok(fault));
        }
        assert!("flood".parse::<Fault>().is_err());
    }
}
