//! What `fuzz/` feeds with bytes that nobody has checked: names, URLs and handles. The corpora are fed by the tests below.

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

use crate::address::{Address, parse_duration};
use crate::claim::{Demand, Holder};
use crate::handle::Handle;
use crate::name::{LockName, check_namespace};

/// A name, a namespace, a demand, a holder and a duration: what is accepted keeps the rules, and reads back.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = LockName::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(text.len() <= 512 && !text.chars().any(char::is_control));
        assert!(text.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
        assert_eq!(LockName::under("a", text).expect("checked").as_str(), format!("a/{text}"));
    }
    let _ = check_namespace(text);
    if let Ok(demand) = text.parse::<Demand>() {
        assert!(demand.weight() >= 1 && demand.weight() <= demand.limit());
        assert_eq!(demand.to_string().parse(), Ok(demand));
    }
    let holder = Holder::decode(text);
    assert_eq!(Holder::decode(&holder.encode()), holder);
    let _ = parse_duration(text);
}

/// A URL. A password is never repeated.
pub fn urls(data: &[u8]) {
    const SECRET: &str = "5ecret-never-shown";
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(mut address) = Address::parse(text) {
        let _ = address.take_flag("insecure");
        let _ = address.take_duration("ttl");
        let _ = address.take_password();
        let _ = address.finish();
        address.hosts.iter().for_each(|host| drop(host.with_port(1)));
    }
    if text.contains(SECRET) {
        return;
    }
    // A password with characters that had to be escaped is refused without being repeated. (After a number it looks like a
    // port and a path.)
    if let Err(error) = Address::parse(&format!("redis://user:{text}{SECRET}@host")) {
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
    let shown = match Address::parse(&format!("redis://user:{SECRET}@{text}")) {
        Ok(address) => format!("{} {:?}", address.redacted(), address.finish()),
        Err(error) => error.to_string(),
    };
    assert!(!shown.contains(SECRET), "{shown}");
}

/// The handle of a detached hold: what is accepted reads back.
pub fn handles(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string().parse::<Handle>().expect("its own text"), handle);
        assert!(LockName::new(handle.name()).is_ok());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_the_corpus() {
        super::corpus::feed("names", super::names);
    }

    #[test]
    fn urls_of_the_corpus() {
        super::corpus::feed("urls", super::urls);
    }

    #[test]
    fn handles_of_the_corpus() {
        super::corpus::feed("handles", super::handles);
    }
}
