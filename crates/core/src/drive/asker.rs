//! One who drives the line while he waits for its answer.

use super::Inner;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// One who waits for an answer.
pub(super) struct Asker<'a> {
    inner: &'a Inner,
    /// The number of the driver in whose place it drives.
    instead_of: Option<u64>,
    has_asked: bool,
    pub(super) is_answered: bool,
}

impl<'a> Asker<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        let is_alone = inner.asking.fetch_add(1, SeqCst) == 0;
        let mut asker = Self { inner, instead_of: None, has_asked: false, is_answered: false };
        if is_alone {
            let mut seat = inner.seat();
            if !inner.listens && Handle::try_current().is_ok_and(|here| here.id() == seat.home) {
                seat.is_lent = true;
                asker.instead_of = Some(inner.moves.load(SeqCst));
            } else {
                seat.call_back();
            }
        }
        asker
    }

    /// Polls the request, and drives if it is its turn.
    pub(super) fn poll<F: Future>(
        &mut self,
        mut request: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        if self.instead_of.is_none() {
            return request.poll(cx);
        }
        let (line_bell, answer_bell) = (&self.inner.line_bell, &self.inner.answer_bell);
        answer_bell.belongs_to(cx);
        // At first the request has something for the line, afterwards the line for the request.
        let mut line_called = !std::mem::replace(&mut self.has_asked, true);
        if !line_called && self.drive(cx).is_none() {
            return request.poll(cx);
        }
        loop {
            // What we do to the line, and what it does to us, need not wake us: we look right afterwards.
            let (answer, called) =
                line_bell.unheard_during(|| request.as_mut().poll(&mut answer_bell.context()));
            line_called |= called;
            if answer.is_ready() || !line_called {
                return answer;
            }
            match self.drive(cx) {
                Some(answer_called) if !answer_called => return Poll::Pending,
                Some(_) => line_called = false,
                None => {
                    if called {
                        line_bell.ring();
                    }
                    return request.poll(cx);
                }
            }
        }
    }

    /// Drives, and says whether that called the one who asks; `None` if it is not its turn any more.
    fn drive(&mut self, cx: &mut Context<'_>) -> Option<bool> {
        let seat = self.inner.seat();
        if !seat.is_lent || Some(self.inner.moves.load(SeqCst)) != self.instead_of {
            self.instead_of = None;
            return None;
        }
        // If the line ends, so does the request, and it is called.
        Some(self.inner.answer_bell.unheard_during(|| self.inner.poll_line(seat, cx)).1)
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        let others = self.inner.asking.fetch_sub(1, SeqCst) > 1;
        if self.instead_of.is_some() && (others || !self.is_answered) {
            self.inner.seat().call_back();
        }
    }
}
