//! The names of the keys, and the slots they live in.

use lockkeeper_core::engine::ClaimId;
use std::borrow::Cow;
use std::sync::LazyLock;

const SLOTS: usize = 16_384;

/// Where a server keeps the last token it has given, to any claim of any lock.
const TOKEN: &str = "lockkeeper:token";

/// The key of the last token, for scripts that use the lock with this key. In a Cluster every slot has one of its own,
/// since a script reaches no other slot.
pub(crate) fn token(lock: &str, is_cluster: bool) -> Cow<'static, str> {
    if is_cluster { format!("{TOKEN}:{{{}}}", TAGS[usize::from(slot(lock))]).into() } else { TOKEN.into() }
}

/// Whether a key is one of lockkeeper's that belongs to no lock.
fn is_of_no_lock(key: &str) -> bool {
    key.starts_with("lockkeeper:")
}

/// A number for each slot of a Cluster that lives in that slot.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; SLOTS];
    let mut missing = SLOTS;
    for number in 0u32.. {
        let tag = &mut tags[usize::from(slot(number.to_string()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    tags.into_iter().flatten().collect()
});

/// The keys of one lock in the style 'queue': all in one slot, by the hash tag.
#[derive(Debug, Clone)]
pub(crate) struct QueueKeys(pub(crate) [String; 4]);

const LOCK: &str = "}:lock";

impl QueueKeys {
    pub(crate) fn of(name: &str) -> Self {
        let tag = escape(name);
        Self(["lock", "queue", "expiries", "waiters"].map(|what| format!("{{{tag}}}:{what}")))
    }

    /// The pattern that finds all locks whose name begins with the prefix.
    pub(crate) fn pattern(prefix: &str) -> String {
        format!("{{{}*{LOCK}", escape_pattern(&escape(prefix)))
    }

    /// The lock whose key this is.
    pub(crate) fn name(key: &str) -> Option<String> {
        let tag = key.strip_prefix('{')?.strip_suffix(LOCK)?;
        Some(tag.replace("%7D", "}").replace("%25", "%"))
    }
}

/// A hash tag ends at the first closing brace, so a name must not have one.
fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['}', '%']) { name.replace('%', "%25").replace('}', "%7D").into() } else { name.into() }
}

/// The keys of one lock in the style 'plain': the lock is its bare name, so that other clients find it.
#[derive(Debug, Clone)]
pub struct PlainKeys {
    /// The lock.
    pub lock: String,
    /// What the keys beside the lock begin with.
    beside: String,
}

impl PlainKeys {
    /// The keys of a lock.
    pub fn of(name: &str) -> Self {
        // The tag ends at a brace, which is a letter of its own in UTF-8.
        let tag = std::str::from_utf8(tag(name.as_bytes())).unwrap_or(name);
        let beside =
            if tag.len() == name.len() { format!("{{{tag}}}:") } else { format!("{{{tag}}}:{name}:") };
        Self { lock: name.to_owned(), beside }
    }

    /// The waiters that a release wakes.
    pub fn waiting(&self) -> String {
        self.beside("waiting")
    }

    /// The mark of a claim that has left before it arrived.
    pub fn left(&self, id: ClaimId) -> String {
        self.beside(&format!("left:{id}"))
    }

    /// Another key beside the lock.
    pub fn beside(&self, what: &str) -> String {
        format!("{}{what}", self.beside)
    }

    /// Whether all of them are in one slot; only a name with a stray brace cannot have that.
    pub fn in_one_slot(&self) -> bool {
        slot(&self.lock) == slot(&self.beside)
    }

    /// The pattern that finds all locks whose name begins with the prefix (and more).
    pub fn pattern(prefix: &str) -> String {
        format!("{}*", escape_pattern(prefix))
    }

    /// Whether a key is no lock but one that lockkeeper keeps beside locks.
    pub fn is_beside(key: &str) -> bool {
        let is_beside = |end: &str| key.starts_with('{') && key.ends_with(end);
        is_of_no_lock(key)
            || [":fence", ":waiting", ":lock"].into_iter().any(is_beside)
            || key.contains("}:left:")
    }
}

/// The keys of one lock as Redisson names them, and those that lockkeeper keeps beside it.
#[derive(Debug, Clone)]
pub(crate) struct RedissonKeys<'a>(pub(crate) &'a str);

impl RedissonKeys<'_> {
    /// The channel on which a release is published.
    pub(crate) fn channel(&self, is_read_write: bool) -> String {
        self.after(if is_read_write { "redisson_rwlock" } else { "redisson_lock__channel" })
    }

    /// The last token of an RFencedLock.
    pub(crate) fn fence(&self) -> String {
        self.after("redisson_lock_token")
    }

    /// Those that wait for an RFairLock.
    pub(crate) fn queue(&self) -> String {
        self.after("redisson_lock_queue")
    }

    /// The mark of a claim that has left before it arrived.
    pub(crate) fn left(&self, id: ClaimId) -> String {
        format!("{}left:{id}", self.before())
    }

    /// The token and the holder of a claim of ours.
    pub(crate) fn note(&self, field: &str) -> String {
        format!("{}{field}:lockkeeper", self.before())
    }

    /// What expires with the claim of a reader that has entered once.
    pub(crate) fn timeout(&self, field: &str) -> String {
        format!("{}{field}:rwlock_timeout:1", self.before())
    }

    /// What the keys of a holder begin with.
    pub(crate) fn before(&self) -> String {
        if self.0.contains('{') { format!("{}:", self.0) } else { format!("{{{}}}:", self.0) }
    }

    fn after(&self, prefix: &str) -> String {
        if self.0.contains('{') { format!("{prefix}:{}", self.0) } else { format!("{prefix}:{{{}}}", self.0) }
    }

    /// Whether all of them are in one slot; only a name with a stray brace cannot have that.
    pub(crate) fn in_one_slot(&self) -> bool {
        let slot_of_lock = slot(self.0);
        slot(self.before()) == slot_of_lock && slot(self.fence()) == slot_of_lock
    }
}

fn escape_pattern(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '^' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// What of a key decides its slot: what stands between its first braces, or all of it.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// The slot of a key in a Redis Cluster: CRC-16 (XMODEM) of its tag, in 16,384 slots.
pub(crate) fn slot(key: impl AsRef<[u8]>) -> u16 {
    let mut sum = 0u16;
    for byte in tag(key.as_ref()) {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
        }
    }
    sum % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(slot("foo{}{bar}"), slot("foo{}{bar}"));
        assert_ne!(slot("foo{}{bar}"), slot("bar"));
    }

    #[test]
    fn all_keys_of_a_lock_share_a_slot_and_lead_back_to_its_name() {
        for name in ["a", "orders/42", "}x", "a{b}c", "100%", "%7D", "{}", "größe"] {
            let QueueKeys(keys) = QueueKeys::of(name);
            assert!(keys.iter().all(|key| slot(key) == slot(&keys[0])), "{name}");
            assert_eq!(QueueKeys::name(&keys[0]).as_deref(), Some(name));
        }
        for name in ["a", "orders/42", "a{b}c"] {
            assert!(PlainKeys::of(name).in_one_slot(), "{name}");
        }
        assert!(!PlainKeys::of("a}b").in_one_slot());
    }

    #[test]
    fn the_keys_of_redisson_are_named_as_it_names_them() {
        let keys = RedissonKeys("orders/42");
        assert_eq!(keys.channel(false), "redisson_lock__channel:{orders/42}");
        assert_eq!(keys.channel(true), "redisson_rwlock:{orders/42}");
        assert_eq!(keys.fence(), "redisson_lock_token:{orders/42}");
        assert_eq!(keys.queue(), "redisson_lock_queue:{orders/42}");
        assert_eq!(keys.timeout("id:0"), "{orders/42}:id:0:rwlock_timeout:1");
        assert_eq!(RedissonKeys("a{b}c").channel(false), "redisson_lock__channel:a{b}c");
        assert_eq!(RedissonKeys("a{b}c").timeout("id:0"), "a{b}c:id:0:rwlock_timeout:1");
        for (name, in_one_slot) in
            [("a", true), ("orders/42", true), ("a{b}c", true), ("a}b", false), ("a{b", false)]
        {
            assert_eq!(RedissonKeys(name).in_one_slot(), in_one_slot, "{name}");
        }
    }

    #[test]
    fn the_last_token_is_in_the_slot_of_the_lock() {
        for lock in ["a", "{orders/42}:lock", "größe"] {
            assert_eq!(slot(&*token(lock, true)), slot(lock), "{lock}");
            assert_eq!(token(lock, false), "lockkeeper:token");
        }
        assert!(PlainKeys::is_beside("lockkeeper:token"));
        assert!(PlainKeys::is_beside("{lockkeeper/x}:lock"), "of the style 'queue'");
        assert!(!PlainKeys::is_beside("redlock:x"), "of another client");
    }

    #[test]
    fn a_pattern_takes_a_prefix_literally() {
        assert_eq!(PlainKeys::pattern("a*[b]?"), "a\\*\\[b\\]\\?*");
        assert_eq!(QueueKeys::pattern("shop/"), "{shop/*}:lock");
    }
}
