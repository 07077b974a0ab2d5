//! The socket of a connection that holds locks.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// Connects to a server. Both sides notice within 10 s that the other one's machine is gone.
///
/// # Errors
/// Why it cannot be reached.
pub async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let io = TcpStream::connect((host, port)).await?;
    io.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&io, true)?;
    sockopt::set_tcp_keepidle(&io, Duration::from_secs(3))?;
    sockopt::set_tcp_keepintvl(&io, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(&io, 3)?;
    sockopt::set_tcp_user_timeout(&io, 9_000)?;
    Ok(io)
}
