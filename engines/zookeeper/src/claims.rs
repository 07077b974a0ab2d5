//! The claims of this engine: in which session they were made and where their nodes are, since the server knows only nodes.

use crate::keys::{NodeName, Sequence};
use lockkeeper_core::engine::{ClaimId, Clock, Moment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A claim's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// The session it lives and dies with.
    pub(crate) session: i64,
    pub(crate) path: String,
    /// The transaction that made it, which distinguishes it from a later node at the same path.
    pub(crate) czxid: i64,
    /// Style 'plain': the directory's version as this hold has set it.
    pub(crate) version: Option<i32>,
    /// The fencing token: the czxid of the claim's first node, which a downgrade replaces.
    pub(crate) token: i64,
}

impl Node {
    /// The lock's directory, and the claim's place there.
    pub(crate) fn place(&self) -> Option<(&str, Sequence)> {
        let (directory, name) = self.path.rsplit_once('/')?;
        Some((directory, NodeName::parse(name)?.sequence))
    }
}

/// One claim, from just before its create is sent until it has left.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) session: i64,
    pub(crate) node: Option<Node>,
    /// A create was sent on this connection of the session, and its reply has not been seen (Law 4).
    pub(crate) doubt: Option<u64>,
    /// A downgrade was sent, and its reply has not been seen: the node may be another by now.
    pub(crate) moving: bool,
    /// A delete was sent, and its reply has not been seen.
    pub(crate) leaving: bool,
    /// Paths of the nodes it waits for, as of its last look.
    pub(crate) blockers: Vec<String>,
    /// When it was granted, once its keeper has said so.
    granted_at: Option<Moment>,
    /// The node into which it was written since when the claim holds, by the transaction that made it, and the connection
    /// that the write was sent on.
    noted: Option<(i64, u64)>,
    /// When it lapses unless its keeper renews it.
    lapses_at: Moment,
}

/// The claims of this engine, by id.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<ClaimId, Record>>);

impl Claims {
    fn records(&self) -> MutexGuard<'_, HashMap<ClaimId, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, id: ClaimId) -> Option<Record> {
        self.records().get(&id).cloned()
    }

    /// Whether a create of this claim was sent in this session.
    pub(crate) fn was_sent(&self, id: ClaimId, session: i64) -> bool {
        self.records().get(&id).is_some_and(|record| record.session == session)
    }

    /// Whether a create of this claim may still be on its way.
    pub(crate) fn is_in_doubt(&self, id: ClaimId) -> bool {
        self.records().get(&id).is_some_and(|record| record.doubt.is_some())
    }

    pub(crate) fn node(&self, id: ClaimId) -> Option<Node> {
        self.records().get(&id)?.node.clone()
    }

    /// To be noted before the create is sent: from here on there may be a node. An older doubt stays.
    pub(crate) fn sending(&self, id: ClaimId, session: i64, epoch: u64) {
        let mut records = self.records();
        let record = records.entry(id).or_insert_with(|| Record {
            session,
            node: None,
            doubt: None,
            moving: false,
            leaving: false,
            blockers: Vec::new(),
            granted_at: None,
            noted: None,
            lapses_at: Moment::NEVER,
        });
        if record.session != session {
            (record.session, record.node, record.doubt) = (session, None, None);
        }
        record.doubt.get_or_insert(epoch);
    }

    /// The create sent last has its reply; no doubt is left unless there was one before it.
    pub(crate) fn made(&self, id: ClaimId, node: Node, epoch: u64) {
        if let Some(record) = self.records().get_mut(&id) {
            record.doubt = record.doubt.filter(|doubt| *doubt != epoch);
            record.node = Some(node);
        }
    }

    /// To be noted before the claim's node is replaced by another.
    pub(crate) fn moving(&self, id: ClaimId) {
        if let Some(record) = self.records().get_mut(&id) {
            record.moving = true;
        }
    }

    /// Where the claim's node is now.
    pub(crate) fn moved(&self, id: ClaimId, node: Node) {
        if let Some(record) = self.records().get_mut(&id) {
            (record.node, record.moving) = (Some(node), false);
        }
    }

    /// Whether this is still the claim's only node, as far as we know.
    pub(crate) fn is_settled(&self, id: ClaimId, czxid: i64) -> bool {
        self.records().get(&id).is_some_and(|record| {
            !record.moving && record.node.as_ref().is_some_and(|node| node.czxid == czxid)
        })
    }

    /// The latest node of ours at each path, by the transaction that made it.
    pub(crate) fn latest(&self) -> HashMap<String, i64> {
        let mut latest: HashMap<String, i64> = HashMap::new();
        for node in self.records().values().filter_map(|record| record.node.as_ref()) {
            let czxid = latest.entry(node.path.clone()).or_insert(node.czxid);
            *czxid = node.czxid.max(*czxid);
        }
        latest
    }

    /// The keeper wants the claim to live this long from now on.
    pub(crate) fn renewed(&self, id: ClaimId, ttl: Duration) {
        if let Some(record) = self.records().get_mut(&id) {
            record.lapses_at = Clock::Boot.now().plus(ttl);
        }
    }

    /// The claim was granted this long ago: its node, if its data is to say so and the write was not yet sent on this
    /// connection. The write has no reply, so one that was sent on an earlier connection may be lost.
    pub(crate) fn granted(&self, id: ClaimId, held_for: Duration, session: i64, epoch: u64) -> Option<Node> {
        let mut records = self.records();
        let record = records.get_mut(&id)?;
        record.granted_at.get_or_insert(Clock::Boot.now().minus(held_for));
        let node = record.node.clone().filter(|node| node.session == session && !record.moving)?;
        let noted = Some((node.czxid, epoch));
        (std::mem::replace(&mut record.noted, noted) != noted).then_some(node)
    }

    /// How long ago the claim was granted, if its keeper has said so.
    pub(crate) fn held_for(&self, id: ClaimId) -> Option<Duration> {
        Some(Clock::Boot.now().since(self.records().get(&id)?.granted_at?))
    }

    /// The claims whose keeper has not renewed them in time.
    pub(crate) fn lapsed(&self) -> Vec<(ClaimId, Node)> {
        let now = Clock::Boot.now();
        let records = self.records();
        let lapsed = records.iter().filter(|(_, record)| record.lapses_at <= now);
        lapsed.filter_map(|(id, record)| Some((*id, record.node.clone()?))).collect()
    }

    pub(crate) fn waits_for(&self, id: ClaimId, blockers: Vec<String>) {
        if let Some(record) = self.records().get_mut(&id) {
            record.blockers = blockers;
        }
    }

    pub(crate) fn take_blockers(&self, id: ClaimId) -> Vec<String> {
        self.records().get_mut(&id).map(|record| std::mem::take(&mut record.blockers)).unwrap_or_default()
    }

    pub(crate) fn leaving(&self, id: ClaimId) {
        if let Some(record) = self.records().get_mut(&id) {
            record.leaving = true;
        }
    }

    pub(crate) fn forget(&self, id: ClaimId) {
        self.records().remove(&id);
    }
}
