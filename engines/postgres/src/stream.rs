//! The socket to the server.

use crate::config::Host;
use lockkeeper_core::drive::{Moves, Stream};
use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// A socket that can move from one runtime to another.
pub(crate) type Socket = Stream;

/// Connects to the server. Both sides notice within 10 s that the other one's machine is gone.
pub(crate) async fn connect(host: &Host, moves: Moves) -> io::Result<Socket> {
    let io = TcpStream::connect((host.name.as_str(), host.port)).await?;
    io.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&io, true)?;
    sockopt::set_tcp_keepidle(&io, Duration::from_secs(3))?;
    sockopt::set_tcp_keepintvl(&io, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(&io, 3)?;
    sockopt::set_tcp_user_timeout(&io, 9_000)?;
    Ok(Stream::new(io, moves))
}
