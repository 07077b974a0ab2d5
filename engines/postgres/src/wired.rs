//! A connection that the driver sets up and then leaves to us, for what takes at most one value and answers with numbers.
//!
//! The driver passes each request through a channel, a task and several buffers, which is more than all else that a lock costs
//! on our side. With TLS it keeps the connection, since what goes over the socket is not ours to read then.

use crate::backing::Backing;
use crate::config::Settings;
use crate::drive::{self, Hangup};
use crate::fault::{could_not_connect, ended, refused};
use crate::messages::{Answer, Numbers, put_call, put_request, reads};
use crate::session::{Purpose, Session, opened};
use lockkeeper_core::drive::{Drive, Manner, Moves, Stream, Wire};
use lockkeeper_core::{Lifeline, Result};
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Such a connection.
pub(crate) struct Wired {
    wire: Wire<Answer>,
    pub(crate) backing: Backing,
}

/// What the server knows our statements by, the first one, the second one and so on.
const NAMES: [&[u8]; 6] = [b"lk0\0", b"lk1\0", b"lk2\0", b"lk3\0", b"lk4\0", b"lk5\0"];

impl Wired {
    /// Opens a connection for at most six statements.
    pub(crate) async fn open(settings: &Arc<Settings>, statements: &'static [&'static str]) -> Result<Self> {
        opened(&Handle::current(), || Self::connect(Arc::clone(settings), statements)).await
    }

    async fn connect(settings: Arc<Settings>, statements: &'static [&'static str]) -> Result<Self> {
        let purpose = Purpose { patient: true, is_left: true, ..Purpose::default() };
        let mut session = Session::connect_to_any(&settings, &purpose).await?;
        // A pooler may have left some of the last one who had this session.
        let mut prepare = String::from("DEALLOCATE ALL;\n");
        for (index, text) in statements.iter().enumerate() {
            let _ = writeln!(prepare, "PREPARE lk{index} AS {};", session.fill(text));
        }
        session.batch(&prepare).await?;
        let (backend, socket) = session.leave().map_err(could_not_connect)?;
        let moves = Moves::default();
        let stream = Stream::new(socket, Arc::clone(&moves));
        let hangup = Hangup::of(&stream).map_err(could_not_connect)?;
        let lifeline = Lifeline::new();
        let end = drive::End::of(hangup, lifeline.clone());
        let (wire, line) = Wire::over(stream, Manner::AtOnce, reads, move || drop(end));
        let drive = Drive::start(line, moves, &Handle::current(), false);
        let mut backing = Backing::new(&settings, drive, lifeline);
        backing.enter(backend)?;
        Ok(Self { wire, backing })
    }

    /// What a statement answers.
    ///
    /// Cancel safety: when dropped, the statement may or may not run.
    pub(crate) async fn numbers(
        &self,
        statement: usize,
        text: Option<&str>,
        doing: &'static str,
    ) -> Result<Numbers> {
        self.ask(|out| put_request(out, NAMES[statement], text), doing).await
    }

    /// What a function of the server's answers to a number: quicker than any statement.
    ///
    /// Cancel safety: when dropped, the function may or may not run.
    pub(crate) async fn call(&self, function: u32, value: i64, doing: &'static str) -> Result<Numbers> {
        self.ask(|out| put_call(out, function, value), doing).await
    }

    async fn ask(&self, write: impl FnOnce(&mut Vec<u8>), doing: &'static str) -> Result<Numbers> {
        let request = pin!(self.wire.ask(write));
        let answer = self.backing.within(doing, request, ended).await?;
        answer.map_err(|refusal| refused(doing, refusal))
    }

    /// What a statement answers that may wait in the server.
    pub(crate) async fn numbers_at_last(
        &self,
        statement: usize,
        text: Option<&str>,
        doing: &'static str,
    ) -> Result<Numbers> {
        let request = self.wire.ask(|out| put_request(out, NAMES[statement], text));
        let answer = self.backing.at_last(doing, request, ended).await?;
        answer.map_err(|refusal| refused(doing, refusal))
    }
}
