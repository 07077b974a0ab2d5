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
    pub(super) is_answered: bool,
}

impl<'a> Asker<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        let is_alone = inner.asking.fetch_add(1, SeqCst) == 0;
        let mut asker = Self { inner, instead_of: None, is_answered: false };
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
        let Some(number) = self.instead_of else { return request.poll(cx) };
        let (line_bell, answer_bell) = (&self.inner.line_bell, &self.inner.answer_bell);
        // What we do to the line, and what it does to us, need not wake us: we look right afterwards.
        answer_bell.belongs_to(cx);
        let (mut answer, line_called) =
            line_bell.unheard_during(|| request.as_mut().poll(&mut answer_bell.context()));
        let seat = self.inner.seat();
        if !seat.is_lent || self.inner.moves.load(SeqCst) != number {
            drop(seat);
            self.instead_of = None;
            if line_called {
                line_bell.ring();
            }
            return if answer.is_pending() { request.poll(cx) } else { answer };
        }
        if answer.is_pending() {
            // If the line has ended, so has the request.
            let _ = answer_bell.unheard_during(|| self.inner.poll_line(seat, cx));
            answer = request.poll(&mut answer_bell.context());
        }
        answer
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
