//! Questions and answers on one connection, with little between the caller and the socket.
//!
//! A driver's own connection passes each question through a channel, a sink, a frame and a tree of parsers, which is most of what a
//! lock costs on our side. So the driver greets the server, and what goes to and fro after that is ours.

#[cfg(test)]
mod tests;

use super::Stream;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// How much is read at once; longer answers make it grow.
const ROOM: usize = 8 * 1024;

/// Finds the first thing that the server says in these bytes, and how many of them it takes: an answer, or `None` in its place if
/// nobody asked for it. Nothing if it is not whole yet, and an error if it makes no sense.
pub type Reads<A> = fn(&[u8]) -> io::Result<Option<(Option<A>, usize)>>;

/// When a question may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At once: the server reads it when it has answered those before.
    AtOnce,
    /// When all before it are answered, as the protocol wants it.
    InTurn,
}

/// Where questions are handed in.
pub struct Wire<A>(Arc<Mutex<Desk<A>>>);

impl<A> Clone for Wire<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A> fmt::Debug for Wire<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

/// What is handed in, and who waits for it.
struct Desk<A> {
    /// What is to be sent.
    out: Vec<u8>,
    /// Where each question in it ends that is to be sent in turn, counted from the end of the one before.
    lengths: VecDeque<usize>,
    /// Who waits for answers: the server gives them in order.
    waiting: VecDeque<Waiting<A>>,
    /// How the line is called.
    line: Option<Waker>,
    manner: Manner,
    is_closed: bool,
}

impl<A> Desk<A> {
    /// Puts what may be sent now into `out`, which is empty.
    fn next(&mut self, out: &mut Vec<u8>, is_answered: bool) {
        match self.manner {
            Manner::AtOnce => std::mem::swap(&mut self.out, out),
            Manner::InTurn if !is_answered => {}
            Manner::InTurn => {
                let Some(length) = self.lengths.pop_front() else { return };
                if length == self.out.len() {
                    std::mem::swap(&mut self.out, out);
                } else {
                    out.extend(self.out.drain(..length));
                }
            }
        }
    }
}

enum Waiting<A> {
    One(oneshot::Sender<A>),
    Several { answers: Vec<A>, wanted: usize, to: oneshot::Sender<Vec<A>> },
}

fn lock<A>(desk: &Mutex<Desk<A>>) -> MutexGuard<'_, Desk<A>> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed<T>(_: T) -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "the connection has ended")
}

impl<A: Send> Wire<A> {
    /// A wire over a stream on which nothing is under way, and the line that must be driven for it. `ended` is called when the
    /// line has come to its end.
    pub fn over<S>(
        io: S,
        manner: Manner,
        reads: Reads<A>,
        ended: impl FnOnce() + Send + 'static,
    ) -> (Self, WireLine<A, S>) {
        let (out, lengths, waiting) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let desk = Desk { out, lengths, waiting, line: None, manner, is_closed: false };
        let desk = Arc::new(Mutex::new(desk));
        let line = WireLine {
            io,
            manner,
            out: Vec::new(),
            sent: 0,
            is_answered: true,
            input: vec![0; ROOM],
            from: 0,
            to: 0,
            reads,
            ended: Some(Box::new(ended)),
            desk: Arc::clone(&desk),
        };
        (Self(desk), line)
    }

    /// Sends what `write` writes, a question, and waits for its answer.
    ///
    /// Cancel safety: it may or may not be sent.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn ask(&self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<A> {
        let (to, answer) = oneshot::channel();
        self.hand_in(write, Waiting::One(to))?;
        answer.await.map_err(closed)
    }

    /// Whether a question is under way.
    pub fn is_busy(&self) -> bool {
        !lock(&self.0).waiting.is_empty()
    }

    /// Sends what `write` writes, so many questions, and waits for all the answers.
    ///
    /// Cancel safety: they may or may not be sent.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn ask_all(&self, write: impl FnOnce(&mut Vec<u8>), wanted: usize) -> io::Result<Vec<A>> {
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let (to, answers) = oneshot::channel();
        self.hand_in(write, Waiting::Several { answers: Vec::with_capacity(wanted), wanted, to })?;
        answers.await.map_err(closed)
    }

    fn hand_in(&self, write: impl FnOnce(&mut Vec<u8>), waiting: Waiting<A>) -> io::Result<()> {
        let mut desk = lock(&self.0);
        if desk.is_closed {
            return Err(closed(()));
        }
        let before = desk.out.len();
        write(&mut desk.out);
        if desk.manner == Manner::InTurn {
            let length = desk.out.len() - before;
            desk.lengths.push_back(length);
        }
        desk.waiting.push_back(waiting);
        if let Some(line) = &desk.line {
            line.wake_by_ref();
        }
        Ok(())
    }
}

/// Sends and receives. It ends with the connection.
pub struct WireLine<A, S = Stream> {
    io: S,
    manner: Manner,
    /// What is being sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
    /// Whether an answer has come since something was sent.
    is_answered: bool,
    /// What was received and not read yet is in `from..to`.
    input: Vec<u8>,
    from: usize,
    to: usize,
    reads: Reads<A>,
    ended: Option<Box<dyn FnOnce() + Send>>,
    desk: Arc<Mutex<Desk<A>>>,
}

impl<A, S> fmt::Debug for WireLine<A, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WireLine")
    }
}

impl<A: Send, S: AsyncRead + AsyncWrite + Unpin> Future for WireLine<A, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let line = &mut *self;
        loop {
            match line.send(cx).and_then(|()| line.receive(cx)) {
                // Its answer lets the next question go.
                Ok(true) if line.has_next() => {}
                Ok(_) => return Poll::Pending,
                Err(error) => {
                    tracing::debug!(%error, "the connection has ended");
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl<A: Send, S: AsyncRead + AsyncWrite + Unpin> WireLine<A, S> {
    /// Whether a question waits for its turn.
    fn has_next(&self) -> bool {
        self.manner == Manner::InTurn && !lock(&self.desk).lengths.is_empty()
    }

    /// Sends what there is to send, as far as the socket takes it.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                let mut desk = lock(&self.desk);
                desk.next(&mut self.out, self.is_answered);
                if self.out.is_empty() {
                    match &mut desk.line {
                        Some(waker) => waker.clone_from(cx.waker()),
                        none => *none = Some(cx.waker().clone()),
                    }
                    drop(desk);
                    // What encrypts may have kept some of it back.
                    let _later = Pin::new(&mut self.io).poll_flush(cx)?;
                    return Ok(());
                }
                self.is_answered = false;
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.out[self.sent..])? {
                Poll::Ready(0) => return Err(ErrorKind::WriteZero.into()),
                Poll::Ready(count) => self.sent += count,
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Gives what has come to those who wait for it; says whether there was an answer.
    fn receive(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.is_answered;
        loop {
            if self.to == self.input.len() {
                self.make_room();
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.to..]);
            if Pin::new(&mut self.io).poll_read(cx, &mut buffer)?.is_pending() {
                return Ok(self.is_answered != before);
            }
            match buffer.filled().len() {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.to += count,
            }
            while let Some((answer, length)) = (self.reads)(&self.input[self.from..self.to])? {
                self.from += length;
                answer.map_or(Ok(()), |answer| self.hand_out(answer))?;
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

    fn hand_out(&mut self, answer: A) -> io::Result<()> {
        let mut desk = lock(&self.desk);
        if let Some(Waiting::Several { answers, wanted, .. }) = desk.waiting.front_mut()
            && answers.len() + 1 < *wanted
        {
            answers.push(answer);
            return Ok(());
        }
        self.is_answered = true;
        let first = desk.waiting.pop_front();
        drop(desk);
        // Whoever asked may have given up.
        match first {
            Some(Waiting::One(to)) => drop(to.send(answer)),
            Some(Waiting::Several { mut answers, to, .. }) => {
                answers.push(answer);
                drop(to.send(answers));
            }
            None => return Err(io::Error::new(ErrorKind::InvalidData, "an answer that nobody asked for")),
        }
        Ok(())
    }
}

/// Whoever still waits hears that there will be no answer.
impl<A, S> Drop for WireLine<A, S> {
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
