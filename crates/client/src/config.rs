//! The server's address, and what is needed to reach it.

use crate::http::Server;
use lockkeeper_core::engine::Address;
use lockkeeper_core::{Error, Result};
use lockkeeper_tls_common::{Check, Tls};

/// The port of `lockkeeper serve`.
const PORT: u16 = 7670;

pub(crate) fn read(mut address: Address) -> Result<Server> {
    let has_tls = address.scheme == "https";
    let tls = Tls::take(&mut address, ["ca", "cert", "key"])?;
    let token = match address.take("token_file") {
        Some(path) => Some(token_from(&path)?),
        None => address.password.take().or_else(|| address.user.take()),
    };
    address.finish()?;
    let [host] = address.hosts.as_slice() else {
        return Err(Error::invalid(format!(
            "bad server URL '{}': give one server, such as http://localhost:{PORT}",
            address.redacted()
        )));
    };
    if !has_tls && !tls.is_empty() {
        return Err(Error::invalid("ca, cert and key are for https: use https:// in the server's URL"));
    }
    let base = format!("{}://{}{}", address.scheme, host.with_port(PORT), address.path.trim_end_matches('/'));
    let tls = if has_tls { Some(tls.client(Check::Name)?) } else { None };
    Server::new(base, token, tls)
}

fn token_from(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::invalid(format!("cannot read the token file {path}: {error}")))?;
    Ok(text.trim().to_owned())
}
