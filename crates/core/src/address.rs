//! The URL that picks an engine: `scheme://user:password@host1:port1,host2/path?style=…&key=value`.

use crate::error::{Error, Result};
use crate::password::{Password, PasswordCallback, Source};
use std::collections::BTreeMap;
use std::time::Duration;

/// One server in an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name or an IP address (IPv6 without its brackets).
    pub name: String,
    /// The port, if it was given.
    pub port: Option<u16>,
}

impl Host {
    /// `name:port`, with the port given or this one; an IPv6 address in brackets.
    pub fn with_port(&self, default: u16) -> String {
        let port = self.port.unwrap_or(default);
        if self.name.contains(':') {
            format!("[{}]:{port}", self.name)
        } else {
            format!("{}:{port}", self.name)
        }
    }
}

/// A parsed engine URL. Engines take the parameters they know; [`finish`](Self::finish) refuses the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// What comes before the first `:`.
    pub scheme: String,
    /// The user, decoded.
    pub user: Option<String>,
    /// The password, decoded.
    pub password: Option<String>,
    /// The servers.
    pub hosts: Vec<Host>,
    /// What follows the servers, decoded; with its leading `/` after servers, as it is in `file:/dir`.
    pub path: String,
    params: BTreeMap<String, String>,
    password_callback: Option<PasswordCallback>,
    known: Vec<&'static str>,
}

impl Address {
    /// Reads a URL.
    ///
    /// ```
    /// use lockkeeper_core::engine::Address;
    /// let address = Address::parse("etcd://10.0.0.1:2379,10.0.0.2/x?ttl=5s").unwrap();
    /// assert_eq!(address.hosts.len(), 2);
    /// assert_eq!(address.hosts[1].with_port(2379), "10.0.0.2:2379");
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`], saying what is wrong. Never repeats the password.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| {
            Error::invalid(format!(
                "bad engine URL {url:?}: expected SCHEME:…, such as file:/var/lock or redis://host"
            ))
        })?;
        // A parameter for some Redis clients, and no part of a path for any engine with servers.
        let insecure = rest.strip_suffix("#insecure").filter(|rest| rest.starts_with("//"));
        let rest = insecure.unwrap_or(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Self {
            scheme: scheme.to_owned(),
            user: None,
            password: None,
            hosts: Vec::new(),
            path: String::new(),
            params: parse_query(query)?,
            password_callback: None,
            known: Vec::new(),
        };
        if insecure.is_some() {
            address.params.entry("insecure".to_owned()).or_default();
        }
        match rest.strip_prefix("//") {
            Some(authority) => address.parse_authority(authority).map_err(|error| {
                // A password with a '/' or '?' of its own looks like a server with a bad port.
                let is_password = !authority.split('/').next().unwrap_or_default().contains('@')
                    && (authority.contains('@') || query.contains('@'));
                if is_password { bad_password() } else { error }
            })?,
            None => address.path = decode(rest)?,
        }
        Ok(address)
    }

    fn parse_authority(&mut self, rest: &str) -> Result<()> {
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        self.path = decode(path)?;
        let hosts = match authority.rsplit_once('@') {
            Some((user, hosts)) => {
                let (user, password) = user.split_once(':').map_or((user, None), |(u, p)| (u, Some(p)));
                self.user = Some(decode(user)?).filter(|user| !user.is_empty());
                self.password = password.map(decode).transpose()?;
                hosts
            }
            None => authority,
        };
        self.hosts =
            hosts.split(',').filter(|host| !host.is_empty()).map(parse_host).collect::<Result<_>>()?;
        Ok(())
    }

    /// The scheme with its servers, without user, password and parameters: fit for messages and logs.
    pub fn redacted(&self) -> String {
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|host| host.port.map_or(host.name.clone(), |port| host.with_port(port)))
            .collect();
        format!("{}://{}{}", self.scheme, hosts.join(","), self.path)
    }

    /// Takes a parameter.
    pub fn take(&mut self, key: &'static str) -> Option<String> {
        self.known.push(key);
        self.params.remove(key)
    }

    /// Looks at a parameter without taking it.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.params.get(key).map(String::as_str)
    }

    /// Lets a parameter be written in another way, too.
    pub fn alias(&mut self, other: &str, key: &'static str) {
        if let Some(value) = self.params.remove(other) {
            self.params.entry(key.to_owned()).or_insert(value);
        }
    }

    /// Takes a parameter that parses as `T`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not.
    pub fn take_parsed<T: std::str::FromStr>(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Result<Option<T>> {
        self.take(key)
            .map(|text| {
                let bad = |_| Error::invalid(format!("bad parameter {key}={text}: expected {expected}"));
                text.parse().map_err(bad)
            })
            .transpose()
    }

    /// Takes a flag: `?key`, `?key=true` or `?key=false`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn take_flag(&mut self, key: &'static str) -> Result<bool> {
        match self.take(key).as_deref() {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(other) => {
                Err(Error::invalid(format!("bad parameter {key}={other}: expected true or false")))
            }
        }
    }

    /// Takes a duration such as `5s`, `500ms` or `2m`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn take_duration(&mut self, key: &'static str) -> Result<Option<Duration>> {
        self.take(key).map(|text| parse_duration(&text)).transpose()
    }

    /// Takes `style`, which must be one of these; the first is the default.
    ///
    /// # Errors
    /// [`Error::Invalid`], listing the styles there are.
    pub fn take_style(&mut self, styles: &[&'static str]) -> Result<&'static str> {
        let Some(asked) = self.take("style") else { return Ok(styles[0]) };
        styles.iter().copied().find(|style| *style == asked).ok_or_else(|| {
            Error::invalid(format!("{} has no style '{asked}'; it has: {}", self.scheme, styles.join(", ")))
        })
    }

    /// Lets the application give the password, instead of the URL.
    pub fn set_password_callback(&mut self, callback: PasswordCallback) {
        self.password_callback = Some(callback);
    }

    /// Takes the password: the application's, that of the file in `password_file`, or the URL's.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL with a password and a file.
    pub fn take_password(&mut self) -> Result<Password> {
        let (fixed, file) = (self.password.take(), self.take("password_file"));
        let source = match (self.password_callback.take(), file, fixed) {
            (Some(callback), ..) => Source::Callback(callback),
            (None, Some(_), Some(_)) => {
                return Err(Error::invalid("give the password in the URL or in password_file, not both"));
            }
            (None, Some(path), None) => Source::File(path.into()),
            (None, None, Some(password)) => Source::Fixed(password),
            (None, None, None) => Source::None,
        };
        Ok(Password::new(source))
    }

    /// Refuses parameters nobody has taken.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming the unknown parameter and the known ones.
    pub fn finish(&self) -> Result<()> {
        if self.password_callback.is_some() {
            return Err(Error::invalid(format!("{} asks the application for no password", self.scheme)));
        }
        match self.params.keys().next() {
            None => Ok(()),
            Some(unknown) => {
                let mut known = self.known.clone();
                known.sort_unstable();
                known.dedup();
                Err(Error::invalid(format!(
                    "{} has no parameter '{unknown}'; it has: {}",
                    self.scheme,
                    known.join(", ")
                )))
            }
        }
    }
}

/// Reads `500ms`, `10s`, `5m`, `2h` or `1d`; also several together, such as `1m30s`.
///
/// ```
/// use lockkeeper_core::engine::parse_duration;
/// assert_eq!(parse_duration("1m30s").unwrap().as_secs(), 90);
/// assert!(parse_duration("10").is_err());
/// ```
///
/// # Errors
/// [`Error::Invalid`], saying what is expected.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || {
        Error::invalid(format!(
            "bad duration {text:?}: expected a number with a unit, such as 500ms, 10s, 5m or 1m30s"
        ))
    };
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u32 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" | "min" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            "d" => Duration::from_secs(86_400),
            _ => return Err(bad()),
        };
        total = unit.checked_mul(number).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        rest = &rest[letters..];
    }
    if text.is_empty() { Err(bad()) } else { Ok(total) }
}

fn bad_password() -> Error {
    Error::invalid(
        "bad user or password in the engine URL: write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25",
    )
}

fn parse_host(text: &str) -> Result<Host> {
    let bad = || Error::invalid(format!("bad server {text:?}: expected host or host:port"));
    let (name, port) = if let Some(inside) = text.strip_prefix('[') {
        let (name, after) = inside.split_once(']').ok_or_else(bad)?;
        (name, after.strip_prefix(':'))
    } else {
        text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port)))
    };
    if name.is_empty() {
        return Err(bad());
    }
    let port = port.map(|port| port.parse().map_err(|_| bad())).transpose()?;
    Ok(Host { name: decode(name)?, port })
}

fn parse_query(query: &str) -> Result<BTreeMap<String, String>> {
    let mut params = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if params.insert(decode(key)?, decode(value)?).is_some() {
            return Err(Error::invalid(format!("the parameter '{key}' is given twice")));
        }
    }
    Ok(params)
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String> {
    let bad = || Error::invalid("bad percent-encoding in the engine URL: write % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16)).ok_or_else(bad);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_falls_into_its_parts() {
        let mut address =
            Address::parse("redis+sentinel://ann:p%40ss@h1:1,[::1]:2,h3/master?style=plain&namespace=&tls")
                .unwrap();
        assert_eq!(address.scheme, "redis+sentinel");
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!(address.hosts.len(), 3);
        assert_eq!(address.hosts[1].with_port(9), "[::1]:2");
        assert_eq!(address.path, "/master");
        assert_eq!(address.take_style(&["queue", "plain"]).unwrap(), "plain");
        assert_eq!(address.take("namespace").as_deref(), Some(""));
        assert!(address.take_flag("tls").unwrap());
        address.finish().unwrap();
        assert!(!address.redacted().contains("p@ss"));
    }

    #[test]
    fn a_file_url_keeps_its_path() {
        assert_eq!(Address::parse("file:/var/tmp/x").unwrap().path, "/var/tmp/x");
        assert_eq!(Address::parse("file:///var/tmp/x").unwrap().path, "/var/tmp/x");
        assert_eq!(Address::parse("file:relative/x").unwrap().path, "relative/x");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut address = Address::parse("redis://h?stile=plain&style=fast").unwrap();
        assert!(address.take_style(&["queue", "plain"]).unwrap_err().to_string().contains("queue, plain"));
        assert!(address.finish().unwrap_err().to_string().contains("'stile'"));
        for bad in ["nothing", "redis://h:port", "redis://h?a=1&a=2", "file:/%zz", "redis://[::1"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "s", "5x", "5s3", "99999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
