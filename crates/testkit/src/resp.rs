//! A small Redis client for probes: one request per connection.

use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends one command to a port and returns all the reply's texts in a line each.
pub(crate) fn call(port: u16, command: &[&str]) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    exchange(stream, &[command])
}

/// Sends commands to a Unix socket and returns the replies' texts in a line each.
pub(crate) fn call_unix(path: &Path, commands: &[&[&str]]) -> Result<String> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    exchange(stream, commands)
}

fn exchange(mut stream: impl Read + Write, commands: &[&[&str]]) -> Result<String> {
    for command in commands {
        stream.write_all(encode(command).as_bytes())?;
    }
    let mut reader = BufReader::new(stream);
    let mut texts = Vec::new();
    for _ in commands {
        decode(&mut reader, &mut texts)?;
    }
    Ok(texts.join("\n"))
}

fn encode(command: &[&str]) -> String {
    let words = command.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n", command.len()) + &words.collect::<String>()
}

/// Adds the texts of one reply; an error reply is an error.
fn decode(reader: &mut impl BufRead, texts: &mut Vec<String>) -> Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| Error::other("the connection was closed"))?;
    let length = || rest.parse::<i64>().map_err(Error::other);
    match kind {
        "+" | ":" => texts.push(rest.to_string()),
        "$" => {
            if let Ok(length) = usize::try_from(length()?) {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes)?;
                texts.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
        }
        "*" => {
            for _ in 0..length()? {
                decode(reader, texts)?;
            }
        }
        _ => return Err(Error::other(rest.to_string())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_strings() {
        assert_eq!(encode(&["GET", "a"]), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }

    #[test]
    fn nested_replies_are_flattened() {
        let mut texts = Vec::new();
        decode(&mut "*3\r\n$1\r\na\r\n*2\r\n:7\r\n+b\r\n$-1\r\n".as_bytes(), &mut texts).unwrap();
        assert_eq!(texts, ["a", "7", "b"]);
    }

    #[test]
    fn an_error_reply_is_an_error() {
        let error = decode(&mut "-LOADING data\r\n".as_bytes(), &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "LOADING data");
    }
}
