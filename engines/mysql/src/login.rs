//! How a connection begins: who the server is, who we are, and by TLS if that was asked for.

use crate::config::Login;
use crate::packets::{Packets, broken, unexpected};
use lockkeeper_core::drive::{Moves, Stream};
use lockkeeper_sql_common::dial;
use mysql_async::consts::CapabilityFlags;
use mysql_async::{DriverError, Error, Result};
use mysql_common::crypto;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, AuthPluginData, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest,
};
use mysql_common::proto::MySerialize;
use std::io;

const LARGEST: u32 = 4 << 20;
/// `utf8mb4_general_ci`.
const COLLATION: u8 = 45;

fn wanted(login: &Login) -> CapabilityFlags {
    let mut flags = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PS_MULTI_RESULTS
        | CapabilityFlags::CLIENT_DEPRECATE_EOF
        | CapabilityFlags::CLIENT_SESSION_TRACK
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_FOUND_ROWS
        | CapabilityFlags::CLIENT_CONNECT_WITH_DB;
    if login.tls.is_some() {
        flags |= CapabilityFlags::CLIENT_SSL;
    }
    flags
}

/// Connects and logs in. Says whether results end without a packet of their own after the columns.
pub(crate) async fn log_in(login: &Login, moves: Moves) -> Result<(Packets, bool)> {
    let stream = Stream::new(dial(&login.host, login.port).await.map_err(broken)?, moves);
    let mut packets = Packets::new(stream);
    let greeting = packets.next_good().await?.to_vec();
    let greeting = ParseBuf(&greeting).parse::<HandshakePacket<'_>>(()).map_err(broken)?;
    let flags = greeting.capabilities() & wanted(login);
    let mut nonce = greeting.nonce();
    nonce.resize(20, 0);
    if let Some(connector) = &login.tls {
        if !flags.contains(CapabilityFlags::CLIENT_SSL) {
            return Err(Error::Driver(DriverError::NoClientSslFlagFromServer));
        }
        let request = SslRequest::new(flags, LARGEST, COLLATION);
        packets.send(|buffer| request.serialize(buffer)).await?;
        packets = packets.secure(connector, &login.host).await?;
    }
    let plugin = match greeting.auth_plugin() {
        Some(AuthPlugin::CachingSha2Password) => AuthPlugin::CachingSha2Password,
        _ => AuthPlugin::MysqlNativePassword,
    };
    let proof = prove(&plugin, login, &nonce)?;
    let response = HandshakeResponse::new(
        proof.as_deref(),
        greeting.server_version_parsed().unwrap_or((5, 7, 0)),
        Some(login.user.as_bytes()),
        Some(login.database.as_bytes()),
        Some(plugin.borrow()),
        flags,
        None,
        LARGEST,
    );
    packets.send(|buffer| response.serialize(buffer)).await?;
    convince(&mut packets, login, plugin.into_owned(), nonce).await?;
    Ok((packets, flags.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF)))
}

/// What shows that we know the password, in the way that the server wants.
fn prove<'a>(plugin: &AuthPlugin<'_>, login: &'a Login, nonce: &[u8]) -> Result<Option<AuthPluginData<'a>>> {
    match plugin {
        AuthPlugin::CachingSha2Password | AuthPlugin::MysqlNativePassword => {
            Ok(plugin.gen_data(login.password.as_deref(), nonce))
        }
        other => Err(Error::Driver(DriverError::UnknownAuthPlugin {
            name: String::from_utf8_lossy(other.as_bytes()).into_owned(),
        })),
    }
}

/// Answers until the server is content.
async fn convince(
    packets: &mut Packets,
    login: &Login,
    mut plugin: AuthPlugin<'static>,
    mut nonce: Vec<u8>,
) -> Result<()> {
    const SWITCHES: usize = 2;
    const STEPS: usize = 6;
    let mut switches = 0;
    for _ in 0..STEPS {
        let packet = packets.next_good().await?.to_vec();
        match packet.as_slice() {
            [0x00, ..] => return Ok(()),
            [0xfe, _, ..] if switches < SWITCHES => {
                switches += 1;
                let request = ParseBuf(&packet).parse::<AuthSwitchRequest<'_>>(()).map_err(broken)?;
                plugin = request.auth_plugin().into_owned();
                nonce = request.plugin_data().to_vec();
                let proof = prove(&plugin, login, &nonce)?;
                let proof = proof.as_deref().unwrap_or_default();
                packets.send(|buffer| buffer.extend_from_slice(proof)).await?;
            }
            // It remembers the password.
            [0x01, 0x03] => {}
            [0x01, 0x04] if matches!(plugin, AuthPlugin::CachingSha2Password) => {
                show_password(packets, login, &nonce).await?;
            }
            _ => return Err(unexpected(&packet)),
        }
    }
    Err(broken(io::Error::other("the server is not content with any proof")))
}

/// The server wants the password itself, which goes encrypted: by TLS, or with the server's key.
async fn show_password(packets: &mut Packets, login: &Login, nonce: &[u8]) -> Result<()> {
    let mut password = login.password.clone().unwrap_or_default().into_bytes();
    password.push(0);
    if !packets.is_secure() {
        packets.send(|buffer| buffer.push(0x02)).await?;
        let key = packets.next_good().await?;
        for (byte, nonce) in password.iter_mut().zip(nonce.iter().cycle()) {
            *byte ^= nonce;
        }
        password = crypto::encrypt(&password, key.get(1..).unwrap_or_default());
    }
    packets.send(|buffer| buffer.extend_from_slice(&password)).await
}
