//! The faults, by the names under which they are asked for.

use lockkeeper::views::Abilities;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is done to the clients, the network or the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// A client's process is stopped for longer than its TTL, in the middle of a hold, and goes on.
    Pause,
    /// A client's process is stopped for two fifths of a long TTL, and must still have its locks.
    PauseShort,
    /// As [`Pause`](Self::Pause), judged by the resource that does not check tokens: updates must be lost there.
    Unfenced,
    /// A client's process is killed, and another one started.
    Kill,
    /// The async executor of a client is blocked for longer than its TTL.
    Block,
    /// A client's process can open no file and no connection for a while, and those it has are reset.
    ClientFiles,
    /// Waits are dropped after random times, some 200 times a second.
    Cancels,
    /// 2,000 tasks wait for one lock.
    Waiters,
    /// The same, and the servers are stopped in the middle of it.
    Overload,
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
    /// Connections end in the middle of a request or reply, again and again.
    Tear,
    /// The connections that there are carry nothing any more, and neither side learns it.
    HalfOpen,
    /// The same, but the server learns it.
    HalfOpenClients,
    /// Every packet between clients and servers is dropped, and not acknowledged.
    CutPackets,
    /// The servers are stopped for longer than the TTL, and go on.
    ServerPause,
    /// The servers are killed, and started again.
    ServerKill,
    /// The servers end in an orderly way, and are started again.
    ServerStop,
    /// The servers are killed, and come back with the process ids that they had, as in a container.
    ServerPids,
    /// The servers can accept no connection and open no file for a while, and connections are reset.
    ServerFiles,
    /// The servers' disk is full for a while.
    FullDisk,
    /// The leader is killed, and started again later.
    LeaderKill,
    /// The leader is stopped, and goes on.
    LeaderPause,
    /// The leader and the other members cannot reach each other, while clients reach all of them.
    LeaderCut,
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
    /// The wall clock of the servers is set an hour ahead and an hour back by turns.
    ClockTurns,
    /// The wall clock of the clients is set forward and back by an hour.
    ClientClock,
    /// One of the above after the other, as the seed has it.
    #[default]
    Mixed,
}

/// The faults that one process or its network can suffer, whatever server it uses.
pub(crate) const OF_CLIENTS: [Fault; 4] = [Fault::Pause, Fault::Kill, Fault::Block, Fault::ClientFiles];
/// Those of a network, for which a proxy must be in between.
pub(crate) const OF_NETWORKS: [Fault; 8] = [
    Fault::Cut,
    Fault::CutRequests,
    Fault::CutReplies,
    Fault::Delay,
    Fault::Reset,
    Fault::Tear,
    Fault::HalfOpen,
    Fault::HalfOpenClients,
];

impl Fault {
    /// All of them, in the order of the tables.
    pub const ALL: [Fault; 35] = [
        Fault::Pause,
        Fault::PauseShort,
        Fault::Unfenced,
        Fault::Kill,
        Fault::Block,
        Fault::ClientFiles,
        Fault::Cancels,
        Fault::Waiters,
        Fault::Overload,
        Fault::Cut,
        Fault::CutRequests,
        Fault::CutReplies,
        Fault::Delay,
        Fault::Reset,
        Fault::Tear,
        Fault::HalfOpen,
        Fault::HalfOpenClients,
        Fault::CutPackets,
        Fault::ServerPause,
        Fault::ServerKill,
        Fault::ServerStop,
        Fault::ServerPids,
        Fault::ServerFiles,
        Fault::FullDisk,
        Fault::LeaderKill,
        Fault::LeaderPause,
        Fault::LeaderCut,
        Fault::NodesKill,
        Fault::NodesForget,
        Fault::Failover,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::ClockTurns,
        Fault::ClientClock,
        Fault::Mixed,
    ];

    /// Whether servers are started with a wall clock that can be set.
    pub(crate) fn sets_server_clock(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack | Self::ClockTurns)
    }

    /// Whether there are 2,000 tasks that do nothing but wait and hold in turn.
    pub(crate) fn has_waiters(self) -> bool {
        matches!(self, Self::Waiters | Self::Overload)
    }

    /// Whether every hold must outlast it, for it is shorter than the TTL or none of the holders' business. What lives on a
    /// connection ends with it, and a session is trusted for less than its TTL.
    pub(crate) fn loses_nothing(self, abilities: Abilities) -> bool {
        match self {
            Self::PauseShort | Self::Cancels | Self::ClientClock => true,
            Self::Reset | Self::Tear => abilities.detach,
            _ => false,
        }
    }

    /// Whether it is done to a network, a disk or process ids that the run has for itself, which only root may have.
    pub fn needs_root(self) -> bool {
        matches!(self, Self::CutPackets | Self::FullDisk | Self::LeaderCut | Self::ServerPids)
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

    #[test]
    fn a_reset_ends_what_lives_on_a_connection_only() {
        let session = Abilities::new("engine", "session", "engine://host");
        let queue = session.detach();
        assert!(Fault::Reset.loses_nothing(queue) && !Fault::Reset.loses_nothing(session));
        assert!(Fault::PauseShort.loses_nothing(session) && !Fault::Pause.loses_nothing(queue));
    }
}
