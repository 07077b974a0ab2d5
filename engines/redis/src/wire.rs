//! Commands and their replies on one connection, with little between the caller and the socket.
//!
//! The driver's own connection passes each command through a channel, a sink, a frame and a tree of parsers, which is most of what a
//! lock costs on our side. So the driver greets the server, and what goes to and fro after that is ours.

#[cfg(test)]
mod tests;

use crate::link::io_error;
use crate::reply;
use lockkeeper_core::drive::Stream;
use redis::{RedisResult, Value};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::sync::oneshot;

/// How much is read at once; longer replies make it grow.
const ROOM: usize = 8 * 1024;

/// Where commands are handed in.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Mutex<Desk>>);

/// What is handed in, and who waits for it.
#[derive(Default)]
struct Desk {
    /// What is to be sent.
    out: Vec<u8>,
    /// Who waits for replies: the server gives them in order.
    waiting: VecDeque<Waiting>,
    /// How the line is called.
    line: Option<Waker>,
    is_closed: bool,
}

struct Waiting {
    replies: Vec<Value>,
    wanted: usize,
    answer: oneshot::Sender<Vec<Value>>,
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> redis::RedisError {
    io_error(ErrorKind::ConnectionReset, "the connection has ended")
}

impl Wire {
    /// A wire over a stream on which nothing is under way, and the line that must be driven for it. `ended` is called when the
    /// line has come to its end.
    pub(crate) fn over(io: Stream, ended: impl FnOnce() + Send + 'static) -> (Self, Line) {
        let desk = Arc::<Mutex<Desk>>::default();
        let line = Line {
            io,
            out: Vec::new(),
            sent: 0,
            input: vec![0; ROOM],
            from: 0,
            to: 0,
            ended: Some(Box::new(ended)),
            desk: Arc::clone(&desk),
        };
        (Self(desk), line)
    }

    /// Sends what `write` writes, commands with so many replies, and waits for these.
    ///
    /// Cancel safety: the commands may or may not be sent.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) async fn send(
        &self,
        write: impl FnOnce(&mut Vec<u8>),
        replies: usize,
    ) -> RedisResult<Vec<Value>> {
        if replies == 0 {
            return Ok(Vec::new());
        }
        let answered = {
            let mut desk = lock(&self.0);
            if desk.is_closed {
                return Err(closed());
            }
            let (answer, answered) = oneshot::channel();
            write(&mut desk.out);
            desk.waiting.push_back(Waiting { replies: Vec::with_capacity(replies), wanted: replies, answer });
            if let Some(line) = &desk.line {
                line.wake_by_ref();
            }
            answered
        };
        answered.await.map_err(|_| closed())
    }
}

/// Sends and receives. It ends with the connection.
pub(crate) struct Line {
    io: Stream,
    /// What is being sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
    /// What was received and not read yet is in `from..to`.
    input: Vec<u8>,
    from: usize,
    to: usize,
    ended: Option<Box<dyn FnOnce() + Send>>,
    desk: Arc<Mutex<Desk>>,
}

impl Future for Line {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let line = &mut *self;
        match line.send(cx).and_then(|()| line.receive(cx)) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                tracing::debug!(%error, "the connection has ended");
                Poll::Ready(())
            }
        }
    }
}

impl Line {
    /// Sends what there is to send, as far as the socket takes it.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                let mut desk = lock(&self.desk);
                std::mem::swap(&mut desk.out, &mut self.out);
                if self.out.is_empty() {
                    match &mut desk.line {
                        Some(waker) => waker.clone_from(cx.waker()),
                        none => *none = Some(cx.waker().clone()),
                    }
                    return Ok(());
                }
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.out[self.sent..])? {
                Poll::Ready(0) => return Err(ErrorKind::WriteZero.into()),
                Poll::Ready(count) => self.sent += count,
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Gives what has come to those who wait for it.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.to == self.input.len() {
                self.make_room();
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.to..]);
            if Pin::new(&mut self.io).poll_read(cx, &mut buffer)?.is_pending() {
                return Ok(());
            }
            match buffer.filled().len() {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.to += count,
            }
            while let Some((reply, length)) =
                reply::first(&self.input[self.from..self.to]).map_err(io::Error::other)?
            {
                self.from += length;
                self.hand_out(reply)?;
            }
            if self.from == self.to {
                (self.from, self.to) = (0, 0);
            }
        }
    }

    fn make_room(&mut self) {
        if self.from > 0 {
            self.input.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        } else {
            self.input.resize(self.input.len() * 2, 0);
        }
    }

    fn hand_out(&self, reply: Value) -> io::Result<()> {
        if matches!(reply, Value::Push { .. }) {
            return Ok(());
        }
        let mut desk = lock(&self.desk);
        let Some(first) = desk.waiting.front_mut() else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a reply that nobody asked for"));
        };
        first.replies.push(reply);
        if first.replies.len() == first.wanted
            && let Some(Waiting { replies, answer, .. }) = desk.waiting.pop_front()
        {
            drop(desk);
            // Whoever asked may have given up.
            let _ = answer.send(replies);
        }
        Ok(())
    }
}

/// Whoever still waits hears that there will be no answer.
impl Drop for Line {
    fn drop(&mut self) {
        let waiting = {
            let mut desk = lock(&self.desk);
            desk.is_closed = true;
            std::mem::take(&mut desk.waiting)
        };
        drop(waiting);
        if let Some(ended) = self.ended.take() {
            ended();
        }
    }
}
