//! What `fuzz/` feeds with bytes of a server or of another client: replies in Jute, nodes, URLs.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::config::Settings;
use crate::jute::{Garbled, Reader};
use crate::keys::{self, NodeName};
use crate::protocol::{self, ConnectReply, Header, Stat};
use crate::view::{self, Content};
use lockkeeper_core::Demand;
use lockkeeper_core::engine::Address;
use std::time::Duration;

/// A frame of a server, read as each kind of reply.
pub fn replies(data: &[u8]) {
    fn each<T>(body: &[u8], read: impl Fn(&mut Reader<'_>) -> Result<T, Garbled>) {
        let _ = read(&mut Reader(body));
    }
    let _ = ConnectReply::read(data);
    let mut reader = Reader(data);
    let body = if Header::read(&mut reader).is_ok() { reader.0 } else { data };
    each(body, protocol::event_path);
    each(body, protocol::read_stat);
    each(body, protocol::read_created);
    each(body, protocol::read_data);
    each(body, protocol::read_multi);
    each(body, protocol::read_children_of_all);
    each(body, |reader| reader.texts());
}

/// The name of a node and, after a line break, its data: whatever other clients write is shown and not believed.
pub fn nodes(data: &[u8]) {
    let (name, data) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let name = String::from_utf8_lossy(name);
    let data = data.strip_prefix(b"\n").unwrap_or(data);
    let parsed = NodeName::parse(&name);
    assert!(parsed.is_none() || keys::is_claim(&name), "{name}");
    let _ = keys::part_of_name(&name);
    let number = |at: usize| {
        data.get(at..at + 8).map_or(-1, |bytes| i64::from_be_bytes(bytes.try_into().unwrap_or_default()))
    };
    let stat = Stat {
        czxid: number(0),
        mzxid: number(8),
        ctime_ms: number(16),
        mtime_ms: number(24),
        version: 0,
        ephemeral_owner: number(0),
        children: 0,
    };
    let demand = parsed.map_or(Demand::Exclusive, |node| node.demand);
    let shown = view::claim(&name, demand, data, &stat);
    assert_eq!(shown.foreign, Content::read(data).is_none());
    assert_eq!(shown.demand, demand, "the demand is what the name says");
}

/// A URL of this engine.
pub fn urls(data: &[u8]) {
    let Ok(address) =
        std::str::from_utf8(data).map_err(drop).and_then(|url| Address::parse(url).map_err(drop))
    else {
        return;
    };
    let _ = Settings::from_address(address, Duration::from_secs(10));
}

#[cfg(test)]
mod tests {
    #[test]
    fn replies_of_the_corpus() {
        super::corpus::feed("zookeeper_replies", super::replies);
    }

    #[test]
    fn nodes_of_the_corpus() {
        super::corpus::feed("zookeeper_nodes", super::nodes);
    }

    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }
}
